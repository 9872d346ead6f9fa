"""What a disk under test lies on: how much room, of what, which devices are refused, and what is listed for undoing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import rights, userland
from tests.fake_machine import FakeMachine, Reply
from tests.userland import asks_tools
from vmtax.cli.app import BadUse
from vmtax.cli.asked import DiskOptions
from vmtax.cli.measuring import disk_target
from vmtax.design.disk import DiskSettings
from vmtax.design.factors import BACKING, FACTORS, why_illegal
from vmtax.design.treatments import backing
from vmtax.machine import CommandFailed
from vmtax.machine.local import PYTHON
from vmtax.storage import StorageError, Target
from vmtax.storage.backing import (
    KINDS,
    Provisioner,
    areas,
    describe,
    directory_bytes,
    programs,
    refuse_unused,
    room,
    source_bytes,
)
from vmtax.storage.empty import LOOK, MIB, NUMBERS
from vmtax.storage.ground import CLAIM, HOLDERS, Area, Ground, refuse_used, shares, table, table_bytes
from vmtax.storage.page_cache import HIERARCHY, Bound
from vmtax.storage.undo import WAIT_FOR

SIZE = 64 * MIB


def levels(volume: str = "plain", system: str = "as-is", **disk: str) -> DiskSettings:
    """`disk.` is left out of the names."""
    named = {"disk.volume": volume, "disk.filesystem": system, **{f"disk.{name}": to for name, to in disk.items()}}
    return DiskSettings.of(named)


legal = st.fixed_dictionaries({name: st.sampled_from(FACTORS[name].levels) for name in BACKING}).filter(
    lambda found: why_illegal(found) is None
)


@given(st.lists(legal, min_size=1, max_size=6), st.integers(1, 40), st.integers(0, 20))
def test_every_disk_has_room_in_what_is_cut_for_it(found: list[dict[str, str]], mib: int, spare: int) -> None:
    wanted = [DiskSettings.of(backing(each)) for each in found]
    size = mib * MIB
    cut = {area.name: area for area in areas(wanted, Target(), size, spare * MIB)}
    assert all(area.size % (4 * MIB) == 0 for area in cut.values()), "QEMU opens no disk that ends within a block"
    for name, kinds in KINDS.items():
        rooms = [room(each, size, spare * MIB) for each in wanted if each.volume in kinds]
        assert (name in cut) == bool(rooms)
        if rooms:
            assert cut[name].size * (3 if name == "raidz" else 1) > 1.02 * sum(rooms)
    plain = [area for name, area in cut.items() if name.startswith("plain")]
    takes = [each for each in wanted if each.volume == "plain" and each.filesystem != "as-is"]
    assert len(plain) == len(takes) and all(area.size >= size + spare * MIB for area in plain)


@given(st.lists(st.tuples(st.integers(1, 2**33), st.sampled_from((1, 4))), max_size=6), st.integers(1, 6))
def test_what_each_device_carries(sizes: list[tuple[int, int]], devices: int) -> None:
    wanted = [Area(f"a{number}", size, count) for number, (size, count) in enumerate(sizes)]
    found = shares(wanted, devices)
    if found is None:
        assert devices < 4 and any(area.devices == 4 for area in wanted)
        return
    assert all(sum(area in here for here in found) == area.devices for area in wanted)
    for here in found:
        lines = table("vmtax-1a2b3c4d", here).splitlines()
        assert lines[0] == "label: gpt" and len(lines) == 1 + len(here)
        assert table_bytes(here) >= sum(area.size for area in here) + 2 * MIB


def test_a_group_or_pool_of_the_user_s_takes_the_place_of_one_that_is_made() -> None:
    wanted = [levels("lvm", "none"), levels("zvol", "none"), levels("raidz1-zvol", "none")]
    assert [area.name for area in areas(wanted, Target(), SIZE, 0)] == ["lvm", "zfs", "raidz"]
    assert [area.name for area in areas(wanted, Target(group="vg0", pool="tank"), SIZE, 0)] == ["raidz"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (levels(), "raw file (falloc)"),
        (levels("plain", "none"), "block device"),
        (levels("lvm-thin", "none"), "block device on lvm-thin"),
        (
            levels("zvol", "ext4", format="qcow2", cluster_size="16KiB"),
            "qcow2 file (falloc) cluster_size=16KiB on ext4 on zvol",
        ),
        (levels("raidz1-dataset", preallocation="off"), "raw file (off) on raidz1-dataset"),
    ],
)
def test_what_it_is_called(wanted: DiskSettings, text: str) -> None:
    assert describe(wanted) == text


def test_the_tools_it_takes() -> None:
    def names(*wanted: DiskSettings, cuts: bool = False) -> list[str]:
        return [tool.name for tool in programs(wanted, cuts=cuts)]

    assert names(levels(), levels(format="qcow2")) == []
    assert sorted(names(levels("lvm", "xfs"), cuts=True)) == ["lvcreate", "mkfs.xfs", "sfdisk", "wipefs"]
    assert set(names(levels("raidz1-dataset"))) == {"zpool", "zfs"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(devices=("/dev/sdb",)), "--disk-device /dev/sdb: no disk of this plan would be on it"),
        (Target(group="vg0"), "--disk-group vg0: .* disk.volume \\(lvm, lvm-thin\\)"),
        (Target(pool="tank"), "--disk-pool tank: .* disk.volume \\(zvol, dataset\\)"),
    ],
)
def test_what_is_named_in_vain_is_refused(target: Target, words: str) -> None:
    with pytest.raises(StorageError, match=words):
        refuse_unused("host", [levels()], target)
    refuse_unused("host", [levels("plain", "ext4"), levels("lvm", "none"), levels("dataset")], target)


def test_a_device_beyond_those_that_carry_something_is_named_in_vain() -> None:
    names = tuple(f"/dev/sd{letter}" for letter in "bcdef")
    plain, raidz = [levels("plain", "ext4"), levels("lvm", "none")], [levels("raidz1-zvol", "none")]
    for wanted, used in ((plain, 1), (plain + raidz, 4)):
        refuse_unused("host", wanted, Target(devices=names[:used]))
        with pytest.raises(StorageError, match=f"--disk-device {names[used]}: no disk of this plan .*raidz1-zvol"):
            refuse_unused("host", wanted, Target(devices=names[: used + 1]))


# A device


def lsblk(*rows: Mapping[str, object]) -> str:
    """Each row stands on the one before it."""
    above: list[object] = []
    for row in reversed(rows):
        above = [{**row, "children": above}]
    return json.dumps({"blockdevices": [{"name": "/dev/sdb", "type": "disk", "mountpoint": None, "children": above}]})


def device(
    *rows: Mapping[str, object],
    signatures: str = "",
    of_part: str = "",
    look: Reply | str = "empty\n",
    read_only: bool = False,
    claim: Reply | str = "",
    holders: str = "",
    kind: str = "disk",
) -> FakeMachine:
    described = f'"{kind}", "ro": {str(read_only).lower()}'
    return FakeMachine(
        answers={
            lambda argv: argv[0] == "lsblk": lsblk(*rows).replace('"disk"', described),
            lambda argv: argv[0] == "wipefs" and argv[-1] == "/dev/sdb1": of_part,
            lambda argv: argv[0] == "wipefs": signatures,
            (*LOOK, "/dev/sdb", *NUMBERS): look,
            (*CLAIM, "/dev/sdb"): claim,
            lambda argv: argv[: len(HOLDERS)] == HOLDERS: holders,
        }
    )


PART = {"name": "/dev/sdb1", "type": "part", "mountpoint": None}


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (
            lambda: FakeMachine(
                answers={
                    lambda argv: argv[0] == "lsblk": Reply(stderr="lsblk: /dev/sdb: not a block device\n", code=32),
                    ("test", "-b", "/dev/sdb"): Reply(code=1),
                }
            ),
            r"is no block device \(lsblk: /dev/sdb: not a block device\)",
        ),
        (lambda: device(read_only=True), "/dev/sdb is read-only; name another"),
        (lambda: device(kind="part"), "is no whole device \\(part\\)"),
        (lambda: device({**PART, "mountpoint": "/srv"}), "/dev/sdb1 is mounted, or swap"),
        (lambda: device({**PART, "mountpoint": "[SWAP]"}), "/dev/sdb1 is mounted, or swap"),
        (lambda: device(PART, {"name": "/dev/mapper/vg-lv", "type": "lvm"}), "in use by /dev/mapper/vg-lv \\(lvm\\)"),
        (
            lambda: device(claim=Reply(stderr="Device or resource busy\n", code=1)),
            "cannot be had alone \\(Device or resource busy\\)",
        ),
        (lambda: device(holders="qemu-system-x86 812\n"), "in use: open in qemu-system-x86 812 \\(process id\\)"),
        (lambda: device(signatures="LVM2_member\n"), "part of something \\(LVM2_member\\).*vgreduce, then pvremove"),
        (lambda: device(signatures="linux_raid_member\n"), "mdadm --zero-superblock"),
        (lambda: device(signatures="zfs_member\nzfs_member\n"), "zpool labelclear"),
        (lambda: device(signatures="isw_raid_member\n"), "part of something \\(isw_raid_member\\)"),
        (lambda: device(signatures="bcache\n"), "part of something \\(bcache\\)"),
        (lambda: device(PART, of_part="gpt\nLVM2_member\n"), "part of something \\(LVM2_member\\)"),
    ],
)
def test_a_device_in_use_is_refused_whatever_may_be_lost(machine: Callable[[], FakeMachine], words: str) -> None:
    with pytest.raises(StorageError, match=words) as raised:
        refuse_used(machine(), "/dev/sdb", erase=True)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (lambda: device(signatures="ext4\n"), "holds something \\(ext4\\); --erase /dev/sdb lets it be lost"),
        (lambda: device(signatures="gpt\ngpt\nPMBR\n"), "holds something \\(gpt, PMBR\\)"),
        (lambda: device(PART), "holds something \\(partitions\\)"),
        (lambda: device(look="data 3145728\n"), "unknown kind \\(at byte 3145728, after 3 MiB\\); --erase /dev/sdb"),
        (lambda: device(look="late 900\n"), "too slow to see in 120 s whether it is empty.*--erase /dev/sdb"),
    ],
)
def test_what_a_device_holds_is_lost_only_where_the_user_says_so(
    machine: Callable[[], FakeMachine], words: str
) -> None:
    with pytest.raises(StorageError, match=words):
        refuse_used(machine(), "/dev/sdb", erase=False)
    refuse_used(machine(), "/dev/sdb", erase=True)
    refuse_used(device(), "/dev/sdb", erase=False)


def test_four_devices_that_are_three_are_refused_before_anything_is_written() -> None:
    machine = FakeMachine(
        answers={
            lambda argv: argv[0] == "lsblk": lsblk(),
            lambda argv: argv[0] == PYTHON and any("preadv" in word for word in argv): "empty\n",
            lambda argv: argv[0] in ("wipefs", PYTHON): "",
            lambda argv: argv[0] == "blockdev": str(2**40),
            lambda argv: argv[0] == "realpath": "/dev/sdb\n",
        }
    )
    names = tuple(f"/dev/disk/by-id/{number}" for number in range(4))
    ground = Ground(machine, Target(devices=names), PurePosixPath("/var/tmp/ours"), "vmtax-1a2b3c4d")
    with pytest.raises(StorageError, match="/by-id/1 and /dev/disk/by-id/0 are the same device"):
        ground.lay_out([Area("raidz", 2**30, 4)])
    few = Ground(machine, Target(devices=names[:3]), PurePosixPath("/var/tmp/ours"), "vmtax-1a2b3c4d")
    with pytest.raises(StorageError, match="raidz1 takes 4 devices, and 3 are named"):
        few.lay_out([Area("raidz", 2**30, 4)])
    assert machine.undo_list == []


# What is made, and how it goes when it was half made


def provisioner(answers: Mapping[object, object], target: Target) -> tuple[FakeMachine, Provisioner]:
    usual = {
        ("id", "-u"): "0\n",
        rights.asked: rights.answer(),
        ("cat", "/etc/os-release"): "ID=debian\n",
        asks_tools: userland.programs(),
        lambda argv: argv[: len(WAIT_FOR)] == WAIT_FOR: "",
    }
    machine = FakeMachine(answers={**usual, **answers})
    ground = Ground(machine, target, PurePosixPath("/var/tmp/ours"), "vmtax-1a2b3c4d")
    return machine, Provisioner(ground, ("qemu-img",))


def test_a_group_whose_first_volume_cannot_be_made_is_on_the_list_of_what_goes() -> None:
    answers = {
        lambda argv: argv[0] == "stat": "1000000000 4096",
        lambda argv: argv[0] in ("fallocate", "vgcreate"): "",
        lambda argv: argv[0] == "losetup": "/dev/loop7\n",
        lambda argv: argv[0] == "lvcreate": Reply(stderr="Is device-mapper driver missing from kernel?", code=5),
    }
    machine, made = provisioner(answers, Target())
    wanted = levels("lvm", "none")
    made.prepare([wanted], SIZE, 0)
    with pytest.raises(CommandFailed, match="device-mapper driver missing"):
        made.make(wanted, SIZE)
    machine.close()
    undone = [" ".join(what) for what in machine.undone if isinstance(what, tuple)]
    kinds = [next(word for word in ("lvremove", "vgremove", "losetup") if word in what) for what in undone]
    assert kinds == ["lvremove", "vgremove", "losetup"]


@pytest.mark.parametrize("group", [None, "vg0"])
def test_lvm_is_never_asked_to_monitor_our_volumes(group: str | None) -> None:
    """It would start dmeventd for the whole host, with our mark, and the guard would end that."""
    answers = {
        lambda argv: argv[0] == "stat": "1000000000 4096",
        lambda argv: argv[0] in ("fallocate", "vgcreate", "lvcreate"): "",
        lambda argv: argv[0] == "losetup": "/dev/loop7\n",
        lambda argv: argv[0] == "vgs": "1000000000000\n",
    }
    machine, made = provisioner(answers, Target(group=group))
    for wanted in (levels("lvm", "none"), levels("lvm-thin", "none")):
        made.prepare([wanted], SIZE, 0)
        made.make(wanted, SIZE)
    machine.close()
    changing = [argv for argv in machine.calls if argv[0] in ("vgcreate", "lvcreate")]
    changing += [argv for argv in machine.undone if isinstance(argv, tuple) and "remove" in argv[2]]
    assert len(changing) > 5
    assert all(argv[argv.index("--config") + 1].endswith("activation/monitoring=0") for argv in changing)


def test_room_in_the_directory_is_summed_before_anything_is_made() -> None:
    """The volume fits, the file fits, what the image is filled from fits, the carrier's disk fits; not all at once."""
    wanted = [levels("lvm", "none"), levels(), levels(format="qcow2")]
    (area,) = areas(wanted, Target(), SIZE, 0)
    files = area.size + 2 * SIZE
    for beside, most in ((0, files + SIZE), (SIZE // 2, files + SIZE), (2 * SIZE, files + 2 * SIZE)):
        free = int(most * 1.05) // 4096
        for blocks, fits in ((free + 2, True), (free - 2, False)):
            answers = {
                lambda argv, blocks=blocks: argv[0] == "stat": f"{blocks} 4096",
                lambda argv: argv[0] in ("fallocate", "vgcreate"): "",
                lambda argv: argv[0] == "losetup": "/dev/loop7\n",
            }
            machine, made = provisioner(answers, Target())
            if fits:
                made.prepare(wanted, SIZE, 0, beside)
                continue
            with pytest.raises(StorageError, match="name another directory with --disk-dir"):
                made.prepare(wanted, SIZE, 0, beside)
            assert machine.undo_list == []


@given(st.lists(legal, min_size=1, max_size=6), st.integers(0, 20), st.integers(0, 40))
def test_what_is_taken_of_the_directory(found: list[dict[str, str]], spare: int, beside: int) -> None:
    wanted, size = [DiskSettings.of(backing(each)) for each in found], 16 * MIB
    taken = directory_bytes(wanted, Target(), size, spare * MIB, beside * MIB)
    assert taken >= size * len(wanted) + max(source_bytes(wanted, size), beside * MIB)
    files = [each for each in wanted if each.volume == "plain" and each.filesystem == "as-is"]
    on_devices = directory_bytes(wanted, Target(devices=("/dev/sdb",)), size, 0)
    assert on_devices == size * len(files) + source_bytes(wanted, size)


def test_a_group_and_pool_that_are_missing_or_full() -> None:
    missing = {lambda argv: argv[0] in ("vgs", "zfs"): Reply(stderr="not found", code=5)}
    full = {lambda argv: argv[0] == "vgs": "  4194304\n", lambda argv: argv[0] == "zfs": "4194304\n"}
    for answers, words in (
        (missing, "no {0} vg0|no {1} tank"),
        (full, "{0} vg0 has 4 MiB free|{1} tank has 4 MiB free"),
    ):
        pattern = words.format("volume group", "pool")
        for wanted, target in ((levels("lvm", "none"), Target(group="vg0")), (levels("dataset"), Target(pool="tank"))):
            machine, made = provisioner(answers, target)
            with pytest.raises(StorageError, match=pattern):
                made.prepare([wanted], SIZE, 0)
            assert machine.undo_list == [], "before anything is made"


def test_what_is_missing_there_is_named_with_its_package() -> None:
    answers = {asks_tools: userland.programs("zpool")}
    _, made = provisioner(answers, Target())
    with pytest.raises(StorageError, match="zpool is missing there: apt-get install zfsutils-linux"):
        made.prepare([levels("zvol", "none")], SIZE, 0)


def test_without_root_that_is_reported_before_any_missing_tool() -> None:
    free = {("stat", "-f", "-c", "%a %S", "/var/tmp/ours"): "1000000 4096"}
    ground = Ground(
        FakeMachine(answers={("id", "-u"): "1000\n", **free}), Target(), PurePosixPath("/var/tmp/ours"), "m"
    )
    with pytest.raises(StorageError, match="take root there"):
        Provisioner(ground, ("qemu-img",)).prepare([levels("plain", "ext4")], SIZE, 0)
    Provisioner(ground, ("qemu-img",)).prepare([levels()], SIZE, 0)


def test_a_bound_of_the_page_cache_is_what_its_processes_hold_and_so_much_more() -> None:
    limit = "/sys/fs/cgroup/vmtax-1/memory.max"
    machine = FakeMachine(
        answers={
            HIERARCHY: "/sys/fs/cgroup memory.max\n",
            ("mkdir", "/sys/fs/cgroup/vmtax-1"): "",
            ("cat", "/sys/fs/cgroup/vmtax-1/memory.stat"): "anon 1000\nfile 5000\nshmem 24\n",
            ("tee", limit): "",
        }
    )
    bound = Bound.make(machine, "vmtax-1")
    bound.set_limit(4096)
    assert machine.inputs == [(("tee", limit), "5120")] and len(machine.undo_list) == 1
    with pytest.raises(StorageError, match="needs memory cgroups"):
        Bound.make(FakeMachine(answers={HIERARCHY: Reply(code=1)}), "vmtax-1")


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"disk_device": ["sdb"]}, "--disk-device sdb: must be a device"),
        ({"disk_device": ["/dev/sdb", "/dev/sdb"]}, "is given twice"),
        ({"erase": ["/dev/sdc"], "disk_device": ["/dev/sdb"]}, "--erase /dev/sdc: is about a device of --disk-device"),
        ({"disk_group": "-rf"}, "--disk-group -rf: no volume group can be called that"),
        ({"disk_pool": "tank; rm"}, "--disk-pool tank; rm: no pool can be called that"),
        ({"disk_dir": "here"}, "must be absolute, for it is on ssh://b"),
    ],
)
def test_a_target_that_cannot_be_is_refused(named: dict[str, Any], words: str) -> None:
    with pytest.raises(BadUse, match=words):
        disk_target("ssh://b", DiskOptions(**named))
