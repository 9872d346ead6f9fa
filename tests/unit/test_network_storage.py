"""Storage that another machine serves is recognized by its file system, its transport or the name of its device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.fake_machine import FakeMachine
from tests.mounts import only
from vmtax.meter import disk, mounts
from vmtax.meter.network_storage import network_storage
from vmtax.meter.text import GREP


def on(
    system: str, source: str, *devices: dict[str, Any], named: Mapping[str, str | None] = MappingProxyType({})
) -> str:
    """What is said of a directory on that file system, whose device is built on these. `named`: device -> transport"""
    lsblk = json.dumps({"blockdevices": [{"kname": "dm-0", "type": "lvm", "children": list(devices)}]})
    lowest = [each["kname"] for each in devices] or ["dm-0"]
    paths = [f"/sys/class/block/{name}/queue/write_cache" for name in lowest]
    machine = FakeMachine(
        answers={
            (*mounts.READ, "/vm"): only(system, source),
            (*disk.LSBLK, source): lsblk,
            (*GREP, "", *paths): "",
            **{
                (*disk.ITSELF, device): json.dumps({"blockdevices": [{"type": "disk", "tran": transport}]})
                for device, transport in named.items()
            },
        }
    )
    return network_storage(disk.disk_facts(machine, "/vm", tuple(named)))


@pytest.mark.parametrize(
    ("system", "source", "kind"),
    [
        ("nfs4", "nas:/export/vm", "NFS"),
        ("nfs", "[fd00::9]:/export", "NFS"),
        ("cifs", "//nas/vm", "SMB"),
        ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/", "CephFS"),
        ("fuse.glusterfs", "gl1:vol", "GlusterFS"),
        ("tmpfs", "tmpfs", ""),
        ("overlay", "overlay", ""),
        ("fuse.mergerfs", "a:b", ""),
    ],
)
def test_by_the_file_system(system: str, source: str, kind: str) -> None:
    assert on(system, source) == kind


@pytest.mark.parametrize(
    ("devices", "kind"),
    [
        ([{"kname": "sdb", "type": "disk", "tran": "iscsi"}], "iSCSI"),
        (
            [{"kname": "sdb", "type": "disk", "tran": "fc"}, {"kname": "sdc", "type": "disk", "tran": "fc"}],
            "Fibre Channel",
        ),
        ([{"kname": "rbd0", "type": "disk"}], "Ceph RBD"),
        ([{"kname": "nbd15", "type": "disk", "tran": None}], "NBD"),
        ([{"kname": "drbd1001", "type": "disk"}], "DRBD"),
        ([{"kname": "etherd!e1.0", "type": "disk"}], "ATA over Ethernet"),
        ([{"kname": "nvme0n1", "type": "disk", "tran": "nvme"}], ""),
        ([{"kname": "sda", "type": "disk", "tran": "sata"}], ""),
        ([{"kname": "vda", "type": "disk", "tran": "virtio"}], ""),
        ([{"kname": "sda", "type": "disk", "tran": "sas"}, {"kname": "sdb", "type": "disk", "tran": "iscsi"}], "iSCSI"),
    ],
)
def test_by_the_disks_below(devices: list[dict[str, Any]], kind: str) -> None:
    assert on("ext4", "/dev/dm-0", *devices) == kind


@pytest.mark.parametrize(
    ("device", "transport", "kind"),
    [
        ("/dev/disk/by-id/scsi-36001405", "iscsi", "iSCSI"),
        ("/dev/rbd0", None, "Ceph RBD"),
        ("/dev/disk/by-id/nvme-X", "nvme", ""),
        ("/dev/sdb", None, ""),
    ],
)
def test_by_a_device_that_the_user_names(device: str, transport: str | None, kind: str) -> None:
    assert on("ext4", "/dev/dm-0", named={device: transport}) == kind
