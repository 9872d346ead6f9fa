"""The ZFS pack in a guest: laid over the root image, loaded, and a pool used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration.conftest import booted
from vmtax.hypervisor import Credentials, GuestSpec
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.machine.local import LocalMachine

pytestmark = pytest.mark.machines

VDEV = "/tmp/vdev"  # a file: for whole disks, zpool waits for udevd


def test_a_guest_with_the_pack_makes_a_pool(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec, image: Image, zfs_pack: Pack
) -> None:
    with booted(shared_local, replace(spec, layers=(str(zfs_pack.path),)), credentials, shared_local) as guest:
        machine = guest.machine
        assert machine.run("uname", "-r").strip() == zfs_pack.kernel == image.kernel
        machine.run("modprobe", "zfs")
        assert machine.run("cat", "/sys/module/zfs/version").strip() == zfs_pack.version
        versions = machine.run("zfs", "version").split()
        assert versions == [f"zfs-{zfs_pack.version}", f"zfs-kmod-{zfs_pack.version}"], (
            "tools and module are of one make"
        )
        assert tuple(int(part) for part in zfs_pack.version.split(".")[:2]) >= (2, 3), "older ones ignore O_DIRECT"

        machine.run("truncate", "-s", "128M", VDEV)
        machine.run("zpool", "create", "-O", "compression=off", "pool", VDEV)
        machine.run("zfs", "create", "-V", "16M", "pool/volume")
        machine.run("dd", "if=/dev/urandom", "of=/pool/file", "bs=64k", "count=16", "conv=fsync")
        before = machine.run("sha256sum", "/pool/file")
        machine.run("zpool", "export", "pool")
        machine.run("zpool", "import", "-d", "/tmp", "pool")
        assert machine.run("sha256sum", "/pool/file") == before
        assert machine.run("zpool", "list", "-H", "-o", "health", "pool").strip() == "ONLINE"
        machine.run("zpool", "export", "pool")
        # The image's own modules are there as before, under the pack's index of all.
        machine.run("modprobe", "btrfs")
        assert guest.shut_down() < 20
