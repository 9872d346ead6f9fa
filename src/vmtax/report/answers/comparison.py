"""How one treatment stands to another, or to all. The context is the analysis of the run."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.analysis import comparisons, rankings
from vmtax.core import records
from vmtax.report.answers.part import Part
from vmtax.report.answers.shape import EITHER_EMULATED, EMULATED, UNIT, Key, Shape


@dataclass(frozen=True)
class Overhead(Part):
    """A ratio as a cost: the lost rate, 1 - ratio, where higher is better; the added time, ratio - 1, where lower is
    better.
    """

    estimate: float | None  # a fraction: 0.02 is 2 %; above 0 is a cost; null: there is no ratio
    low: float | None  # lower end of its interval; null: there is no interval
    high: float | None  # upper end of its interval


OVERHEAD = Key(Overhead, "the ratio as a cost", lambda found, _: Overhead(*comparisons.overhead(found)))
COMPARISON = Shape(
    records.Comparison,
    "metric=metric.name unit=metric.unit better=metric.better baseline treatment ratio low high overhead rounds verdict"
    " mean_ratio p95_ratio baseline_stalls treatment_stalls stalls_p carry_over carry_over_p emulated warnings"
    " verdict_code notice_codes",
    {"unit": UNIT, "overhead": OVERHEAD, "emulated": EITHER_EMULATED},
)
STANDING = Shape(rankings.Standing, "treatment overhead low high top tie beaten_by emulated", {"emulated": EMULATED})
RANKING = Shape(
    rankings.Ranking,
    "metric=metric.name layer side count standings rounds incomplete same_within unranked",
    parts=[STANDING],
)
