"""The bars of `make prove-live`: what counts as recovered."""

from __future__ import annotations

import pytest

from tools.prove_live import AGAIN, BASE, COSTS, METRIC, bar, prove, rate, treatments
from vmtax.analysis.comparisons import contrasts
from vmtax.core.records import Comparison, Measurement, Metric, Treatment, Trial

IOPS = Metric(METRIC, "1/s", "higher")


def met(truth: float, low: float | None, high: float | None) -> bool:
    """Whether an overhead between `low` and `high` meets the bar."""
    ends = (None, None) if low is None or high is None else (1 - high, 1 - low)
    return bar(Comparison(IOPS, BASE, "x", 1 - truth, *ends, 10, "worse"), truth).met


@pytest.mark.parametrize(
    ("truth", "low", "high", "wanted"),
    [
        (0.03, 0.029, 0.031, True),
        (0.03, 0.0325, 0.035, True),  # within 0.3 points
        (0.03, 0.034, 0.036, False),
        (0.03, -0.001, 0.06, False),  # shows nothing
        (0.5, 0.49, 0.496, False),
        (0.0, -0.001, 0.001, True),
        (0.0, 0.0005, 0.001, False),  # a difference between a guest and itself
        (0.03, None, None, False),
    ],
)
def test_a_cost_is_recovered_where_the_interval_covers_it_and_excludes_none(
    truth: float, low: float | None, high: float | None, wanted: bool
) -> None:
    assert met(truth, low, high) is wanted


class Exact:
    """Guests that give exactly what their limit lets through."""

    def __init__(self, free: float) -> None:
        self.free = free

    def trial(self, number: int, position: int, treatment: Treatment) -> Trial:
        value = float(treatment.levels["disk.iops_limit"]) or self.free
        value *= 1 + 1e-5 * ((5 * number + 3 * position) % 7 - 3)  # no two runs alike
        return Trial(
            *(number, position, treatment.name, "disk", "randread-4k-qd1", 1, "ok", 0.0, 1.0),
            measurements=(Measurement(IOPS, value),),
        )


def test_every_planted_cost_is_compared_with_the_base() -> None:
    planned = treatments(1000)
    assert [int(entry.levels["disk.iops_limit"]) for entry in planned] == [1000, 1000, 970, 900, 500]
    assert set(contrasts(planned)) == {(BASE, name) for name in (AGAIN, *COSTS)}
    bars = prove(Exact(5000.0), 10, 1000, seed=1)
    assert [entry.met for entry in bars] == [True] * 5 and len(bars) == 1 + len(planned) - 1


def test_a_disk_that_is_slower_than_the_limit_proves_nothing() -> None:
    (only,) = prove(Exact(2900.0), 10, 1000, seed=1)
    assert not only.met and "3000/s or more" in only.wanted
    assert rate(None) == 0.0
