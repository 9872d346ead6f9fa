"""Guests that share CPUs: which numbers go, what the host must have, and that no thread runs beside them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.asked import accepted
from tests.fake_machine import FakeMachine
from tests.topologies import listed
from vmtax.core.records import Treatment
from vmtax.design.factors import why_illegal
from vmtax.design.guest import COUNTS, OVERCOMMITS
from vmtax.design.topology import machines_at_once
from vmtax.hypervisor import BootFailed, Thread
from vmtax.plan.guests import sized
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.testbed.host import cpus
from vmtax.testbed.host.cpus import Sets
from vmtax.testbed.layers import host as layer_host
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.equal import EqualCpus
from vmtax.testbed.parts.overcommit import Overcommit, hold, sets_of, shared
from vmtax.testbed.session.examine import Examined

PLAN = (
    "{{name: x, layers: [host, vm], guest: {{vcpus: {vcpus}, memory: 512MiB}},"
    " workloads: [memory: {{cases: [faults]}}], factors: {{guest.count: [{count}], cpu.overcommit: [{levels}]}}}}"
)


def plan(count: str, levels: str, vcpus: int = 1) -> Plan:
    return parse(PLAN.format(count=count, levels=levels, vcpus=vcpus))


@pytest.mark.parametrize("vcpus", ["1", "2", "3", "4", "6", "8", "64"])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.varied(15)
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
    assert all(why.startswith("cpu.overcommit=") and " at once take " in why for why in lacking.values())


@pytest.mark.parametrize(("has", "without"), [(4, set()), (3, {"2"}), (1, {"1", "2"})])
def test_guests_of_several_sizes_are_judged_by_what_they_share(
    has: int, without: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = varied(plan("4", "2"), ["guest.vcpus=1,2"])
    there = FakeMachine(
        "host", {cpus.QUESTION: listed(f"0-{has - 1}"), ("cat", "/proc/meminfo"): "MemAvailable: 90000000 kB\n"}
    )
    treatments = one.treatments()[0]
    request = Request(there, one, treatments, accelerator="kvm")
    lacking = {**EqualCpus().lacking(request), **Overcommit().lacking(request)}
    assert {each.levels["guest.vcpus"] for each in treatments if each.name in lacking} == without


def test_a_plan_that_does_not_name_it_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    one = parse("{name: x, layers: [vm], factors: {guest.count: ['4']}, workloads: [memory: {cases: [faults]}]}")
    assert Overcommit().lacking(Request(host(1, monkeypatch), one, one.treatments()[0], accelerator="tcg")) == {}


def test_host_and_guests_share_equally_many_cpus() -> None:
    one = plan("2, 4", "1, 2", vcpus=2)
    for each in one.treatments()[0]:
        count, level = machines_at_once(each), int(each.levels["cpu.overcommit"])
        assert count is not None
        assert sets_of(each).cpus(sized(one, each.levels).guest.vcpus) == count * 2 // level, each.name


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
    with pytest.raises(
        BootFailed, match=r"cpu.overcommit was not obtained: threads of its QEMU may run beside CPUs 0-1"
    ):
        hold(parent, Shared(["0-1", "0-3"]), "0-1")  # type: ignore[arg-type]


def test_a_host_s_sets_have_the_level_only_where_there_are_several() -> None:
    names = {each.name for each in plan("1, 4", "1, 2").treatments()[0] if each.layer == "host"}
    assert names == {"host", "host guest.count=4", "host guest.count=4 cpu.overcommit=2"}


def on(count: int, **more: Any) -> Any:
    """A host with `count` CPUs that are alike, as the layers see it. `more`: fields of it"""
    topology = cpus.CpuTopology(tuple(cpus.Cpu(number, number) for number in range(count)))
    fields = {"topology": topology, "plan": plan("2, 4", "1, 2, 4"), "unbound": "", **more}
    one = SimpleNamespace(**fields)
    one.node = lambda chosen: None
    one.cpus_of_all = lambda sets: Examined.cpus_of_all(one, sets)
    one.kept = lambda sets: Examined.kept(one, sets)
    return one


def named(name: str) -> Treatment:
    return next(each for each in plan("2, 4", "1, 2, 4").treatments()[0] if each.name == name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vm", "0,1"),
        ("vm cpu.overcommit=2", "0"),
        ("vm guest.count=4", "0,1,2,3"),
        ("vm guest.count=4 cpu.overcommit=2", "0,1"),
        ("vm guest.count=4 cpu.overcommit=4", "0"),
    ],
)
def test_host_container_and_guests_share_the_same_cpus_also_at_level_1(name: str, text: str) -> None:
    there = on(8)
    assert shared(there, named(name)) == text
    assert there.kept(sets_of(named(name))) == ("taskset", "-c", text)


def test_fewer_cpus_are_some_of_those_that_each_has_alone() -> None:
    """Of 4 fast and 6 slow CPUs, only the slow ones are enough for 6: then 3 are of these, too."""
    kinds = [*(("fast",) for _ in range(4)), *(("slow",) for _ in range(6))]
    there = on(0, plan=plan("6", "1, 2"))
    there.topology = cpus.CpuTopology(tuple(cpus.Cpu(n, n, type=kind) for n, kind in enumerate(kinds)))
    every, half = (there.cpus_of_all(Sets(6, share)).split(",") for share in (1, 2))
    assert len(every) == 6 and half == every[:3]


def test_a_guest_is_held_when_it_runs_and_one_that_shares_with_nobody_is_not() -> None:
    class Ordered:
        acts: list[Any]

        def then(self, act: Any) -> Any:
            self.acts = [act]
            return self

    parent, order = SimpleNamespace(ran=[]), Ordered()
    parent.try_run = lambda *argv: parent.ran.append(argv)
    Overcommit().shape(on(8, host=parent), named("vm cpu.overcommit=2"), order, ExitStack())  # type: ignore[arg-type]
    order.acts[0](Shared(["0-7"], ["0"]))
    assert parent.ran == [("taskset", "--cpu-list", "--pid", "0", "10")]
    alone = on(8, plan=parse("{name: x, layers: [vm], workloads: [memory: {cases: [faults]}]}"))
    one = alone.plan.treatments()[0][0]
    assert Overcommit().shape(alone, one, "as it was", ExitStack()) == "as it was"  # type: ignore[arg-type, comparison-overlap]


def test_sets_of_processes_on_the_host_share_as_guests_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sets] = []
    monkeypatch.setattr(layer_host, "site", lambda on, disk, number, sets: asked.append(sets))
    there: Any = SimpleNamespace(disks=None, host=SimpleNamespace(path="host"))
    layer_host.open_layer(there, named("host guest.count=4 cpu.overcommit=2"), ExitStack(), [])
    assert asked == 4 * [Sets(4, 2)]


def test_threads_that_cannot_be_read_are_not_held() -> None:
    with pytest.raises(BootFailed, match="was not obtained"):
        hold(SimpleNamespace(), Shared([]), "0-1")  # type: ignore[arg-type]


def test_it_is_said_that_vhost_may_run_elsewhere() -> None:
    one = plan("4", "2")
    for path, said in (("vhost", True), ("tap", False)):
        treatments = [replace(each, levels={**each.levels, "net.path": path}) for each in one.treatments()[0]]
        assert bool(Overcommit().notes(Request(FakeMachine("host", {}), one, treatments))) == said
