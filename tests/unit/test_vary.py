"""`--vary`: a plan with other levels of some factors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.sample import sample_experiment
from vmtax.cli.asked import PlanChanges
from vmtax.cli.options import factor_levels
from vmtax.cli.running import overridden
from vmtax.experiment.resume import resumable
from vmtax.plan.schema import Plan, PlanError, load
from vmtax.plan.vary import varied
from vmtax.store import Store


def names(plan: Plan) -> list[str]:
    return [treatment.name for treatment in plan.treatments()[0]]


def test_a_factor_is_added_and_everything_else_is_kept() -> None:
    plan = load("disk-cache")
    wanted = varied(plan, ["disk.aio=native, io_uring"])
    assert wanted.factors == {**plan.factors, "disk.aio": ("native", "io_uring")}
    assert wanted.model_dump(exclude={"factors"}) == plan.model_dump(exclude={"factors"})
    assert "vm disk.aio=io_uring" in names(wanted)


def test_the_levels_of_the_plan_are_replaced_and_the_first_is_the_baseline() -> None:
    wanted = varied(load("disk-cache"), ["disk.cache=unsafe,none"])
    assert names(wanted) == ["vm", "vm disk.cache=none"]
    assert wanted.treatments()[0][0].levels["disk.cache"] == "unsafe"


def test_the_option_may_be_repeated_for_several_factors() -> None:
    wanted = varied(load("disk-cache"), ["disk.cache=none", "disk.aio=native,threads", "cpu.mitigations=off"])
    assert names(wanted) == ["vm", "vm disk.aio=threads"]
    assert {treatment.levels["cpu.mitigations"] for treatment in wanted.treatments()[0]} == {"off"}


@pytest.mark.parametrize(
    ("plan", "asked", "line"),
    [
        ("disk-cache", ["disk.ai=threads"], "--vary: unknown factor 'disk.ai'; did you mean disk.aio? legal: "),
        ("disk-cache", ["disk.aio=natve"], "--vary: unknown level of disk.aio 'natve'; did you mean native? legal: "),
        ("disk-cache", ["disk.aio"], "--vary: disk.aio: must have at least one level; legal: native, "),
        ("disk-cache", ["guest.count=1,1"], "--vary: guest.count: '1' is given twice"),
        ("disk-cache", ["disk.cache=none", "disk.cache=unsafe"], "--vary: disk.cache is given twice: "),
        (
            "disk-cache",
            ["disk.cache=writeback", "disk.aio=native"],
            "--vary: disk.cache=writeback needs disk.aio=threads: in place of --vary disk.aio=native, ",
        ),
        (
            "storage-2013",
            ["disk.volume=lvm"],
            "--vary: disk.volume is in combinations[1] of plan storage-2013, a list made by hand: ",
        ),
    ],
)
def test_what_cannot_be_varied_is_one_line(plan: str, asked: list[str], line: str) -> None:
    with pytest.raises(PlanError) as caught:
        varied(load(plan), asked)
    assert caught.value.problems[0].startswith(line)
    assert len([problem for problem in caught.value.problems if "combinations[" not in problem]) <= 1


def test_a_factor_of_another_layer_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=r"^--vary: cpu.mitigations: is about vm and nested, but layers has host$"):
        overridden(load("quick"), PlanChanges(layers="host", vary=["cpu.mitigations=off"]))


def test_a_stored_run_is_resumed_with_the_levels_that_it_was_begun_with(tmp_path: Path) -> None:
    plan = varied(load("disk-cache"), ["disk.cache=none", "disk.aio=native,io_uring"])
    run = replace(sample_experiment(rounds=1), plan=plan.model_dump(mode="json"), state="interrupted")
    with Store(tmp_path / "vmtax.sqlite") as store:
        store.put(run)
        assert resumable(store.load(run.id))[0] == plan


def test_completion_offers_factors_then_levels_that_are_not_named_yet() -> None:
    assert "disk.cache=" in factor_levels("disk.")
    assert factor_levels("disk.a") == ["disk.aio=native", "disk.aio=threads", "disk.aio=io_uring"]
    assert factor_levels("disk.aio=native,") == ["disk.aio=native,threads", "disk.aio=native,io_uring"]
    assert factor_levels("nosuch=") == factor_levels("nosuch") == []
