"""The A/A: told as the noise floor in every report, and part of nothing else."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.answers import experiment_data
from tests.sample import sample_experiment, with_repeat
from tests.unit.test_report import printed
from vmtax.analysis import comparisons as compare
from vmtax.analysis import summary
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import view
from vmtax.analysis.noise import floor_of, noise_floor
from vmtax.core.records import Experiment, Metric, Treatment
from vmtax.report.render.formats import FORMATS
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections.summary import findings, headline
from vmtax.report.show import render

PLAIN = sample_experiment(rounds=8, treatments=5)
REPEATED = with_repeat(PLAIN)


def on_terminal(experiment: Experiment) -> str:
    return printed(render(Analysis(experiment), full=True))


def test_a_guest_is_set_against_itself_once() -> None:
    pairs = compare.contrasts(REPEATED.treatments)
    assert pairs == (*compare.contrasts(PLAIN.treatments), ("vm", "vm again"))


def test_the_floor_is_reported_for_every_primary_metric() -> None:
    analysis = Analysis(REPEATED)
    floors = noise_floor(analysis)
    assert [floor.metric.name for floor in floors] == REPEATED.plan["primary"]
    assert all(floor.effect.unclear and floor.effect.emulated for floor in floors), "nothing was planted"
    texts = (render_html(analysis), render_markdown(analysis), on_terminal(REPEATED))
    for text in texts:
        assert "oise floor" in text and "against itself" in text
        assert "CPU chess, all CPUs, vm" in text
    told = experiment_data(analysis)["noise_floor"]
    assert [(entry["metric"], entry["treatment"]) for entry in told] == [
        (name, "vm again") for name in REPEATED.plan["primary"]
    ]
    assert noise_floor(Analysis(PLAIN)) == ()


@pytest.mark.parametrize(
    ("ends", "floor"),
    [
        (((0.99, 1.05),), 1.05),
        (((0.8, 1.01),), 1.25),  # as far below as 1.25 is above
        (((0.5, 0.8),), 2.0),
        (((0.99, 1.01), (0.97, 1.02)), 1 / 0.97),  # of several guests the farthest
        (((None, None),), None),
        ((), None),
    ],
)
def test_the_floor_is_the_farthest_end_in_either_direction(
    ends: tuple[tuple[float | None, float | None], ...], floor: float | None
) -> None:
    metric = Metric("a.time", "s", "lower")
    again = [Treatment(f"vm{n} again", "vm", {}, repeats=f"vm{n}") for n in range(len(ends))]
    pairs = zip(again, ends, strict=True)
    contrasts = {(metric, t.repeats, t.name): SimpleNamespace(low=low, high=high) for t, (low, high) in pairs}
    analysis: Any = SimpleNamespace(experiment=SimpleNamespace(treatments=again), contrasts=contrasts)
    assert floor_of(metric, analysis) == (None if floor is None else pytest.approx(floor))


@pytest.mark.parametrize(
    ("ratio", "low", "high", "floor", "same"),
    [
        (1.03, 0.99, 1.08, 1.05, True),
        (0.96, 0.92, 1.0, 1.05, True),
        (1.06, 1.0, 1.09, 1.05, False),  # beyond the floor
        (0.94, 0.92, 0.99, 1.05, False),
        (1.03, 0.99, 1.11, 1.05, False),  # perhaps beyond twice of it
        (0.97, 0.90, 1.04, 1.05, False),
        (1.03, 0.99, 1.08, None, False),
        (1.03, None, None, 1.05, False),
    ],
)
def test_the_same_is_a_cost_within_the_floor_whose_interval_is_within_twice_of_it(
    ratio: float, low: float | None, high: float | None, floor: float | None, same: bool
) -> None:
    assert summary._is_same(ratio, low, high, floor) is same


def test_the_repeat_is_no_treatment_of_its_own_elsewhere() -> None:
    before, after = Analysis(PLAIN), Analysis(REPEATED)
    assert headline(after) == headline(before)
    assert [f.sentence for f in findings(after)] == [f.sentence for f in findings(before)]
    assert view(after).workloads == view(before).workloads
    assert not re.search(r"vm again\b", on_terminal(REPEATED).split("Warnings")[0])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.varied(3)
def test_every_format_takes_it(name: str) -> None:
    assert FORMATS[name].render(Analysis(REPEATED))
