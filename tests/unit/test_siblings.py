"""Whether two CPUs of a pinned guest share a core of the host: where it can be had, and whether it was."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine
from tests.topologies import ALDER, Cores, files, printed
from vmtax.design.guest import GuestSettings
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, parse
from vmtax.plan.vary import varied
from vmtax.testbed.host.cpus import QUESTION
from vmtax.testbed.host.obtained import why_not
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.siblings import Siblings

SMT = (Cores(8, 2),)


def plan(vcpus: int, *changes: str) -> Plan:
    text = f"{{name: x, layers: [vm], guest: {{vcpus: {vcpus}, memory: 1GiB}}, workloads: [chess]}}"
    return varied(parse(text, "x"), changes)


@pytest.mark.parametrize(
    ("cores", "vcpus", "why"),
    [
        (SMT, 2, {}),
        (SMT, 4, {}),
        (SMT, 6, {"apart": "needs 6 cores that are alike, and the host has 4"}),
        (
            (Cores(8),),
            2,
            {"together": "needs 1 core with two threads that are alike, and the host has no core with two"},
        ),
        (
            (Cores(2, 2), Cores(6)),
            4,
            {"together": "needs 2 cores with two threads that are alike, and the host has 1 of"},
        ),
        (ALDER, 4, {}),
        (ALDER, 10, {"apart": "needs 10 cores that are alike, and the host has 8"}),
    ],
)
def test_hosts_that_have_no_such_cores(cores: tuple[Cores, ...], vcpus: int, why: dict[str, str]) -> None:
    host = FakeMachine("host", {QUESTION: printed(files(*cores))})
    asked = plan(vcpus, "cpu.siblings=auto,apart,together")
    treatments = asked.treatments()[0]
    assert {each.levels["cpu.pinning"] for each in treatments} == {"one-to-one"}, "it has a meaning with pinning alone"
    found = Siblings().lacking(Request(host, asked, treatments))
    assert list(found) == [f"vm cpu.siblings={level}" for level in why]
    for level, words in why.items():
        assert found[f"vm cpu.siblings={level}"].startswith(f"cpu.siblings={level} {words}")


def test_an_odd_number_of_cpus_makes_no_pairs() -> None:
    with pytest.raises(PlanError, match=r"cpu.siblings=together needs guest.vcpus=2"):
        plan(3, "cpu.siblings=apart,together")


@pytest.mark.parametrize(
    ("levels", "paired"),
    [
        ({}, False),
        ({"cpu.topology": "threads"}, True),
        ({"cpu.siblings": "apart", "cpu.topology": "threads"}, False),
        ({"cpu.siblings": "together"}, True),
    ],
)
def test_without_a_level_they_are_placed_as_the_guest_takes_them(levels: dict[str, str], paired: bool) -> None:
    assert GuestSettings.of(levels).paired is paired


@pytest.mark.parametrize(
    ("level", "cores", "why"),
    [
        ("together", 1, None),
        ("together", 2, "cpu.siblings=together was not obtained: 2 CPUs are pinned to 2 cores of the host, not 1"),
        ("apart", 2, None),
        ("apart", 1, "cpu.siblings=apart was not obtained: 2 CPUs are pinned to 1 cores of the host, not 2"),
        ("auto", 1, None),
    ],
)
def test_a_guest_on_other_cores_has_not_got_its_level(level: str, cores: int, why: str | None) -> None:
    assert why_not(GuestSettings(pinned=True, siblings=level), 2, {"cpu.pinned_cores": cores}, ["cpu.siblings"]) == why
