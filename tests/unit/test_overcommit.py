"""Guests that share CPUs: which numbers go, what the host must have, and that no thread runs beside them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.asked import accepted
from tests.fake_machine import FakeMachine
from vmtax.design.factors import why_illegal
from vmtax.design.guest import COUNTS, OVERCOMMITS, GuestSettings
from vmtax.design.topology import machines_at_once
from vmtax.hypervisor import BootFailed, Thread
from vmtax.plan.guests import sized
from vmtax.plan.schema import Plan, parse
from vmtax.testbed.host import cpus
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.overcommit import Overcommit, cpus_of_all, hold

PLAN = (
    "{{name: x, layers: [host, vm], guest: {{vcpus: {vcpus}, memory: 512MiB}},"
    " workloads: [memory: {{cases: [faults]}}], factors: {{guest.count: [{count}], cpu.overcommit: [{levels}]}}}}"
)


def plan(count: str, levels: str, vcpus: int = 1) -> Plan:
    return parse(PLAN.format(count=count, levels=levels, vcpus=vcpus))


@pytest.mark.parametrize("vcpus", ["1", "2", "3", "4", "6", "8", "64"])
@pytest.mark.parametrize("count", COUNTS)
def test_only_whole_cpus_are_shared(count: str, vcpus: str) -> None:
    for level in OVERCOMMITS:
        levels = {"cpu.overcommit": level, "guest.count": count, "guest.vcpus": vcpus}
        assert (why_illegal(levels) is None) == (int(count) * int(vcpus) % int(level) == 0), levels


def test_the_line_says_what_does_not_divide() -> None:
    why = why_illegal({"cpu.overcommit": "8", "guest.count": "6", "guest.vcpus": "2"})
    assert why == "cpu.overcommit=8: 6 guests x 2 vCPUs are no multiple of 8"
    assert why_illegal({"cpu.overcommit": "2", "guest.count": "2", "cpu.pinning": "one-to-one"})


def test_what_is_asked_alone_gets_guests_that_can_share() -> None:
    wanted, refused = accepted("density", ["cpu.overcommit=1,2"], layers="host,vm")
    assert wanted is not None, refused
    names = [each.name for each in wanted.treatments()[0]]
    assert "vm guest.count=4 cpu.overcommit=2" in names and "host guest.count=4 cpu.overcommit=2" in names
    assert not any("overcommit" in name and "count" not in name for name in names), "one guest shares with nobody"


def host(count: int, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    there = tuple(cpus.Cpu(number, number) for number in range(count))
    monkeypatch.setattr("vmtax.testbed.parts.overcommit.read", lambda machine: cpus.CpuTopology(there))
    return FakeMachine("host", {})


@pytest.mark.parametrize(
    ("has", "accelerator", "without"),
    [
        (4, "kvm", set()),
        (2, "kvm", {"1"}),
        (2, "tcg", {"1"}),
        (1, "tcg", {"1", "2"}),
    ],
)
def test_the_host_must_have_the_cpus_that_are_shared(
    has: int, accelerator: Any, without: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = plan("4", "1, 2, 4")
    treatments = one.treatments()[0]
    lacking = Overcommit().lacking(Request(host(has, monkeypatch), one, treatments, accelerator=accelerator))
    assert {each.levels["cpu.overcommit"] for each in treatments if each.name in lacking} == without
    assert all(f"and host has {has}: leave it out, or lower" in why for why in lacking.values())


def test_a_plan_that_does_not_name_it_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    one = parse("{name: x, layers: [vm], factors: {guest.count: ['4']}, workloads: [memory: {cases: [faults]}]}")
    assert Overcommit().lacking(Request(host(1, monkeypatch), one, one.treatments()[0], accelerator="tcg")) == {}


def test_host_and_guests_share_equally_many_cpus() -> None:
    one = plan("2, 4", "1, 2", vcpus=2)
    for each in one.treatments()[0]:
        count, level = machines_at_once(each), int(each.levels["cpu.overcommit"])
        assert count is not None
        settings = GuestSettings.of(each.levels)
        assert cpus_of_all(settings, sized(one, each.levels).guest.vcpus) == count * 2 // level, each.name


class Shared:
    """A guest whose threads run on these CPUs, look after look."""

    path = "host/vm"

    def __init__(self, *looks: list[str]) -> None:
        self.looks = list(looks)

    def threads(self, parent: object) -> tuple[Thread, ...]:
        there = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return tuple(Thread(10 + number, None, each) for number, each in enumerate(there))


def test_every_thread_is_held_and_looked_at_again() -> None:
    parent = SimpleNamespace(ran=[])
    parent.try_run = lambda *argv: parent.ran.append(argv)
    hold(parent, Shared(["0-3", "0"], ["0-1", "0-1"]), "1,0")  # type: ignore[arg-type]
    assert parent.ran == [("taskset", "--cpu-list", "--pid", "1,0", str(number)) for number in (10, 11)]
    with pytest.raises(BootFailed, match=r"cpu.overcommit was not obtained: threads of its QEMU run beside CPUs 0-1"):
        hold(parent, Shared(["0-1", "0-3"]), "0-1")  # type: ignore[arg-type]


def test_a_host_s_sets_have_the_level_only_where_there_are_several() -> None:
    names = {each.name for each in plan("1, 4", "1, 2").treatments()[0] if each.layer == "host"}
    assert names == {"host", "host guest.count=4", "host guest.count=4 cpu.overcommit=2"}
