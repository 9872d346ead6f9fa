"""The mount that is in force, of several that a path is below; and all disks that are behind a file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from tests.mounts import only, printed, row
from vmtax.machine.reader import LocalReader
from vmtax.meter.disk import BTRFS, LSBLK, disk_facts, members
from vmtax.meter.mounts import READ, Mount, mount_of, parse

ROOT = row(1, "/", "ext4", "/dev/sda1", "rw,relatime")
AUTOFS = row(2, "/srv/data", "autofs", "systemd-1", "rw,fd=32,direct")
OF_KERNEL = row(1, "/", "ext4", "/dev/root", device="254:2")
UNDER = row(3, "/srv/data", "ext4", "/dev/sdb1")


@pytest.mark.parametrize(
    ("rows", "on", "path", "source", "system"),
    [
        ((ROOT,), 1, "/srv/data", "/dev/sda1", "ext4"),
        ((ROOT, AUTOFS, UNDER), 3, "/srv/data", "/dev/sdb1", "ext4"),
        ((ROOT, AUTOFS, UNDER), 3, "/srv/data/below", "/dev/sdb1", "ext4"),
        ((ROOT, UNDER, AUTOFS), 3, "/srv/data", "/dev/sdb1", "ext4"),
        ((ROOT, UNDER, row(4, "/srv/data", "tmpfs", "tmpfs")), 4, "/srv/data", "tmpfs", "tmpfs"),
        ((ROOT, UNDER, row(4, "/srv/data", "tmpfs", "tmpfs")), 3, "/srv/data", "/dev/sdb1", "ext4"),
        ((ROOT, UNDER, row(5, "/srv", "xfs", "/dev/sdc1")), 5, "/srv/data", "/dev/sdc1", "xfs"),
        ((ROOT, UNDER, row(5, "/srv", "xfs", "/dev/sdc1")), 1, "/", "/dev/sda1", "ext4"),
        ((row(9, "/", "rootfs", "rootfs"), ROOT), 1, "/", "/dev/sda1", "ext4"),
        ((ROOT, row(6, "/srv/my data", "xfs", "/dev/sdc1")), 6, "/srv/my data", "/dev/sdc1", "xfs"),
        ((ROOT, row(6, "/srv", "zfs", "tank/my data")), 6, "/srv", "tank/my data", "zfs"),
        ((ROOT, row(6, "/srv", "nfs4", "nas:/export")), 6, "/srv", "nas:/export", "nfs4"),
        ((ROOT, row(6, "/srv", "cifs", "//nas/a\\b")), 6, "/srv", "//nas/a\\b", "cifs"),
        ((ROOT, row(6, "/srv", "fuse.sshfs", "me@far:/x", shared="shared:3")), 6, "/srv", "me@far:/x", "fuse.sshfs"),
        ((row(1, "/", "overlay", "overlay"),), 1, "/var/tmp", "overlay", "overlay"),
        (
            (row(1, "/", "ext4", "/dev/root", device="254:2"), "block: 254:2 ../x/vda/vda2\n"),
            1,
            "/",
            "/dev/vda2",
            "ext4",
        ),
        ((row(1, "/", "ext4", "/dev/root", device="254:9"), "block: 254:2 ../x/vda2\n"), 1, "/", "/dev/root", "ext4"),
        # What cannot be opened is found by its name.
        ((ROOT, AUTOFS, UNDER), None, "/srv/data", "/dev/sdb1", "ext4"),
        ((ROOT, row(7, "/srv/database", "xfs", "/dev/sdd1")), None, "/srv/data", "/dev/sda1", "ext4"),
        ((row(7, "/srv", "xfs", "/dev/sdd1"), ROOT), None, "/srv/data", "/dev/sdd1", "xfs"),
        ((ROOT,), None, "/", "/dev/sda1", "ext4"),
    ],
)
def test_the_mount_that_is_in_force_is_the_kernel_s(
    rows: tuple[str, ...], on: int | None, path: str, source: str, system: str
) -> None:
    found = parse(printed(*rows, on=on, free=4096), path)
    assert found is not None and (found.source, found.system, found.free_bytes) == (source, system, 4096)
    assert found.is_shared == ("shared:" in "".join(rows))


def test_nothing_is_found_where_nothing_can_be_read() -> None:
    assert mount_of(FakeMachine(answers={(*READ, "/x"): Reply(code=1)}), "/x") is None
    assert parse(printed(ROOT, on=77), "/") is None, "a mount that is not listed: of another namespace"


@given(
    st.text() | st.lists(st.sampled_from([ROOT, AUTOFS, "mnt_id:\t1\n", "free: 1 x\n", " - \n"])).map("".join),
    st.text(),
)
def test_no_text_makes_it_fail(text: str, path: str) -> None:
    assert isinstance(parse(text, path), Mount | None)


def lsblk(*rows: dict[str, object]) -> str:
    return json.dumps({"blockdevices": rows})


def disk(name: str) -> dict[str, object]:
    return {"kname": name, "type": "disk", "size": 42}


def on(name: str, kind: str, *below: dict[str, object]) -> dict[str, object]:
    return {"kname": name, "type": kind, "children": below}


@pytest.mark.parametrize(
    ("mount", "listed", "rows", "disks"),
    [
        (only("ext4", "/dev/sda1"), None, (on("sda1", "part", disk("sda")),), ["sda"]),
        (only("btrfs", "/dev/sda"), "sda sdb sdc", (disk("sda"), disk("sdb"), disk("sdc")), ["sda", "sdb", "sdc"]),
        (only("btrfs", "/dev/sda"), "", (disk("sda"),), ["sda"]),
        (only("bcachefs", "/dev/sda:/dev/sdb"), None, (disk("sda"), disk("sdb")), ["sda", "sdb"]),
        (
            only("zfs", "tank/x"),
            "tank mirror-0 /dev/sda1 /dev/sdb1 - logs /dev/nvme0n1",
            None,
            ["sda", "sdb", "nvme0n1"],
        ),
        (only("ext4", "/dev/md0"), None, (on("md0", "raid1", disk("sda"), disk("sdb")),), ["sda", "sdb"]),
        (only("xfs", "/dev/mapper/v"), None, (on("dm-0", "lvm", disk("sda"), disk("sdb")),), ["sda", "sdb"]),
        (only("xfs", "/dev/bcache0"), None, (on("bcache0", "disk", disk("sda"), disk("nvme0n1")),), ["sda", "nvme0n1"]),
        (only("xfs", "/dev/dm-1"), None, (on("dm-1", "mpath", disk("sda"), disk("sdb")),), ["sda", "sdb"]),
        (only("nfs4", "nas:/export"), None, None, []),
        (only("tmpfs", "tmpfs"), None, None, []),
        (only("overlay", "overlay"), None, None, []),
    ],
)
def test_all_disks_behind_a_file_system_are_named(
    mount: str, listed: str | None, rows: tuple[dict[str, object], ...] | None, disks: list[str]
) -> None:
    asked: list[tuple[str, ...]] = []

    def lists(argv: tuple[str, ...]) -> bool:
        asked.append(argv)
        return argv[: len(LSBLK)] == LSBLK

    host = FakeMachine(
        answers={
            (*READ, "/x"): mount,
            lambda argv: argv[: len(BTRFS)] == BTRFS or argv[0] == "zpool": listed or "",
            lists: lsblk(*(rows or [disk(name) for name in disks])),
            lambda argv: argv[0] == "grep": "",
        }
    )
    found = disk_facts(host, "/x")
    assert [one["name"] for one in found["disks"]] == disks
    devices = next((argv[len(LSBLK) :] for argv in asked if argv[: len(LSBLK)] == LSBLK), ())
    several = {"btrfs": "sda sdb sdc", "bcachefs": None, "zfs": listed}
    is_several = any(f" {system} " in mount and listed == words for system, words in several.items())
    assert (len(devices) > 1) == is_several, "lsblk finds the disks below one device by itself"


def test_the_mount_of_this_machine_is_the_one_that_stat_sees(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    found = mount_of(LocalReader(), tmp_path / "a b")
    assert found is not None and found.free_bytes and Path(found.point).stat().st_dev == tmp_path.stat().st_dev
    assert mount_of(LocalReader(), tmp_path / "missing") is None
    assert members(LocalReader(), Mount("/", "nas:/x", "nfs4", "rw")) == []
