"""How one treatment stands to another, or to all. The context is the analysis of the run."""

from __future__ import annotations

from vmtax.analysis import comparisons, rankings
from vmtax.core import records
from vmtax.report.answers.shape import EITHER_EMULATED, EMULATED, UNIT, AnswerKey, Shape

OVERHEAD = Shape(comparisons.Overhead, "estimate low high")
COMPARISON = Shape(
    records.Comparison,
    "metric=metric.name unit=metric.unit better=metric.better baseline treatment ratio low high overhead rounds verdict"
    " mean_ratio p95_ratio baseline_stalls treatment_stalls stalls_p carry_over carry_over_p emulated warnings"
    " verdict_code notice_codes",
    {
        "unit": UNIT,
        "overhead": AnswerKey(
            comparisons.Overhead, "the ratio as a cost", lambda found, _: comparisons.overhead(found)
        ),
        "emulated": EITHER_EMULATED,
    },
    parts=[OVERHEAD],
)
STANDING = Shape(rankings.Standing, "treatment overhead low high top tie beaten_by emulated", {"emulated": EMULATED})
RANKING = Shape(
    rankings.Ranking,
    "metric=metric.name layer side count standings rounds incomplete same_within unranked",
    parts=[STANDING],
)
