"""What a host lacks for a way to keep a disk is found out beforehand, and costs only the treatments that need it."""

from __future__ import annotations

from tests.fake_machine import Answers, FakeMachine, Reply
from tests.userland import asks_tools, programs
from vmtax.design.treatments import Combination, Space, treatments
from vmtax.machine.packages import READ
from vmtax.machine.tools import TOOLS
from vmtax.storage import Target
from vmtax.testbed.host.disks import not_here

PARTS = [
    Combination({"disk.filesystem": ["as-is"]}, "dir"),
    Combination({"disk.filesystem": ["xfs"], "disk.cache": ["none", "writeback"]}, "xfs"),
    Combination({"disk.filesystem": ["btrfs"]}, "btrfs"),
    Combination({"disk.volume": ["lvm"], "disk.filesystem": ["none"]}, "lvm"),
    Combination({"disk.volume": ["zvol"], "disk.filesystem": ["none"]}, "zvol"),
    Combination({"disk.volume": ["raidz1-dataset"]}, "raidz1"),
]
KEPT, _ = treatments(["host", "vm"], Space({}, PARTS))


def lacking(*missing: str, target: Target | None = None) -> dict[str, str]:
    def fails(argv: tuple[str, ...]) -> bool:
        return argv[0] == "sh" and any(word in argv[-1] for word in missing)

    there = programs(*(tool.name for tool in TOOLS if any(word in tool.name for word in missing)))
    sh: Answers = {asks_tools: there, fails: Reply(code=1), lambda argv: argv[0] == "sh": Reply(), READ: "ID=debian\n"}
    machine = FakeMachine(answers=sh)
    found = not_here(machine, target or Target(), KEPT)
    asked = [argv for argv in machine.calls if argv != READ]
    assert len(asked) == len(set(asked)), "each question once"
    return found


def test_a_host_that_has_everything_keeps_all() -> None:
    assert lacking() == {}


def test_a_missing_tool_names_its_package_and_costs_its_treatments_only() -> None:
    found = lacking("mkfs.xfs")
    assert sorted(found) == ["host disk.filesystem=xfs", "vm xfs", "vm xfs disk.cache=writeback"]
    assert set(found.values()) == {"disk.filesystem=xfs: mkfs.xfs is missing there: apt-get install xfsprogs"}


def test_what_the_kernel_lacks_is_reported() -> None:
    assert lacking("btrfs")["vm btrfs"].startswith("disk.filesystem=btrfs: mkfs.btrfs is missing")
    assert lacking("zpool")["vm zvol"].startswith("disk.volume=zvol: zpool is missing there")
    assert lacking("device-mapper") == dict.fromkeys(
        ("host disk.volume=lvm disk.filesystem=none", "vm lvm"),
        "disk.volume=lvm needs the kernel's device mapper, which is missing there",
    )
    assert {name for name in lacking("zfs") if name.startswith("vm")} == {"vm zvol", "vm raidz1"}


def test_four_disks_take_four_devices_where_some_are_named() -> None:
    found = lacking(target=Target(devices=("/dev/sdb",)))
    assert found["vm raidz1"] == "disk.volume=raidz1-dataset takes 4 devices, and 1 named with --disk-device"
    assert "vm zvol" not in found
