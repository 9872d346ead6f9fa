"""Each next step that is proposed can be done, and removes its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import State
from vmtax.report.sections.next_steps import next_steps

FEW = sample_experiment(rounds=2)


def first(**changes: Any) -> str:
    return next_steps(Analysis(replace(FEW, **changes)))[0][0]


@pytest.mark.parametrize("state", ["interrupted", "failed"])
def test_a_run_that_was_stopped_is_resumed_where_it_was_measured(state: State) -> None:
    assert first(state=state) == f"vmtax run --resume {FEW.id}"
    assert "--resume" not in first(state=state, options={"imported": True})


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("vmtax run quick", "vmtax run quick --rounds 7"),
        ("vmtax run quick --rounds 2 --yes --json", "vmtax run quick --rounds 7"),
        ("vmtax run quick --label 'before it' --budget 1h", "vmtax run quick --rounds 7"),
        ("vmtax run --yes --or-demo", "vmtax run --rounds 7"),
        ("vmtax run -y -o /srv/a.html --emulate", "vmtax run --emulate --rounds 7"),
        ("vmtax run --output 'my report.html' quick", "vmtax run quick --rounds 7"),
        ("vmtax run --output=a.html -ob.html quick", "vmtax run quick --rounds 7"),
    ],
)
def test_more_rounds_repeat_the_run_without_what_was_about_this_one(command: str, more: str) -> None:
    assert first(command=command) == more


def test_a_demonstration_is_not_made_longer() -> None:
    steps = [command for command, _ in next_steps(Analysis(replace(FEW, options={"demonstration": True})))]
    assert steps[0] == "vmtax doctor" and not [step for step in steps if step.startswith("vmtax run")]


def test_a_calibration_has_no_number_of_rounds() -> None:
    assert "--rounds" not in first(command="vmtax calibrate quick")
