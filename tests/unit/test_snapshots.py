"""Snapshots of the disk under test: the images that are laid over it, what QEMU may reach, and what has none."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from tests.fake_machine import FakeMachine
from vmtax.design.disk import DiskSettings
from vmtax.hypervisor.qemu.img import create_overlay
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.report.wording.guest_settings import _disk
from vmtax.storage import Backing, Target, chain
from vmtax.storage.backing import areas, directory_bytes
from vmtax.testbed.host import needs
from vmtax.testbed.host.disks import wanted
from vmtax.testbed.parts import Request, lacking
from vmtax.testbed.parts.snapshots import SnapshotPart

MIB = 2**20
PLAN = "{name: x, layers: [vm], workloads: [%s]}"


def plan(*changes: str, workloads: str = "disk: {size: 64MiB, patterns: [randread-4k-qd1]}") -> Plan:
    return varied(parse(PLAN % workloads, "x"), changes)


def lay(count: int, size: int = 64 * MIB, **settings: Any) -> tuple[chain.Chain, FakeMachine]:
    host = FakeMachine("host", {lambda argv: argv[0] == "qemu-img": ""})
    disk = Backing(PurePosixPath("/d/disk1.raw"), DiskSettings(**settings), 64 * MIB)
    return chain.lay(host, disk, count, size, ("qemu-img",)), host


@pytest.mark.parametrize("count", [1, 2, 8, 30])
def test_each_image_lies_over_the_one_before_and_only_the_last_is_written(count: int) -> None:
    laid, host = lay(count)
    made = [argv for argv in host.calls if argv[0] == "qemu-img"]
    below = [argv[argv.index("-b") + 1] for argv in made]
    assert len(made) == count and below == list(laid.beneath) and below[0] == "/d/disk1.raw"
    assert [argv[-2] for argv in made] == [*below[1:], str(laid.top.path)]
    formats = [argv[argv.index("-o") + 1].rpartition("backing_fmt=")[2] for argv in made]
    assert formats == ["raw", *["qcow2"] * (count - 1)]
    assert laid.top.settings.format == "qcow2" and len(laid.undoings) == count


def test_the_last_image_may_be_smaller_than_the_disk() -> None:
    laid, host = lay(3, size=16 * MIB)
    assert [argv[-1] for argv in host.calls if argv[0] == "qemu-img"] == [str(64 * MIB)] * 2 + [str(16 * MIB)]
    assert laid.top.size == 16 * MIB


@pytest.mark.parametrize("count", ["1", "77", "200"])
def test_any_number_of_snapshots_is_written_as_it_was_asked_for(count: str) -> None:
    settings = DiskSettings.of({"disk.snapshots": count})
    assert settings.levels["disk.snapshots"] == count and dict(settings.options("drive"))["cache"] == "none"


def test_two_chains_over_one_disk_have_images_of_their_own() -> None:
    assert lay(1)[0].top.path != lay(1)[0].top.path


def test_an_image_has_the_settings_of_a_qcow2_disk_and_is_not_allocated() -> None:
    settings = DiskSettings.of(
        {"disk.format": "qcow2", "disk.cluster_size": "128KiB", "disk.extended_l2": "on", "disk.preallocation": "full"}
    )
    (options,) = [w for w in create_overlay(settings, "/t", "/b", "qcow2", 1) if "backing_fmt" in w]
    assert "cluster_size=131072" in options and "extended_l2=on" in options and "preallocation" not in options


@pytest.mark.parametrize(
    ("levels", "count"),
    [
        ({"disk.snapshots": "8"}, 8),
        ({"disk.snapshots": "77"}, 77),
        ({"disk.snapshots": "8", "disk.format": "qcow2"}, 8),
        ({"disk.snapshots": "8", "disk.filesystem": "none", "disk.volume": "lvm"}, 0),
        ({"disk.snapshots": "8", "disk.share": "9p"}, 0),
        ({}, 0),
    ],
)
def test_only_a_guest_with_a_file_for_a_disk_has_snapshots(levels: dict[str, str], count: int) -> None:
    assert chain.snapshots_of(DiskSettings.of(levels)) == count


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("disk.snapshots=8", "disk.filesystem=none"), "disk.snapshots=8 needs disk.filesystem=as-is"),
        (("disk.snapshots=8", "disk.share=9p"), "disk.snapshots=8 needs disk.share=none"),
        (("disk.snapshots=201",), "unknown level of disk.snapshots '201'; .* any from 1 to 200"),
        (("disk.snapshots=-1",), "unknown level of disk.snapshots '-1'"),
    ],
)
def test_levels_that_cannot_be_are_refused(changes: tuple[str, ...], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        plan(*changes)


def test_the_images_need_as_much_space_as_the_disk_again() -> None:
    without, with_them = plan(), plan("disk.snapshots=0,8")
    assert needs.disk_sizes(with_them)[1] - needs.disk_sizes(without)[1] == needs.disk_sizes(without)[0]


@pytest.mark.parametrize(
    ("changes", "taken"),  # MiB: each guest has its disk, a disk that was never written, and an image over each
    [
        ((), 64 + 16),
        (("disk.snapshots=0,8",), 2 * (64 + 16)),
        (("guest.count=1,4",), 4 * (64 + 16)),
        (("guest.count=1,4", "disk.snapshots=0,8"), 4 * 2 * (64 + 16)),
    ],
)
def test_guests_at_once_need_room_for_their_images_at_once(changes: tuple[str, ...], taken: int) -> None:
    made = plan(*changes, workloads="disk: {size: 64MiB, fresh_size: 16MiB, patterns: [first-write-4k]}")
    disks = [settings for settings, _ in wanted(made.treatments()[0])]
    assert directory_bytes(disks, Target(), *needs.disk_sizes(made)) == taken * MIB


def test_a_file_system_for_one_guest_has_no_room_for_the_images_of_others() -> None:
    def each(count: str) -> set[int]:
        made = plan("disk.filesystem=ext4", "disk.snapshots=8", f"guest.count={count}")
        size, spare, _ = needs.disk_sizes(made)
        disks = [settings for settings, _ in wanted(made.treatments()[0])]
        return {area.size for area in areas(disks, Target(), size, spare)}

    assert each("4") == each("1")


def test_treatments_share_the_disk_below_their_snapshots() -> None:
    assert len(wanted(plan("disk.snapshots=0,1,8").treatments()[0])) == 1


@pytest.mark.parametrize(
    ("levels", "words"),
    [({}, []), ({"disk.snapshots": "1"}, ["under 1 snapshot"]), ({"disk.snapshots": "8"}, ["under 8 snapshots"])],
)
def test_the_settings_of_a_guest_name_its_snapshots(levels: dict[str, str], words: list[str]) -> None:
    assert [word for word in _disk(levels) if "snapshot" in word] == words


def test_a_disk_with_snapshots_is_not_ended_while_it_is_written() -> None:
    made = plan("disk.snapshots=0,2", workloads="durability")
    request = Request(FakeMachine("host"), made, made.treatments()[0])
    ((name, why),) = lacking(request, (SnapshotPart(),)).items()
    assert name == "vm disk.snapshots=2" and why.startswith("disk.snapshots=2: the workload durability")
