"""A guest's disk on the disk of its host: how it lies there, how it is put together and comes apart again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from unittest.mock import MagicMock, call

import pytest

from tests.fake_machine import FakeMachine
from tests.unit.test_power_cut import FLUSH, SIZE, WRITE, block, log_of
from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings
from vmtax.lab.home import Lab
from vmtax.lab.write_logs import SpareLog
from vmtax.machine import MachineError
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import parse
from vmtax.storage import Backing, Target, power_cuts
from vmtax.storage.copies import Copies
from vmtax.testbed.session.base import HostDisk, HostDisks
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.storage import host_disk
from vmtax.testbed.storage.host_disk import (
    PARTITION,
    SERIAL,
    LoggedDisks,
    find_logged,
    more_seconds,
    refuse_unlike,
    stack_of,
)
from vmtax.workload.durability import Durability, DurabilityParameters, stacks
from vmtax.workload.durability.guest import arguments
from vmtax.workload.durability.stacks import Broken, Stack, assembled

SPARE = SpareLog("vmtax-spare1", Path("/labs/a/spare1.raw"), Path(__file__), 2**30)
SECOND = SpareLog("vmtax-spare2", Path("/labs/a/spare2.raw"), Path(__file__), 2**30)
DEVICE = "/dev/vdb"
LVM = Stack("lvm", "vmtax-1/disk1", "none")
XFS = Stack("lvm", "vmtax-1/disk1", "xfs", "disk1.qcow2", "qcow2")
DATASET = Stack("dataset", "pool/disk1", "zfs", "disk1.raw")


# How it lies there.


@pytest.mark.parametrize(
    ("levels", "lies_on", "path", "found"),
    [
        (
            {"volume": "plain", "filesystem": "xfs", "format": "qcow2"},
            "/dev/vdc3",
            "/d/mount/fresh1.qcow2",
            Stack("partition", "3", "xfs", "fresh1.qcow2", "qcow2"),
        ),
        (
            {"volume": "lvm", "filesystem": "none"},
            "/dev/vmtax-1/disk1",
            "/dev/vmtax-1/disk1",
            Stack("lvm", "vmtax-1/disk1", "none"),
        ),
        (
            {"volume": "lvm-thin", "filesystem": "ext4"},
            "/dev/vmtax-1/disk1",
            "/d/mount/disk1.raw",
            Stack("lvm", "vmtax-1/disk1", "ext4", "disk1.raw"),
        ),
        (
            {"volume": "zvol", "filesystem": "none"},
            "/dev/zvol/vmtax-1-zfs/disk1",
            "/dev/zvol/vmtax-1-zfs/disk1",
            Stack("zvol", "vmtax-1-zfs/disk1", "none"),
        ),
        (
            {"volume": "raidz1-zvol", "filesystem": "none"},
            "/dev/zvol/vmtax-1-raidz/disk1",
            "/dev/zvol/vmtax-1-raidz/disk1",
            Stack("zvol", "vmtax-1-raidz/disk1", "none"),
        ),
        (
            {"volume": "dataset", "filesystem": "as-is"},
            "vmtax-1-zfs/disk1",
            "/d/mount/disk1.raw",
            Stack("dataset", "vmtax-1-zfs/disk1", "zfs", "disk1.raw"),
        ),
    ],
)
def test_how_a_disk_lies_on_its_hosts(levels: dict[str, str], lies_on: str, path: str, found: Stack) -> None:
    settings = DiskSettings.of({f"disk.{name}": level for name, level in levels.items()})
    host = FakeMachine(answers={(*PARTITION, "/dev/vdc3"): "3\n"})
    disk = Backing(PurePosixPath(path), settings, 2**26, path.startswith("/dev/"), lies_on)
    assert stack_of(host, disk) == found


def test_the_stack_reaches_the_program_in_the_guest() -> None:
    argv = Durability(DurabilityParameters()).checking(DEVICE, "/mnt", "", XFS, ["/dev/vdc", "/dev/vdd"])
    given = arguments(argv[argv.index("verify") :])
    assert given.stack == XFS and given.device == DEVICE and "control" in given.names
    assert given.beside == ["/dev/vdc", "/dev/vdd"]


# Which disk of which lab.


@pytest.fixture
def spares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_disk, "spare_logs", lambda one: [SPARE, SECOND])


def machine(**serials: str) -> FakeMachine:
    """Its disks with their serial numbers."""
    return FakeMachine(answers={(*SERIAL, f"/dev/{name}"): serial for name, serial in serials.items()})


@pytest.mark.usefixtures("spares")
def test_the_states_of_a_pool_take_longer_than_those_of_a_volume() -> None:
    text = "name: d\nlayers: [vm]\nworkloads: [durability: {states: 10}]\ncombinations: [%s]"

    def seconds(combination: str, *, emulated: bool = True) -> float:
        host, target = machine(vdc="vmtax-spare1"), Target(devices=("/dev/vdc",))
        return more_seconds(Lab("blue"), host, target, parse(text % combination), emulated=emulated)

    volume = seconds("{disk.volume: [lvm], disk.filesystem: [none]}")
    whole = seconds("{disk.filesystem: [xfs]}")
    pool = seconds("{disk.volume: [zvol], disk.filesystem: [none]}")
    assert 0 < seconds("{disk.volume: [lvm], disk.filesystem: [none]}", emulated=False) < volume < whole < pool
    assert seconds("{disk.cache: [none]}") == 0, "a file in a directory does not lie on it"


@pytest.mark.usefixtures("spares")
def test_the_logged_disk_is_the_one_that_is_named() -> None:
    host = machine(vdc="vmtax-spare1\n", vdd="other\n")
    found = find_logged(Lab("blue"), host, Target(devices=("/dev/vdc",)))
    assert found is not None and found.spares == (SPARE,)
    assert find_logged(Lab("blue"), host, Target(devices=("/dev/vdd",))) is None
    assert find_logged(Lab("blue"), host, Target()) is None, "files in a directory lie on another disk"
    assert find_logged(None, host, Target(devices=("/dev/vdc",))) is None
    both = find_logged(
        Lab("blue"), machine(vdc="vmtax-spare1", vdd="vmtax-spare2"), Target(devices=("/dev/vdd", "/dev/vdc"))
    )
    assert both is not None and both.spares == (SECOND, SPARE), "in the order in which they are named"
    with pytest.raises(CannotMeasure, match="the lab logs no writes to /dev/vdd, and it logs those to other"):
        find_logged(Lab("blue"), host, Target(devices=("/dev/vdc", "/dev/vdd")))


def test_a_log_that_is_gone_is_no_reason_to_look_at_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = SpareLog("vmtax-spare1", tmp_path / "spare1.raw", tmp_path / "spare1.writes", 2**30)
    monkeypatch.setattr(host_disk, "spare_logs", lambda one: [gone])
    with pytest.raises(CannotMeasure, match=r"spare1\.writes is gone, the log of /dev/vdc: start lab blue again"):
        find_logged(Lab("blue"), machine(vdc="vmtax-spare1"), Target(devices=("/dev/vdc",)))


def test_a_lab_without_logs_is_a_host_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_disk, "spare_logs", lambda one: [])
    assert find_logged(Lab("blue"), FakeMachine(), Target(devices=("/dev/vdc", "/dev/vdd"))) is None


def test_which_treatments_have_their_disk_on_it() -> None:
    def treatment(layer: str, **levels: str) -> Treatment:
        return Treatment("", layer, {f"disk.{name}": level for name, level in levels.items()})

    lvm, zvol = (treatment("vm", volume=volume, filesystem="none") for volume in ("lvm", "zvol"))
    raidz = treatment("vm", volume="raidz1-zvol", filesystem="none")
    four = (SPARE, SECOND, SPARE, SECOND)
    ours, mixed = LoggedDisks(four, Target()), LoggedDisks(four, Target(group="vg0", pool="tank"))
    assert ours.of(lvm) == ours.of(zvol) == (SPARE,), "the first carries all that goes over one"
    assert mixed.of(lvm) == mixed.of(zvol) == (), "the user's group and pool may be anywhere"
    assert ours.of(raidz) == mixed.of(raidz) == four, "which is always made for the run"
    assert ours.of(treatment("vm")) == (), "a file in a directory"
    assert ours.of(treatment("nested", volume="lvm", filesystem="none")) == ()
    assert ours.of(treatment("vm", filesystem="xfs")) == (SPARE,)


@pytest.mark.usefixtures("spares")
def test_a_run_says_what_of_it_takes_the_whole_host() -> None:
    lvm = Treatment("", "vm", {"disk.volume": "lvm", "disk.filesystem": "none"})
    found = find_logged(Lab("blue"), machine(vdc="vmtax-spare1"), Target(devices=("/dev/vdc",)))
    (said,) = host_disk.notes(Lab("blue"), found, [lvm, Treatment("", "vm", {})])
    assert said.startswith("Durability: of 2 configurations 1 has its disk on /dev/vdc, all writes")
    four = LoggedDisks((SPARE, SECOND, SPARE, SECOND), Target(devices=("/dev/vdc", "/dev/vdd", "/dev/vde", "/dev/vdf")))
    raidz = Treatment("", "vm", {"disk.volume": "raidz1-zvol", "disk.filesystem": "none"})
    (said,) = host_disk.notes(Lab("blue"), four, [lvm, raidz, raidz])
    assert "1 has its disk on /dev/vdc and 2 have their disks on /dev/vdc, /dev/vdd, /dev/vde, /dev/vdf, all" in said
    (said,) = host_disk.notes(Lab("blue"), None, [lvm])
    assert said.endswith("--disk-device /dev/disk/by-id/virtio-vmtax-spare1.")
    assert host_disk.notes(None, None, [lvm]) == []


@pytest.mark.usefixtures("spares")
def test_what_lies_on_zfs_takes_zfs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtax.image.cache.current", lambda: MagicMock())
    monkeypatch.setattr("vmtax.image.zfs.current", lambda image: None)
    host, target = machine(vdc="vmtax-spare1"), Target(devices=("/dev/vdc",))

    def on(volume: str) -> list[Treatment]:
        return [Treatment("", "vm", {"disk.volume": volume, "disk.filesystem": "none"})]

    host_disk.refuse(Lab("blue"), host, on("lvm"), target)
    with pytest.raises(CannotMeasure, match="vmtax image zfs"):
        host_disk.refuse(Lab("blue"), host, on("zvol"), target)


def test_every_disk_is_copied_three_times(tmp_path: Path) -> None:
    disk = tmp_path / "spare1.raw"
    disk.write_bytes(bytes(2**20))
    taken = disk.stat().st_blocks * 512
    spare, small = (SpareLog("vmtax-spare1", disk, disk, size) for size in (2**30, 2**10))
    assert LoggedDisks((spare,) * 4, Target()).room(2**26) == 4 * 3 * (taken + 2**26)
    assert LoggedDisks((spare, small), Target()).room(2**26) == 3 * (taken + 2**26) + 3 * 2**10


# Put together and apart.


class Tools:
    """Programs that are only written down; those in `failing` fail, as often as said."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.failing: dict[str, int] = {}

    def run(self, argv: tuple[str, ...], **how: object) -> subprocess.CompletedProcess[str]:
        words = " ".join(word for word in argv if word not in stacks.LVM)
        self.ran.append(words)
        for name, left in self.failing.items():
            if words.startswith(name) and left:
                self.failing[name] = left - 1
                return subprocess.CompletedProcess(argv, 1, f"\n{name}: it failed\nand more\n")
        if "convert" in argv:
            Path(argv[-1]).touch()
        return subprocess.CompletedProcess(argv, 0, "")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Tools]:
    found = Tools()
    monkeypatch.setattr(subprocess, "run", found.run)
    monkeypatch.setattr(stacks, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(stacks, "APART_SECONDS", 1.0)
    monkeypatch.setattr(stacks, "CONVERTED", str(tmp_path / "converted.raw"))
    for name in ("disk1.raw", "disk1.qcow2"):
        (tmp_path / name).touch()
    yield found


def test_a_volume_is_activated_and_goes(tools: Tools) -> None:
    with assembled(LVM, [DEVICE], "/mnt.host") as disk:
        assert disk.path == "/dev/vmtax-1/disk1"
        assert tools.ran == ["lvchange -ay vmtax-1/disk1"]
    assert tools.ran[1:] == ["lvchange -an vmtax-1/disk1"]
    with assembled(Stack("partition", "2", "none"), [DEVICE], "/mnt.host") as disk:
        assert disk.path == "/dev/vdb2"


def test_a_pool_is_imported_by_force_and_its_dataset_mounted(tools: Tools, tmp_path: Path) -> None:
    with assembled(DATASET, [DEVICE], str(tmp_path)) as disk:
        assert disk.path == str(tmp_path / "disk1.raw") and disk.image == ""
    imported, mounted, *rest = tools.ran
    assert imported == "zpool import -N -f -o cachefile=none pool"
    assert mounted == f"mount -t zfs -o zfsutil pool/disk1 {tmp_path}"
    assert rest == [f"umount {tmp_path}", "zpool export pool"]


def test_an_image_is_checked_and_read_before_its_file_system_is_checked(tools: Tools, tmp_path: Path) -> None:
    tools.failing["qemu-img check"] = 1
    with assembled(XFS, [DEVICE], str(tmp_path)) as disk:
        assert disk.path == stacks.CONVERTED and Path(disk.path).exists()
        assert disk.image == "qemu-img check: it failed"
    assert not os.path.lexists(stacks.CONVERTED)
    assert tools.ran[-3:] == [f"umount {tmp_path}", "xfs_repair -n /dev/vmtax-1/disk1", "lvchange -an vmtax-1/disk1"]
    assert disk.damage == ""
    tools.failing["xfs_repair"] = 1
    with assembled(XFS, [DEVICE], str(tmp_path)) as disk:
        pass
    assert disk.damage == "the host's file system: xfs_repair ended with 1: and more"


@pytest.mark.parametrize(
    ("failing", "stack", "words", "is_image"),
    [
        ("lvchange", LVM, "LVM: lvchange: it failed", False),
        ("zpool", DATASET, "ZFS: zpool: it failed", False),
        ("mount", DATASET, "the host's file system: mount: it failed", False),
        ("qemu-img convert", XFS, "qemu-img convert: it failed", True),
    ],
)
def test_what_cannot_be_put_together_is_lost_and_what_there_is_comes_apart(
    tools: Tools, tmp_path: Path, failing: str, stack: Stack, words: str, is_image: bool
) -> None:
    tools.failing[failing] = 1
    with pytest.raises(Broken) as failure, assembled(stack, [DEVICE], str(tmp_path)):
        raise AssertionError("it is not there")
    assert str(failure.value) == words and failure.value.is_image == is_image
    up = [word for word in tools.ran if word.startswith(("lvchange -ay", "zpool import", "mount"))]
    down = [word for word in tools.ran if word.startswith(("lvchange -an", "zpool export", "umount"))]
    assert len(down) == len(up) - (failing in ("zpool", "mount"))


def test_an_image_that_is_gone_is_lost(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "disk1.raw").unlink()
    with pytest.raises(Broken, match=r"disk1\.raw is not there"), assembled(DATASET, [DEVICE], str(tmp_path)):
        pass
    assert tools.ran[-1] == "zpool export pool"


def test_what_stays_in_use_is_tried_again_and_then_no_state_at_all(tools: Tools) -> None:
    tools.failing["lvchange -an"] = 3
    with assembled(LVM, [DEVICE], "/mnt.host"):
        pass
    assert tools.ran.count("lvchange -an vmtax-1/disk1") == 4
    tools.failing["lvchange -an"] = 10**9
    words = "does not come apart: lvchange -an: it failed"
    with pytest.raises(RuntimeError, match=words), assembled(LVM, [DEVICE], "/mnt.host"):
        pass


def test_a_program_that_is_missing_says_nothing_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", MagicMock(side_effect=FileNotFoundError(2, "No such file")))
    with pytest.raises(RuntimeError, match="lvchange: No such file"), assembled(LVM, [DEVICE], "/mnt.host"):
        pass


def test_an_image_is_repaired_only_where_qemu_would(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for repairs, dirty in ((False, True), (True, False), (True, True)):
        tools.ran.clear()

        def run(argv: tuple[str, ...], dirty: bool = dirty, **how: object) -> subprocess.CompletedProcess[str]:
            done = tools.run(argv)
            done.stdout = json.dumps({"dirty-flag": dirty})
            return done

        monkeypatch.setattr(subprocess, "run", run)
        with assembled(XFS._replace(repairs=repairs), [DEVICE], str(tmp_path)):
            pass
        assert any("-r all" in words for words in tools.ran) == (repairs and dirty)


# Before the guest writes.


def test_what_was_made_is_on_the_disk_before_it_is_copied_while_nobody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power_cuts, "STILL_SECONDS", 0.005)
    logs = [tmp_path / "log1", tmp_path / "log2"]
    spares = [SpareLog(f"vmtax-{log.stem}", log.with_suffix(".raw"), log, 2**30) for log in logs]
    host = FakeMachine(answers={("sync",): "", ("zpool", "sync", "vmtax-1-zfs"): ""})

    def copies(log: Path) -> MagicMock:
        found = MagicMock()
        found.begin_with.side_effect = lambda disk: log.write_bytes(b"1234567")
        return found

    for volume, lies_on, number in (("zvol", "/dev/zvol/vmtax-1-zfs/disk1", 2), ("lvm", "/dev/vmtax-1/disk1", 1)):
        for log in logs:
            log.write_bytes(b"12345")
        settings = DiskSettings.of({"disk.volume": volume, "disk.filesystem": "none"})
        disk = Backing(PurePosixPath(lies_on), settings, 2**26, True, lies_on)
        each = [copies(log) for log in logs[:number]]
        kept = host_disk.keep(host, spares[:number], disk, each)
        assert [one.since for one in kept.disks] == [7] * number
        assert kept.logs == logs[:number]
        for one, spare in zip(each, spares, strict=False):
            assert one.begin_with.call_args_list == [call(spare.disk)] * 2, "the first time something was written"
    assert host.calls == [("sync",), ("zpool", "sync", "vmtax-1-zfs"), ("sync",)]


def test_a_disk_that_is_written_to_all_the_time_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_cuts, "STILL_SECONDS", 0.005)
    log = tmp_path / "log"
    log.write_bytes(b"")
    spare, copies = SpareLog("vmtax-spare1", tmp_path / "disk", log, 2**30), MagicMock()

    def write(disk: Path) -> None:
        log.write_bytes(log.read_bytes() + b"1")

    copies.begin_with.side_effect = write
    disk = Backing(PurePosixPath("/dev/g/d"), DiskSettings.of({"disk.volume": "lvm"}), 2**26, True, "/dev/g/d")
    host = FakeMachine(answers={("sync",): ""})
    with pytest.raises(MachineError, match="it wrote to its disks all the time, so they were not copied as they are"):
        host_disk.keep(host, [spare], disk, [copies])


def test_a_pool_is_looked_for_on_all_disks_that_are_there(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "partitions_of", lambda device: [f"{device}1", f"{device}2"])
    with assembled(DATASET._replace(filesystem="none"), ["/dev/vdb", "/dev/vdc"], "/mnt.host"):
        pass
    where = "-d /dev/vdb1 -d /dev/vdb2 -d /dev/vdc1 -d /dev/vdc2"
    assert tools.ran[0] == f"zpool import -N -f -o cachefile=none {where} pool"


def test_a_disk_that_is_not_what_its_log_says_is_an_error(tmp_path: Path) -> None:
    local = LocalMachine()
    first = [(WRITE, 0, block("a")), (FLUSH, 0, b"")]
    disk, log = tmp_path / "disk", tmp_path / "log"
    log.write_bytes(log_of(first))
    disk.write_bytes(block("a") + bytes(SIZE - 4096))
    (tmp_path / "copies").mkdir()
    copies = Copies(local, tmp_path / "copies", (), DiskSettings(), SIZE)
    copies.begin_with(disk)
    below = HostDisks((HostDisk(disk, log, log.stat().st_size, copies),), XFS)
    log.write_bytes(log_of([*first, (WRITE, 8, block("b"))]))
    disk.write_bytes(block("a") + block("b") + bytes(SIZE - 8192))
    try:
        refuse_unlike(below)
        disk.write_bytes(block("a") + block("c") + bytes(SIZE - 8192))
        with pytest.raises(MachineError, match="disk is not what its log and the copy of it say, so nothing counts"):
            refuse_unlike(below)
        assert [path.name for path in copies.directory.iterdir() if path.is_dir()] == []
    finally:
        local.close()
