"""What a disk can do, as it is read from what tools say; the real ones are asked in tests/integration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import Answers, FakeMachine, Reply
from tests.mounts import only
from vmtax.design.disk import CacheMode, DiskSettings, Volume
from vmtax.design.features import Feature, documented_durability
from vmtax.hypervisor import Drive, GuestSpec, Qemu
from vmtax.hypervisor.qemu.img import create_image
from vmtax.machine import MachineLost
from vmtax.meter.mounts import READ
from vmtax.storage import Backing
from vmtax.storage.features import features
from vmtax.storage.full import _Small, _watched, stops_when_full

QEMU = Qemu(("qemu",), "10.0.3", "QEMU emulator version 10.0.3")
GREETING, READY = '{"QMP": {}}', '{"return": {}}'
REFUSED = '{"error": {"desc": "Device \'data\' does not support it"}}'
SAVED, MIGRATED = '{"return": ""}', '{"return": {"status": "completed"}}'
WILLING = (GREETING, READY, READY, SAVED, READY, MIGRATED, READY)


PAUSED = Feature("pause-on-full", "yes", "a file on ext4", "paused")


def looked_at(
    path: str,
    levels: dict[str, str],
    *lines: str,
    full: Callable[[], Feature] | None = None,
    discard: str = "ignore",
    **answers: str | Reply,
) -> dict[str, Feature]:
    """`answers` by a command's first word; QEMU says `lines`."""
    scripted: Answers = {
        lambda argv: argv[0] == "stat": answers.get("stat", "regular file"),
        lambda argv: argv[:-1] == READ: answers.get("mount", only("ext4", "/dev/sda1", "rw,relatime")),
        lambda argv: argv[0] == "qemu-img": answers.get("image", ""),
        lambda argv: argv[0] == "sh": answers.get("blocks", "8 512"),
        lambda argv: argv[0] == "lvs": answers.get("lvs", ""),
        lambda argv: argv[0] == "zfs": answers.get("zfs", ""),
        ("mkdir", "-m", "700", "/tmp/vmtax"): "",
        lambda argv: argv[0] == "qemu": Reply("".join(f"{line}\n" for line in lines), stderr="could not start"),
    }
    machine = FakeMachine(answers=scripted)
    backing, drive = Backing(PurePosixPath(path), DiskSettings.of(levels)), Drive(path, DiskSettings(discard=discard))
    found = features(machine, QEMU, backing, drive, PurePosixPath("/scratch"), when_full=full)
    return {feature.name: feature for feature in found}


def test_what_qemu_refuses_stands_in_its_own_words() -> None:
    found = looked_at("/d/disk", {}, GREETING, READY, REFUSED, '{"return": "Error: no\\r\\n"}', REFUSED, READY)
    assert found["snapshots"] == Feature(
        "snapshots", "no", "blockdev-snapshot-internal-sync", "Device 'data' does not support it"
    )
    assert found["savevm"] == Feature("savevm", "no", "savevm", "no")
    assert found["migration"].state == "no"
    failed = '{"return": {"status": "failed", "error-desc": "State blocked"}}'
    found = looked_at("/d/disk", {}, GREETING, READY, READY, SAVED, READY, failed, READY)
    assert (found["migration"].state, found["migration"].words) == ("no", "State blocked")
    assert {found[name].state for name in ("savevm", "snapshots", "thin", "durable", "file")} == {"yes"}


def test_a_qemu_that_ends_proves_nothing_and_nothing_is_concluded() -> None:
    for lines in ((), (GREETING, READY, READY), (GREETING, READY, READY, SAVED, READY)):
        found = looked_at("/d/disk", {}, *lines)
        assert {found[name].state for name in ("savevm", "snapshots", "migration")} == {"not tried"}
        assert found["savevm"].words == "could not start" and found["thin"].state == "yes"


def test_without_qemu_img_or_room_nothing_is_tried() -> None:
    found = looked_at("/d/disk", {}, *WILLING, image=Reply(code=1, stderr="No space left on device"))
    assert {found[name].state for name in ("savevm", "snapshots", "migration", "thin")} == {"not tried"}
    assert "qemu-img" in found["savevm"].words


@pytest.mark.parametrize(
    ("path", "levels", "answers", "state", "words"),
    [
        ("/dev/zvol/tank/a", {}, {"zfs": "none\n"}, "yes", "refreservation=none"),
        ("/dev/zvol/tank/a", {}, {"zfs": "68719476736\n"}, "no", "refreservation=68719476736"),
        ("/dev/vg/a", {"disk.volume": "lvm-thin"}, {"lvs": "  pool\n"}, "yes", "from the thin pool pool"),
        ("/dev/vg/a", {"disk.volume": "lvm"}, {"lvs": "  \n"}, "no", "a volume with all its blocks"),
        ("/dev/sdx", {}, {}, "no", "a whole device"),
    ],
)
def test_a_device_is_thin_where_its_volume_is(
    path: str, levels: dict[str, str], answers: dict[str, str], state: str, words: str
) -> None:
    found = looked_at(path, levels, *WILLING, stat="block special file", **answers)
    assert (found["thin"].state, found["thin"].words) == (state, words)
    assert found["file"] == Feature("file", "no", "stat", "a block special file")


def test_a_volume_that_cannot_be_asked_is_not_tried_and_the_rest_is() -> None:
    lvs = Reply(code=5, stderr="no such volume")
    found = looked_at("/dev/vg/a", {"disk.volume": "lvm"}, *WILLING, stat="block special file", lvs=lvs)
    assert found["thin"].state == "not tried" and "lvs" in found["thin"].words and found["savevm"].state == "yes"


@pytest.mark.parametrize(
    ("path", "answers", "words"),
    [
        ("/d/disk", {"mount": only("tmpfs", "tmpfs", "rw")}, "tmpfs, kept in memory"),
        (
            "/d/disk",
            {"mount": only("ext4", "/dev/sda1", "rw,barrier=0")},
            "/dev/sda1 is mounted without write barriers",
        ),
        (
            "/d/disk",
            {"mount": only("zfs", "tank/my data", "rw,xattr"), "zfs": "disabled\n"},
            "tank/my data has sync=disabled",
        ),
        ("/dev/zvol/tank/a", {"stat": "block special file", "zfs": "disabled\n"}, "tank/a has sync=disabled"),
    ],
)
def test_what_lies_below_may_lose_what_qemu_flushes(path: str, answers: dict[str, str], words: str) -> None:
    durable = looked_at(path, {}, *WILLING, **answers)["durable"]
    assert durable.state == "no" and words in durable.words


ALLOCATED = str(2**17) + " 512"  # blocks of the scratch image: all of it
QCOW2 = {"disk.format": "qcow2"}
DEVICE = {"stat": "block special file"}


@pytest.mark.parametrize(
    ("path", "levels", "answers", "state", "words"),
    [
        ("/d/disk", {}, {}, "yes", "paused"),
        ("/d/disk", QCOW2, {"mount": only("xfs", "/dev/sda1", "rw"), "blocks": ALLOCATED}, "yes", "paused"),
        ("/d/disk", {"disk.volume": "lvm", "disk.filesystem": "ext4"}, {}, "yes", "paused"),
        ("/d/disk", {"disk.volume": "lvm-thin", "disk.filesystem": "ext4"}, {}, "not tried", "not on lvm-thin"),
        (
            *("/d/disk", {"disk.volume": "lvm-thin", "disk.filesystem": "ext4"}, {"blocks": ALLOCATED}),
            *("not tried", "not on lvm-thin"),
        ),
        ("/d/disk", {}, {"mount": only("btrfs", "/dev/sda1", "rw"), "blocks": ALLOCATED}, "not tried", "not on btrfs"),
        (
            "/d/disk",
            {"disk.volume": "dataset"},
            {"mount": only("zfs", "tank/a", "rw")},
            "not tried",
            "on ext4, not on zfs",
        ),
        ("/d/disk", {}, {"mount": Reply(code=1)}, "not tried", "not on an unknown file system"),
        ("/d/disk", {}, {"mount": Reply(code=1), "blocks": ALLOCATED}, "not tried", "an unknown file system"),
        ("/d/disk", {}, {"blocks": ALLOCATED}, "yes", "it cannot fill up"),
        ("/d/disk", {}, {"blocks": ALLOCATED, "discard": "unmap"}, "yes", "paused"),
        ("/dev/vg/a", {"disk.volume": "lvm-thin"}, {**DEVICE, "lvs": "pool"}, "not tried", "not on lvm-thin"),
        ("/dev/vg/a", {"disk.volume": "lvm"}, {**DEVICE, "discard": "unmap"}, "yes", "it cannot fill up"),
        ("/dev/vg/a", {"disk.volume": "lvm"}, {**DEVICE, "lvs": Reply(code=5)}, "not tried", "not on lvm"),
        ("/dev/zvol/tank/a", {"disk.volume": "zvol"}, {**DEVICE, "zfs": "none"}, "not tried", "not on zvol"),
        ("/dev/zvol/tank/a", {"disk.volume": "zvol"}, {**DEVICE, "zfs": "68719476736"}, "yes", "it cannot fill up"),
        ("/dev/sdx", {}, DEVICE, "yes", "it cannot fill up"),
    ],
)
def test_one_trial_on_ext4_shows_nothing_about_what_runs_full_otherwise(
    path: str, levels: dict[str, str], answers: dict[str, str], state: str, words: str
) -> None:
    trials: list[Feature] = []

    def trial() -> Feature:
        trials.append(PAUSED)
        return PAUSED

    found = looked_at(path, levels, *WILLING, full=trial, **answers)["pause-on-full"]
    assert found.state == state and re.search(words, found.words)
    assert bool(trials) == (found == PAUSED), "a guest was booted for nothing"


def test_without_root_it_is_known_only_of_what_cannot_run_full() -> None:
    assert looked_at("/d/disk", {}, *WILLING)["pause-on-full"].words == "needs root, and a guest of the image"
    assert looked_at("/d/disk", {}, *WILLING, blocks=ALLOCATED)["pause-on-full"].state == "yes"


def test_only_what_was_asked_is_named() -> None:
    assert looked_at("/dev/sdx", {}, *WILLING, **DEVICE)["durable"].how == "documented"
    lost = looked_at("/dev/zvol/tank/a", {}, *WILLING, **DEVICE, zfs="disabled")["durable"]
    assert (lost.state, lost.how) == ("no", "documented; zfs get")


def test_a_disk_that_is_not_there_is_not_judged() -> None:
    assert looked_at("/d/none", {}, *WILLING, stat=Reply(code=1))["file"].state == "not tried"


def test_durability_is_as_documented() -> None:
    assert {
        str(cache): documented_durability(DiskSettings(cache=cache)).state
        for cache in (CacheMode.NONE, CacheMode.WRITEBACK, CacheMode.UNSAFE)
    } == {
        "none": "yes",
        "writeback": "yes",
        "unsafe": "no",
    }
    on_zfs = DiskSettings(volume=Volume.RAIDZ1_DATASET, sync="disabled")
    assert documented_durability(on_zfs).state == "no"
    assert documented_durability(replace(on_zfs, volume=Volume.LVM)).state == "yes", "it means nothing there"
    on_ext4 = DiskSettings(filesystem="ext4", barriers=False)
    assert documented_durability(on_ext4).state == "no"
    assert documented_durability(replace(on_ext4, filesystem="xfs")).state == "yes", "it means nothing there"


def test_an_image_gets_the_options_of_its_format_only() -> None:
    raw = DiskSettings(preallocation="off", cluster_size=2**20, lazy_refcounts=True, bus="ide")
    assert create_image(raw, "/a", 9) == ["qemu-img", "create", "-q", "-f", "raw", "-o", "preallocation=off", "/a", "9"]
    options = create_image(replace(raw, format="qcow2"), "/a", 9)[6]
    assert options == "preallocation=off,cluster_size=1048576,lazy_refcounts=on,extended_l2=off"
    assert create_image(DiskSettings(), "/a", 9, ("bwrap", "qemu-img"))[:3] == ["bwrap", "qemu-img", "create"]


def test_a_feature_survives_the_store() -> None:
    feature = Feature("thin", "not tried", "stat", "why")
    assert Feature.from_json(json.loads(json.dumps(feature.to_json()))) == feature


def test_a_full_disk_is_not_tried_without_root_and_says_so() -> None:
    spec = GuestSpec("vm", 1, 2**29, "tcg", QEMU, "/kernel", "/initrd", "/root")

    def tried(mount: Reply | Exception) -> Feature:
        machine = FakeMachine(
            answers={
                lambda argv: argv[0] in ("mkdir", "truncate", "mkfs.ext4"): "",
                lambda argv: argv[0] == "mount": mount,
            }
        )
        return stops_when_full(machine, spec, DiskSettings(), None, machine)

    found = tried(Reply(code=1, stderr="must be superuser to use mount"))
    assert found.state == "not tried" and "mount" in found.words
    with pytest.raises(MachineLost):
        tried(MachineLost("host: the connection is gone"))


@pytest.mark.parametrize(
    ("fio", "state", "words"),
    [
        (Reply('{"jobs": [{"error": 5}]}', code=1), "no", "its write failed: Input/output error"),
        (Reply('{"jobs": [{"error": 84}]}', code=1), "no", "its write failed: Invalid or incomplete"),
        (Reply('{"jobs": [{"error": 0}]}'), "not tried", "wrote all of it: the disk was not full"),
        (Reply(stderr="fio: not found", code=127), "not tried", "fio ended: fio: not found"),
        (Reply('{"jobs": [{"error": 0}]}', code=137), "not tried", "fio ended: exit code 137"),
    ],
)
def test_a_writer_that_ends_before_a_pause_shows_something_only_by_an_error_of_the_disk(
    fio: Reply, state: str, words: str
) -> None:
    machine = FakeMachine(answers={lambda argv: argv[0] == "fio": fio})
    spec = SimpleNamespace(device=lambda: "/dev/vda")
    guest: Any = SimpleNamespace(machine=machine, is_paused=lambda: False, spec=spec)
    found = _watched(machine, _Small(PurePosixPath("/m"), PurePosixPath("/m/ballast")), guest)
    assert found.state == state and words in found.words
