"""Live migration: what is refused beforehand, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import load, parse
from vmtax.testbed.host import needs
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.migration import USERFAULTFD, MigrationPart
from vmtax.testbed.parts.pages import Pages
from vmtax.testbed.session.room import refuse_little_memory
from vmtax.testbed.session.session import CannotMeasure, Wire

MODES = "{name: x, layers: [vm], factors: {migration.mode: [precopy, postcopy]}, workloads: [migration]}"


def why_not(plan: str, answers: Mapping[tuple[str, ...], Any] | None = None) -> dict[str, str]:
    found = parse(plan, "x")
    files = {("cat", USERFAULTFD): "1\n", **(answers or {})}
    return MigrationPart().lacking(Request(FakeMachine("host", files), found, found.treatments()[0]))


def test_a_guest_is_not_migrated_over_a_card_that_takes_its_packets_for_one_tap() -> None:
    plan = parse("{name: x, layers: [vm], workloads: [migration]}", "x")
    every, host = plan.treatments()[0], FakeMachine("host", {})
    (why,) = MigrationPart().lacking(Request(host, plan, every, wire=Wire("eth2", "ssh://b", "eth3"))).values()
    assert (
        why.startswith("a guest is migrated on a bridge of its host alone")
        and MigrationPart().lacking(Request(host, plan, every)) == {}
    )


def test_postcopy_takes_userfaultfd_of_the_kernel() -> None:
    assert why_not(MODES) == {}
    late = "vm migration.mode=postcopy"
    assert "sysctl vm.unprivileged_userfaultfd=1" in why_not(MODES, {("cat", USERFAULTFD): "0\n"})[late]
    assert "does not have" in why_not(MODES, {("cat", USERFAULTFD): Reply(code=1)})[late]


@pytest.mark.parametrize(
    ("factors", "workloads", "reason"),
    [
        ("{migration.mode: [precopy]}", "[net]", "needs the workload migration"),
        ("{guest.count: [2]}", "[migration]", "one guest at a time is migrated"),
        ("{cpu.pinning: [one-to-one]}", "[migration]", "is not pinned"),
        ("{net.path: [macvtap]}", "[migration]", "no two macvtaps with the guest's address"),
        ("{net.path: [sriov]}", "[migration]", "does not migrate a guest that has a device of the host"),
    ],
)
def test_what_cannot_be_migrated_is_left_out_with_the_reason(factors: str, workloads: str, reason: str) -> None:
    (why,) = why_not(f"{{name: x, layers: [vm], factors: {factors}, workloads: {workloads}}}").values()
    assert reason in why


@pytest.mark.parametrize("other", ["disk", "tile", "{build: {files: disk}}"])
def test_a_plan_that_migrates_guests_measures_no_disk(other: str) -> None:
    plan = f"{{name: x, layers: [host, vm], workloads: [migration, {other}]}}"
    with pytest.raises(PlanError, match=r"workloads\[1\]: a guest that is migrated has no disk of its own"):
        parse(plan, "x")


def test_a_build_in_memory_needs_no_disk_of_a_guest_that_is_migrated() -> None:
    parse("{name: x, layers: [host, vm], workloads: [migration, build]}", "x")


def test_a_host_must_hold_the_guest_twice() -> None:
    plan = load("migration")
    assert needs.memory_bytes(plan, "vm") == 2 * (plan.guest.memory + needs.QEMU_MEMORY_BYTES)
    host = FakeMachine("host", {("cat", "/proc/meminfo"): "MemAvailable: 1572864 kB\n"})
    with pytest.raises(CannotMeasure, match=r"1.5 GiB of memory are available, and 2 x \(.*QEMU\), .* = 2.2 GiB are"):
        refuse_little_memory(host, plan)


def test_huge_pages_are_taken_for_both_ends() -> None:
    plan = parse("{name: x, layers: [vm], factors: {memory.backing: [2MiB]}, workloads: [migration]}", "x")
    assert (
        "1024 pages of 2MiB (2.0 GiB)" in Pages().announced(Request(FakeMachine("host"), plan, plan.treatments()[0]))[0]
    )


def test_postcopy_takes_kvm() -> None:
    plan = parse(MODES, "x")
    why = "migration.mode=postcopy needs KVM, and the guests here are emulated"
    assert MigrationPart().lacking(Request(FakeMachine("host"), plan, plan.treatments()[0], accelerator="tcg")) == {
        "vm migration.mode=postcopy": why
    }
