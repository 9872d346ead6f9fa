"""How one treatment stands to another, or to all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis import comparisons, rankings
from vmtax.core import records
from vmtax.core.notices import Code
from vmtax.core.records import VERDICT_CODES, Better, Verdict, VerdictCode
from vmtax.report.answers.part import Part


@dataclass(frozen=True)
class Overhead(Part):
    """A ratio as a cost: the lost rate, 1 - ratio, where higher is better; the added time, ratio - 1, where lower is
    better.
    """

    estimate: float | None  # a fraction: 0.02 is 2 %; above 0 is a cost; null: there is no ratio
    low: float | None  # lower end of its interval; null: there is no interval
    high: float | None  # upper end of its interval


def about(metric: records.Metric) -> dict[str, str]:
    """The keys that say which metric something is about."""
    return {"metric": metric.name, "unit": metric.unit, "better": metric.better}


@dataclass(frozen=True)
class Comparison(Part):
    """One metric of one treatment compared with a baseline. The ends of the interval are null if there are too few
    rounds, or if all ratios are equal because the metric's steps are too coarse.
    """

    metric: str  # name of the metric
    unit: str  # base unit of the metric; the ratio has none
    better: Better  # which direction is an improvement
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    ratio: float | None  # exp of the Hodges-Lehmann estimate of ln(treatment / baseline); null: no round has both
    # values
    low: float | None  # lower end of the ratio's interval
    high: float | None  # upper end of the ratio's interval
    overhead: Overhead  # the ratio as a cost
    rounds: int  # rounds in which both sides have a value
    verdict: Verdict  # what the interval shows, in words
    mean_ratio: float | None  # exp of the mean of ln(treatment / baseline); stalls affect it, unlike `ratio`; null: no
    # round has both
    p95_ratio: float | None  # ratio of the slow tails: of 95th percentiles of times, or 5th percentiles of rates; null:
    # fewer than 200 rounds
    baseline_stalls: float  # share of the baseline's values that are slower than 1.5 times their median, 0 to 1
    treatment_stalls: float  # the same share of the treatment's values
    stalls_p: float  # p-value of Fisher's exact test that compares these two shares
    carry_over: float | None  # mean ln(treatment / baseline) of the rounds in which the baseline ran first, minus that
    # of the other rounds; null: one of these orders occurred in fewer than two rounds
    carry_over_p: float | None  # p-value of carry_over, by permutation of the orders; null if carry_over is
    emulated: bool  # whether either side ran on an emulated CPU
    warnings: Sequence[str]  # the notices about this comparison, as sentences
    verdict_code: VerdictCode  # the verdict as an identifier
    notice_codes: Sequence[Code]  # codes of the notices about this comparison; `notices` of the run has their causes
    # and cures

    @classmethod
    def made(cls, found: records.Comparison, emulated: frozenset[str]) -> Self:
        return cls.of(
            found,
            **about(found.metric),
            overhead=Overhead(*comparisons.overhead(found)),
            emulated=not emulated.isdisjoint((found.baseline, found.treatment)),
            verdict_code=VERDICT_CODES[found.verdict],
            notice_codes=tuple(dict.fromkeys(notice.code for notice in found.notices)),
        )


@dataclass(frozen=True)
class Standing(Part):
    """One treatment in a ranking, compared with the best one. Overheads are fractions; above 0 is a cost."""

    treatment: str  # name of the treatment
    overhead: float | None  # estimate, 0 for the best itself; null: no round has both this treatment and the best
    low: float | None  # lower end of the overhead's interval; null: too few rounds, or this is the best
    high: float | None  # upper end of the overhead's interval
    top: bool  # whether no other treatment is shown to be better
    tie: bool  # whether the interval lies within same_within; true for the best itself
    beaten_by: Sequence[str]  # names of the treatments that are shown to be better, best first
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class Ranking(Part):
    """The treatments of one layer with the same number of machines at once, ranked by one metric. Fewer than three have
    no ranking.
    """

    metric: str  # name of the metric
    layer: str  # host, vm or nested
    side: str  # `side` of these treatments
    count: int  # machines that work at once in each of these treatments
    standings: Sequence[Standing]  # the ranked treatments, best first
    rounds: int  # rounds in which at least two of the treatments have a value
    incomplete: int  # number of these rounds in which at least one treatment has no value
    same_within: float  # differences within this fraction are ties; from the plan
    unranked: Sequence[str]  # names of treatments that are not ranked, because they have values in fewer than half of
    # the rounds

    @classmethod
    def made(cls, found: rankings.Ranking, emulated: Collection[str]) -> Self:
        standings = [Standing.of(entry, emulated=entry.treatment in emulated) for entry in found.standings]
        return cls.of(found, metric=found.metric.name, standings=standings)
