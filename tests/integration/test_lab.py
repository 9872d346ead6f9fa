"""One lab, through its whole life; everything it says it has is tried."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.integration.conftest import HANGS, leftovers, under_way
from vmtax.design.disk import DiskSettings
from vmtax.doctor.host_parts import NO_GROUP, NO_POOL, WAIT_FOR
from vmtax.hypervisor import Drive, Qemu
from vmtax.image.cache import Image
from vmtax.image.packs import Pack
from vmtax.lab.home import Lab, Up, lab
from vmtax.machine import Machine
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import parse
from vmtax.recommend import export_disk
from vmtax.storage import Backing, StorageError, Target
from vmtax.storage.features import features
from vmtax.storage.undo import ANY_DEVICE
from vmtax.store import Store
from vmtax.testbed.host import disks, hosts
from vmtax.testbed.host.disks import Disks

pytestmark = pytest.mark.machines

NAME = "test"
HOST = f"lab:{NAME}"
SPARES = tuple(f"/dev/disk/by-id/virtio-vmtax-spare{number}" for number in range(1, 5))
WRITTEN = ("bs=1M", "count=32", "oflag=direct", "conv=fsync,notrunc", "status=none")
SMALL = """\
name: small
layers: [host, vm]
guest: {vcpus: 1, memory: 512MiB}
workloads: [{disk: {patterns: [randread-4k-qd1, randwrite-4k-fsync], size: 32MiB, seconds: 1}}]
rounds: {min: 1, max: 1}
"""


@pytest.fixture(scope="module")
def home(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this module's labs and results are."""
    path = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(path / kind.lower()))
        yield path


@pytest.fixture(scope="module")
def one(home: Path, zfs_pack: Pack) -> Iterator[Lab]:
    """A lab that is up."""
    found = lab(NAME)
    vmtax("lab", "start", NAME, "--memory", "2560MiB", "--spares", "4", "--spare-size", "1GiB")
    yield found
    up = found.up()
    if up is not None:
        vmtax("lab", "stop", NAME)
        assert leftovers(up.token) == []
    vmtax("lab", "remove", NAME, "--yes")
    assert not found.directory.exists()


@pytest.fixture
def empty(one: Lab) -> tuple[str, ...]:
    """The spare disks, whatever was on them."""
    inside(
        "udevadm settle; for disk in /dev/vd[c-f]; do wipefs -q -a -f $(ls $disk* | sort -r); "
        "blkdiscard -f -z $disk; udevadm settle; "
        # udev may be looking at a partition just then, which keeps it.
        "for _ in 1 2 3 4 5; do blockdev --rereadpt $disk && break; sleep 0.5; done; done; udevadm settle"
    )
    return SPARES


def vmtax(*argv: str, codes: tuple[int, ...] = (0,)) -> str:
    """Standard output of one command that must end so."""
    done = subprocess.run([sys.executable, "-m", "vmtax", *argv], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


def inside(*argv: str) -> str:
    return vmtax("lab", "ssh", NAME, "--", *argv)


def running(one: Lab) -> Up:
    up = one.up()
    assert up is not None
    return up


def test_everything_a_lab_has_works(one: Lab) -> None:
    for _ in range(2):  # one guest in many is lost to the emulation of nested paging
        found = json.loads(vmtax("doctor", "--host", HOST, "--try", "--yes", "--json", codes=(0, 1)))
        tried = {check["name"]: check for check in found["data"]["checks"] if check["area"] == "tried"}
        bad = {name: check for name, check in tried.items() if check["status"] != "ok" and name != "cold caches"}
        if not bad:
            break
    assert bad == {} and {"guest on KVM", "LVM", "md", "ZFS", "btrfs", "vhost-net", "SR-IOV"} <= tried.keys()
    assert running(one).peer_namespace and "reached 10.78.0.1 from a guest" in tried["SR-IOV"]["text"]
    assert inside("ip netns; losetup; vgs; zpool list -H; cat /sys/class/net/eth2/device/sriov_numvfs").split() == ["0"]


def test_volumes_that_are_made_as_exported_can_do_what_they_should(one: Lab) -> None:
    """The exported commands as they stand, names that are to be put in and all, on the lab's two spare disks."""
    with contextlib.closing(LocalMachine()) as local, contextlib.closing(hosts.connect(local, HOST, "host")) as host:
        host.undo_later(*NO_GROUP, "VG")
        host.run("vgcreate", "-q", "VG", SPARES[0])
        host.run("lvcreate", "-q", "-y", "-L", "400M", "--thinpool", "THINPOOL", "VG")
        host.undo_later(*NO_POOL, "POOL")
        host.run("zpool", "create", "-o", "cachefile=none", "POOL", SPARES[1])
        assert able(host, {"disk.volume": "lvm", "disk.filesystem": "none"}) == "durable pause-on-full migration"
        host.run("lvremove", "-q", "-y", "VG/vm1")
        assert able(host, {"disk.volume": "lvm-thin", "disk.filesystem": "none"}) == "durable thin migration"
        host.run("lvremove", "-q", "-y", "VG/vm1")
        zvol = {"disk.volume": "zvol", "disk.filesystem": "none", "zfs.volblocksize": "16KiB", "zfs.compression": "lz4"}
        assert able(host, zvol) == "durable pause-on-full migration"
        host.run("zfs", "destroy", "POOL/vm1")
        qcow2 = {"disk.format": "qcow2", "disk.preallocation": "metadata", "disk.cache": "writeback"}
        dataset = {"disk.volume": "dataset", "zfs.recordsize": "64KiB", **qcow2, "disk.aio": "threads"}
        assert able(host, dataset) == "durable savevm snapshots file thin migration"
        host.run("zfs", "set", "sync=disabled", "POOL/vm1")
        assert able(host, dataset, made=True) == "savevm snapshots file thin migration", "it is seen below the file"
    assert inside("vgs; zpool list -H; ls /var/tmp").strip() == ""


def able(host: Machine, levels: dict[str, str], *, made: bool = False) -> str:
    """Make what the disk is kept in, and find out what it can do; names of features."""
    levels = {"disk.preallocation": "off", **levels}
    found = export_disk(levels, size=64 * 2**20)
    for argv in () if made else found.backing:
        host.run(*argv, *(("--yes",) if argv[0] == "lvcreate" else ()))
    if found.path.startswith("/dev/"):
        host.run(*WAIT_FOR, found.path)
    settings = DiskSettings.of(levels)
    backing, drive = Backing(PurePosixPath(found.path), settings), Drive(found.path, settings)
    each = features(host, Qemu.probe(host), backing, drive, PurePosixPath("/var/tmp"))
    return " ".join(feature.name for feature in each if feature.state == "yes")


VOLUMES = """\
name: volumes
layers: [vm]
combinations:
  - {disk.volume: [lvm-thin], disk.filesystem: [none]}
  - {disk.volume: [zvol], disk.filesystem: [ext4], disk.format: [qcow2]}
  - {disk.volume: [dataset]}
workloads: [{disk: {patterns: [randread-4k-qd1], size: 32MiB, seconds: 1}}]
"""
RAIDZ1 = """\
name: raidz1
layers: [vm]
combinations:
  - {disk.volume: [raidz1-dataset]}
  - {disk.volume: [raidz1-zvol, lvm], disk.filesystem: [none]}
workloads: [{disk: {patterns: [randread-4k-qd1], size: 32MiB, seconds: 1}}]
"""
FRESH = 8 * 2**20


@contextlib.contextmanager
def provisioning() -> Iterator[tuple[Machine, Callable[..., Disks]]]:
    """The lab, and what makes disks there as a plan says, opened by its QEMU and filled; all is undone at exit."""
    with contextlib.closing(LocalMachine()) as local, contextlib.closing(hosts.connect(local, HOST, "host")) as host:
        ours = PurePosixPath(f"/var/tmp/vmtax-{local.token}-disk")
        host.remove_later(ours)
        host.run("mkdir", str(ours))

        def make(plan: str, target: Target, size: int = 32 * 2**20) -> Disks:
            wanted = parse(plan).treatments()[0]
            mark, qemu_img = f"vmtax-{local.token[:8]}", ("qemu-img",)
            made = disks.provision(
                host, target, ours, mark, qemu_img, disks.DiskOrder(wanted, size, FRESH), lambda event: None
            )
            assert disks.why_not(made, wanted, Qemu.probe(host)) == {}
            for treatment in wanted:
                host.run("dd", "if=/dev/urandom", f"of={made.of(treatment).path}", *WRITTEN)
                fresh = made.fresh(treatment)
                assert fresh is not None
                fresh.remove()
            return made

        yield host, make
    assert host.left == []


def test_disks_in_a_group_and_a_pool_of_the_user_s_leave_all_else_there_alone(empty: tuple[str, ...]) -> None:
    with contextlib.closing(LocalMachine()) as local, contextlib.closing(hosts.connect(local, HOST, "host")) as host:
        host.undo_later(*NO_GROUP, "VG")
        host.run("vgcreate", "-q", "VG", empty[0])
        host.run("lvcreate", "-q", "-y", "-L", "4M", "-n", "theirs", "VG")
        host.undo_later(*NO_POOL, "POOL")
        host.run("zpool", "create", "-f", "-o", "cachefile=none", "POOL", empty[1])
        host.run("zfs", "create", "POOL/theirs")
        with provisioning() as (_, make):
            make(VOLUMES, Target(group="VG", pool="POOL/theirs"))
            assert "POOL/theirs/vmtax-" in inside("zfs list -H")
        with provisioning() as (_, make):
            with pytest.raises(StorageError, match=r"no volume group VH; `vgs` lists"):
                make(VOLUMES, Target(group="VH"))
            with pytest.raises(StorageError, match=r"pool POOL has 0\.[89] GiB free, \d\.\d GiB are needed"):
                make(VOLUMES.replace("32MiB", "512MiB"), Target(pool="POOL"), size=2**29)
            for spare, words in ((empty[0], r"in use by /dev/mapper/VG-theirs \(lvm\)"), (empty[1], "resource busy")):
                with pytest.raises(StorageError, match=words):
                    make(VOLUMES, Target(devices=(spare,), erase=frozenset({spare})))
            inside("vgchange -q -an VG; zpool export POOL")
            try:
                for spare, words in ((empty[0], "LVM2_member.*pvremove"), (empty[1], "zfs_member.*zpool labelclear")):
                    with pytest.raises(StorageError, match=words):
                        make(VOLUMES, Target(devices=(spare,), erase=frozenset({spare})))
            finally:
                inside("vgchange -q -ay VG; zpool import -d /dev POOL")
        left = inside("lvs -a --noheadings -o lv_name; zfs list -H -o name").split()
        assert left == ["theirs", "POOL", "POOL/theirs"]


def test_disks_on_four_devices(empty: tuple[str, ...]) -> None:
    """On a host whose LVM sees only the devices of a list: ours are seen all the same, and not put on it."""
    only_listed = "echo 'devices { use_devicesfile = 1 }' > /etc/lvm/lvmlocal.conf; : > /etc/lvm/devices/system.devices"
    with provisioning() as (host, make):
        host.remove_later(PurePosixPath("/etc/lvm/lvmlocal.conf"))
        host.remove_later(PurePosixPath("/etc/lvm/devices"))
        host.run("sh", "-c", f"mkdir -p /etc/lvm/devices; {only_listed}")
        made = make(RAIDZ1, Target(devices=empty))
        assert host.run("vgs") + host.run("cat", "/etc/lvm/devices/system.devices") == ""
        assert [disk.is_device for disk in made.made.values()] == [False, True, True]
        assert "raidz1-0" in host.run("zpool", "status") and "vdc1" in host.run("pvs", *ANY_DEVICE)
    left = "vgs; zpool list -H; wipefs -n /dev/vd[c-f]; lsblk -n /dev/vd[c-f] | grep part; ls /var/tmp; true"
    assert inside(left).strip() == ""


def test_a_power_cut_takes_what_was_not_flushed_and_nothing_else(one: Lab) -> None:
    up = running(one)
    inside("echo flushed > /root/durable; sync /root/durable; echo dirty > /root/lost")
    vmtax("lab", "cut", NAME)
    assert one.up() is None and leftovers(up.token) == []
    vmtax("lab", "start", NAME)
    assert inside("cat /root/durable").strip() == "flushed"
    assert inside("cat /root/lost || true").strip() != "dirty"


def test_a_saved_lab_begins_where_it_was(one: Lab) -> None:
    inside("echo in memory > /dev/shm/kept; echo on disk > /root/kept")
    vmtax("lab", "save", NAME)
    assert inside("cat /dev/shm/kept").strip() == "in memory", "the saved one goes on"
    other = lab("other")
    try:
        vmtax("lab", "start", "other", "--from", NAME)
        assert running(other).restored
        began = time.time()
        words = vmtax("lab", "ssh", "other", "--", "cat /dev/shm/kept /root/kept; date +%s")
        assert words.splitlines()[:2] == ["in memory", "on disk"]
        assert began - 2 < int(words.splitlines()[2]) < time.time() + 2, "its clock was set"
        assert running(one).port != running(other).port, "two labs at once"
    finally:
        vmtax("lab", "stop", "other")
        vmtax("lab", "remove", "other", "--yes")


def test_a_lab_that_dies_under_a_run_ends_the_run_with_that_as_its_reason(
    one: Lab, home: Path, empty: tuple[str, ...]
) -> None:
    # A group and a volume on a partition outlive the lab: they are undone at its next start, and made anew.
    (home / "p.yaml").write_text(SMALL + "factors: {disk.volume: [lvm], disk.filesystem: [none]}\n")
    up = running(one)
    command = ("run", "p.yaml", "--host", HOST, "--yes", "--emulate", "--disk-device", empty[0])
    with under_way(*command, directory=home, trials=1) as (process, token):
        os.kill(up.pid, signal.SIGKILL)
        assert process.wait(HANGS) == 1
        assert process.stderr is not None
        words = process.stderr.read()
    assert f"host: the connection is gone: lab {NAME} is off" in words and "vmtax run --resume" in words
    assert leftovers(token) == [] and one.up() is None
    vmtax("lab", "start", NAME)
    assert "vmtax-" in inside("vgs")
    vmtax("run", "--resume", "--yes", "--emulate", "-o", str(home / "r.html"))
    with Store() as store:
        found = store.load()
    assert found.state == "complete"
    assert "emulated" in (home / "r.html").read_text()
    assert inside("ls /var/tmp; vgs; lsblk -n /dev/vdc | grep part; true").strip() == "", "the rest is gone"
