"""The course of a run, and whether its machine drifted."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from tests.changed import at, calm, changed, scaled
from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.drift import Course, courses
from vmtax.core.records import Experiment


def course_of(experiment: Experiment) -> tuple[Course, ...]:
    """The courses of the metrics that stand for their workloads."""
    analysis = Analysis(experiment)
    return courses(analysis, tuple(analysis.headline_metrics.values()))


def test_the_course_holds_every_trial_in_run_order() -> None:
    experiment = sample_experiment(rounds=10, failures=1)
    chess, *_ = course_of(experiment)
    assert chess.name == "CPU: chess, all CPUs"
    places = [point.place for point in chess.points]
    assert places == sorted(places) and len(places) == 30
    assert statistics.median(p.relative or 0 for p in chess.points if p.treatment == "vm") == pytest.approx(1)


def test_a_lost_guest_is_marked_in_every_panel() -> None:
    lost = changed(
        sample_experiment(),
        lambda t: (
            dataclasses.replace(t, workload="boot", case="", status="failed", error="lost", measurements=())
            if (t.round, t.treatment) == (4, "vm")
            else t
        ),
    )
    assert all(course.failed for course in course_of(lost))


def test_drift_is_seen() -> None:
    experiment = changed(calm(sample_experiment(rounds=9)), lambda t: scaled(t, 0.9) if t.round > 6 else t)
    for course in course_of(experiment):
        assert course.shift == pytest.approx(0.9 * 108 / 102)
        assert course.farthest == pytest.approx(107 * 0.9 / 102)
    assert course_of(sample_experiment(rounds=5))[0].shift is None
    assert course_of(sample_experiment(rounds=1)) == ()


@pytest.mark.parametrize(("rounds", "shift"), [(5, None), (6, 0.9 * 105.5 / 101.5)])
def test_thirds_of_single_rounds_show_no_drift(rounds: int, shift: float | None) -> None:
    run = changed(calm(sample_experiment(rounds=rounds)), lambda t: scaled(t, 0.9) if t.round > 4 else t)
    found, *_ = course_of(run)
    assert found.shift == (None if shift is None else pytest.approx(shift))


def test_a_trial_that_failed_counts_only_where_no_other_gave_the_value() -> None:
    run = sample_experiment()
    failed = changed(run, lambda t: dataclasses.replace(t, status="failed", measurements=()) if at(t, 4) else t)
    assert course_of(failed)[0].failed == 1
    again = dataclasses.replace(failed, trials=(*failed.trials, *(trial for trial in run.trials if at(trial, 4))))
    assert course_of(again)[0].failed == 0


def test_a_point_has_its_value_or_why_there_is_none() -> None:
    run = changed(
        sample_experiment(),
        lambda t: dataclasses.replace(t, status="failed", error="no end", measurements=()) if at(t, 4) else t,
    )
    chess, *_ = course_of(run)
    (lost,) = [point for point in chess.points if point.relative is None]
    assert (lost.value, lost.error, lost.round, lost.treatment) == (None, "failed: no end", 4, "vm")
    assert all(point.value and not point.error for point in chess.points if point is not lost)
