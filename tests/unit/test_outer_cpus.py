"""An outer VM with more CPUs than its nested guests: where it fits, and what it is compared with."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine
from tests.topologies import Cores, files, printed
from vmtax.analysis.comparisons import contrasts
from vmtax.core.records import Treatment
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.testbed.host.cpus import QUESTION
from vmtax.testbed.layers.nested import carrier_cpus
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.outer import OUTER_CPUS, OuterCpus

PLAN = "{name: x, layers: [%s], guest: {vcpus: %d, memory: 1GiB}, workloads: [chess]}"


def plan(layers: str, vcpus: int, *changes: str) -> Plan:
    return varied(parse(PLAN % (layers, vcpus), "x"), changes)


@pytest.mark.parametrize(
    ("has", "vcpus", "changes", "refused"),
    [
        (8, 2, ("guest.outer_cpus=1,2,4",), {}),
        (4, 2, ("guest.outer_cpus=1,2,4",), {"4": "8 CPUs of outer VMs, and the host has 4 CPUs"}),
        (4, 1, ("guest.outer_cpus=4", "guest.count=2"), {"4": "8 CPUs of outer VMs, and the host has 4 CPUs"}),
        (1, 1, ("guest.outer_cpus=1",), {}),
        (8, 1, ("guest.outer_cpus=1,4", "guest.vcpus=1,4"), {"4": "16 CPUs of outer VMs, and the host has 8 CPUs"}),
    ],
)
def test_more_cpus_than_the_host_has(has: int, vcpus: int, changes: tuple[str, ...], refused: dict[str, str]) -> None:
    asked = plan("nested", vcpus, *changes)
    host = FakeMachine("host", {QUESTION: printed(files(Cores(has)))})
    found = OuterCpus().lacking(Request(host, asked, asked.treatments()[0]))
    assert len(found) == len(refused)
    for (level, words), said in zip(refused.items(), found.values(), strict=True):
        assert said.startswith(f"guest.outer_cpus={level}: {words}")


def test_an_outer_vm_has_as_many_times_the_cpus_of_its_guests() -> None:
    found = [carrier_cpus(2, Treatment("nested", "nested", {OUTER_CPUS: level}), 3) for level in ("1", "2", "4")]
    assert found == [6, 12, 24]


def test_the_vm_and_the_host_are_the_same_whatever_the_outer_vm_has() -> None:
    kept = plan("host, vm, nested", 2, "guest.outer_cpus=1,2").treatments()[0]
    assert [each.name for each in kept] == ["host", "vm", "nested", "nested guest.outer_cpus=2"]
    pairs = set(contrasts(kept))
    assert {("vm", "nested guest.outer_cpus=2"), ("nested", "nested guest.outer_cpus=2")} <= pairs


def test_a_plan_without_nested_guests_has_no_outer_vm() -> None:
    with pytest.raises(PlanError, match=r"guest\.outer_cpus"):
        plan("host, vm", 2, "guest.outer_cpus=1,2")
