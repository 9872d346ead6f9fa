"""Which values are outliers, and which readings of the host stand out then."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.changed import at, calm, changed, scaled
from tests.sample import sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.outliers import GAUGES, Outlier, fences, outliers
from vmtax.core.records import Disturbance, Experiment


def one(experiment: Experiment) -> Outlier:
    """Its only one."""
    (found,) = outliers(Analysis(experiment)).found
    return found


def test_an_outlier_without_a_cause_says_nothing_stands_out() -> None:
    found = one(changed(calm(sample_experiment(rounds=8)), lambda t: scaled(t, 0.6) if at(t, 4) else t))
    assert found.causes == () and len(found.readings) == len(GAUGES)


def test_outliers_stay_in_every_figure() -> None:
    quiet = calm(sample_experiment(rounds=8))
    stalled = changed(quiet, lambda t: scaled(t, 0.6) if at(t, 4) else t)
    assert [c.rounds for c in Analysis(stalled).comparisons] == [c.rounds for c in Analysis(quiet).comparisons]


def test_a_reading_stands_out_if_it_is_unusual_and_the_difference_is_large_enough_to_mean_anything() -> None:
    def standing_out(usual: Disturbance, then: Disturbance) -> tuple[str, ...]:
        run = changed(
            calm(sample_experiment(rounds=8)),
            lambda t: dataclasses.replace(scaled(t, 0.6), disturbance=then) if at(t, 4) else t,
        )
        others = changed(run, lambda t: t if at(t, 4) else dataclasses.replace(t, disturbance=usual))
        return one(others).causes

    quiet = Disturbance(5.0, 5.5, 0.0, 0.02, 0.05, 0.0, 2.4e9, 0)
    assert standing_out(quiet, quiet) == ()
    for gauge, little, much in (
        ("steal", {"steal_seconds": 0.09}, {"steal_seconds": 0.11}),
        ("busy CPUs", {"busy_seconds": 5.9}, {"busy_seconds": 6.1}),
        ("frequency", {"mean_frequency_hz": 2.39e9}, {"mean_frequency_hz": 2.3e9}),
        ("throttles", {"throttles": 0}, {"throttles": 1}),
    ):
        assert standing_out(quiet, dataclasses.replace(quiet, **little)) == (), gauge
        assert standing_out(quiet, dataclasses.replace(quiet, **much)) == (gauge,)
    assert standing_out(quiet, dataclasses.replace(quiet, mean_frequency_hz=3e9)) == ("frequency",), "either way"
    restless = changed(
        calm(sample_experiment(rounds=8)),
        lambda t: dataclasses.replace(
            scaled(t, 0.6 if at(t, 4) else 1.0), disturbance=dataclasses.replace(quiet, throttles=(t.round + 1) % 3)
        ),
    )
    assert one(restless).causes == (), "a reading that varies as much otherwise, too, is usual"
    busy = dataclasses.replace(quiet, busy_seconds=20.0)
    assert standing_out(busy, quiet) == (), "less than usual explains nothing"


def test_how_often_mere_scatter_lies_beyond_the_fences() -> None:
    """The figures that the report's note names."""
    rng = np.random.default_rng(1)
    for size, share in ((10, 0.04), (60, 0.01)):
        beyond = 0
        for _ in range(2000):
            values = rng.standard_normal(size)
            low, high = fences(values.tolist())
            beyond += int(((values < low) | (values > high)).sum())
        assert beyond / (2000 * size) == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize(("rounds", "many"), [(5, 0), (6, 1)])
def test_few_values_have_no_outlier(rounds: int, many: int) -> None:
    found = outliers(
        Analysis(changed(calm(sample_experiment(rounds=rounds)), lambda t: scaled(t, 0.6) if at(t, 4) else t))
    )
    assert len(found.found) == many and bool(found.values) == bool(many)
