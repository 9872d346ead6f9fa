"""What is said of a plan before it runs: what is compared, for how long, and what it cannot show."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.spin import spin_plan
from vmtax.design.factors import FACTORS
from vmtax.plan.errors import unknown
from vmtax.plan.estimate import NOTHING, check, fit_rounds
from vmtax.plan.schema import PlanError, as_written, builtin_plans, from_data, load, parse


def test_a_question_takes_the_place_of_the_precision(spin: None) -> None:
    assert spin_plan().precision == 0.02
    asked = spin_plan(decide={"worse_than": "3%"})
    assert (asked.precision, asked.stopping().worse_than) == (None, 0.03)
    assert from_data(asked.model_dump(mode="json")) == asked
    assert as_written(asked)["decide"] == {"worse_than": "3%"}
    assert (
        "stops when it is settled for every primary contrast whether it is worse by 3 %,"
        " checked after rounds 8, 12, 18, 27, 40, 60" in check(asked)
    )
    assert spin_plan(decide={"worse_than": "3%"}, precision="1%").precision == 0.01
    assert as_written(spin_plan(precision="none"))["precision"] == "none"
    with pytest.raises(PlanError, match=r"decide takes rounds.max of 6 or more, but max is 5"):
        spin_plan(decide={"worse_than": "3%"}, rounds={"min": 1, "max": 5})
    with pytest.raises(PlanError, match=r"decide.worse_than: must be from 0.01% to 50%"):
        spin_plan(decide={"worse_than": "0%"})


def test_check_says_what_is_compared_left_out_and_possible(spin: None) -> None:
    plan = spin_plan(
        factors={"disk.cache": ["none", "writeback"], "disk.aio": ["native", "threads"]},
        exclude=[{"layers": "nested"}, {"disk.bus": "ide"}],
        workloads=["spin", "start"],
        rounds={"min": 3, "max": 5},
        budget=None,
    )
    native = "disk.aio=native needs O_DIRECT, which disk.cache=writeback does not use"
    assert check(plan) == [
        "4 configurations: host, vm, vm disk.aio=threads, vm disk.cache=writeback disk.aio=threads",
        f"left out: vm disk.cache=writeback: {native}",
        f"left out: nested disk.cache=writeback: {native}",
        "left out: nested: excluded by the plan's exclude[0]",
        "left out: nested disk.aio=threads: excluded by the plan's exclude[0]",
        "left out: nested disk.cache=writeback disk.aio=threads: excluded by the plan's exclude[0]",
        "exclude[1] leaves nothing out: no configuration matches it",
        "vm is measured twice in each round, to show the noise",
        "3 to 5 rounds (6 are enough for intervals and ranking)",
        "stops when every primary interval is within ±2 %, checked after rounds 10, 12, 14 …",
        "on hardware with KVM: about 1 m 25 s per round, 4 m 15 s to 7 m 05 s in total",
        "no interval can be given after 5 rounds: 95 % needs 6",
        "5 rounds cannot rank 3 configurations: that takes 6",
        "nothing ends this run early: that is first checked after round 10",
    ]


def test_a_hand_made_list_of_treatments(spin: None) -> None:
    entries = [{"name": "lvm", "disk.volume": "lvm", "disk.filesystem": "none"}, {"disk.cache": ["none", "unsafe"]}]
    plan = spin_plan(layers=["vm"], combinations=entries)
    lvm, plain, unsafe = (treatment.name for treatment in plan.treatments()[0])
    assert (lvm, unsafe) == ("vm lvm", f"{plain} disk.cache=unsafe")
    assert as_written(plan)["combinations"][0] == {k: v if k == "name" else [v] for k, v in entries[0].items()}
    assert from_data(as_written(plan)).space == plan.space
    assert from_data(plan.model_dump(mode="json")) == plan
    wrong = [
        {"name": "a b", "disk.volume": "lvm"},
        {"name": "twice", "disk.cache": "none"},
        {"name": "twice"},
        {"disk.bus": "ide", "disk.volum": "lvm", "disk.cache": "writebak"},
    ]
    with pytest.raises(PlanError) as raised:
        spin_plan(layers=["vm"], factors={"disk.bus": "ide"}, combinations=wrong)
    assert "combinations[0].name: must be 1 to 40 letters, digits or any of" in str(raised.value)
    with pytest.raises(PlanError) as raised:
        spin_plan(layers=["vm"], factors={"disk.bus": "ide"}, combinations=wrong[1:])
    assert [line.partition("combinations")[2] for line in str(raised.value).splitlines()] == [
        "[1]: names no level: say what it is, such as {disk.volume: lvm, disk.filesystem: none}",
        "[1].name: 'twice' is given twice",
        "[2].disk.bus: disk.bus is in factors as well: name it in one of the two",
        "[2].disk.volum: unknown factor 'disk.volum'; did you mean disk.volume? legal: " + ", ".join(FACTORS),
        "[2].disk.cache[0]: unknown level of disk.cache 'writebak'; did you mean writeback? legal: none, writeback,"
        " writethrough, directsync, unsafe",
    ]


def test_check_says_when_there_is_nothing_to_compare(spin: None) -> None:
    lines = check(spin_plan(layers=["vm"], rounds={"min": 9, "max": 9}))
    assert "nothing to compare: add a layer, or a second level of a factor" in lines
    assert "9 rounds (6 are enough for intervals)" in lines


def test_check_says_what_every_configuration_has_and_which_is_the_baseline(spin: None) -> None:
    one = {"disk.cache": "writeback", "disk.aio": "threads", "cpu.pinning": "one-to-one"}
    lines = check(spin_plan(layers=["host", "vm", "nested"], factors=one))
    assert "disk.cache=writeback in every guest" in lines and "cpu.pinning=one-to-one in every VM" in lines
    assert "nothing to compare: add a layer, or a second level of a factor" not in lines
    lines = check(
        spin_plan(layers=["vm"], factors={"disk.cache": ["writeback", "none"], "disk.aio": ["native", "threads"]})
    )
    assert "baseline: vm disk.aio=threads; the one with the first level of every factor is left out" in lines
    lines = check(spin_plan(layers=["vm"], factors={"disk.cache": ["none", "writeback"], "disk.aio": ["threads"]}))
    assert [line for line in lines if "baseline" in line] == []
    assert "disk.aio=threads in every configuration" in lines
    lines = check(spin_plan(layers=["vm"], factors={"disk.share": ["none", "9p"], "disk.cache": "writeback"}))
    assert "disk.cache=writeback in every configuration with disk.share=none" in lines


def test_a_budget_that_suffices_costs_nothing(spin: None) -> None:
    assert fit_rounds(spin_plan(budget=600, rounds={"min": 7, "max": 60}), 10) == (60, [])
    assert fit_rounds(spin_plan(budget=None), 1e9) == (60, [])


@pytest.mark.parametrize(
    ("rounds", "seconds", "fitted", "first"),
    [
        ({"min": 7, "max": 60}, 20, 30, "the plan's budget of 10 m 00 s allows 30 of up to 60 rounds"),
        (
            {"min": 10, "max": 60},
            75,
            8,
            "the plan's budget of 10 m 00 s allows 8 of up to 60 rounds, fewer than rounds.min (10)",
        ),
        (
            {"min": 10, "max": 60},
            100,
            7,
            "the plan's budget of 10 m 00 s is too small and will be exceeded: 7 rounds need about",
        ),
        ({"min": 2, "max": 60}, 200, 3, "the plan's budget of 10 m 00 s allows 3 of up to 60 rounds"),
        (
            {"min": 2, "max": 60},
            500,
            2,
            "the plan's budget of 10 m 00 s is too small and will be exceeded: 2 rounds need about",
        ),
    ],
)
def test_a_small_budget_never_cuts_rounds_silently(
    spin: None, rounds: dict[str, int], seconds: float, fitted: int, first: str
) -> None:
    number, warnings = fit_rounds(spin_plan(budget=600, rounds=rounds), seconds)
    assert number == fitted
    assert warnings[0].startswith(first)
    assert ("no interval can be given" in " ".join(warnings)) == (fitted < 6)


@pytest.mark.parametrize("name", builtin_plans())
def test_what_is_shown_can_be_loaded(name: str) -> None:
    plan = load(name)
    again = parse(yaml.safe_dump(as_written(plan), sort_keys=False))
    assert as_written(again) == as_written(plan)
    assert [w.parameters for w in again.build_workloads()] == [w.parameters for w in plan.build_workloads()]
    assert again.model_dump(exclude={"workloads"}) == plan.model_dump(exclude={"workloads"})


def test_more_threads_than_cpus_must_be_meant() -> None:
    text = "name: p\nguest: {vcpus: 2}\nworkloads:\n  - chess: {threads: [2, 4]%s}\n"
    with pytest.raises(
        PlanError, match=r"plan:4:5: .*threads is 4, and guest\.vcpus 2: .* more_threads_than_cpus: true"
    ):
        parse(text % "")
    assert parse(text % ", more_threads_than_cpus: true").workloads[0].parameters["threads"] == [2, 4]


def test_of_a_plan_that_only_counts_nothing_is_said_of_comparisons_and_intervals() -> None:
    lines = check(from_data({"name": "d", "layers": ["vm"], "workloads": ["durability"]}))
    assert "7 to 60 rounds planned; what is counted in them is added up" in lines
    assert not [line for line in lines if "compare" in line or "interval" in line]


def test_guests_that_cannot_be_ended_while_they_write_are_said_beforehand() -> None:
    plan = {"name": "d", "layers": ["vm"], "workloads": ["durability"], "factors": {"guest.count": [1, 2]}}
    lines = check(from_data(plan))
    assert "left out: vm guest.count=2: durability ends one guest at a time: leave guest.count=1" in lines
    assert not [line for line in check(from_data({**plan, "workloads": ["disk"]})) if "durability" in line]


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"mount_options": "barrier=0,ro"}, "mount_options: ro: the writers could write nothing; leave it out"),
        (
            {"writers": ["append-fsync-4k", "overwrite-fsync-1m"], "size": "64MiB", "room": "33MiB"},
            "2 of its writers keep 33MiB each, more than size, which is 64MiB: lower room, or raise size",
        ),
    ],
)
def test_writers_that_could_not_write_are_refused(parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(PlanError, match=re.escape(complaint)):
        from_data({"name": "d", "layers": ["vm"], "workloads": [{"durability": parameters}]})


def test_a_plan_in_which_only_the_number_of_guests_varies_compares_nothing_and_runs_to_its_end() -> None:
    text = (
        "name: x\nlayers: [LAYERS]\nguest: {memory: 512MiB}\nfactors: {guest.count: ['1', '4']}\nworkloads: [cpuid]\n"
    )
    alone, both = (check(parse(text.replace("LAYERS", layers))) for layers in ("vm", "host, vm"))
    assert "nothing to compare: add a layer, or a second level of a factor" in alone
    assert not [line for line in alone if line.startswith("stops when")]
    assert "nothing to compare: add a layer, or a second level of a factor" not in both
    assert [line for line in both if line.startswith("stops when")]
    assert [line for line in both if line.startswith("guest.count: only configurations with the same number")]


def test_guests_with_roles_are_told_by_their_number() -> None:
    assert NOTHING not in check(load("tiles"))


def test_no_other_number_is_suggested_for_a_wrong_number() -> None:
    assert "did you mean" not in str(unknown("level of guest.count", "17", ["1", "12", "16"]))
    assert "did you mean none" in str(unknown("level of disk.cache", "non", ["none"]))
