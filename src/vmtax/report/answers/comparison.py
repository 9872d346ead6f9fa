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
    """Lost rate, 1 - ratio, where higher is better; added time, ratio - 1, where lower is better."""

    estimate: float | None  # a fraction: 0.02 is 2 %; above 0 is a cost
    low: float | None  # lower end of its interval
    high: float | None  # upper end of its interval


def about(metric: records.Metric) -> dict[str, str]:
    """The keys that say which metric something is about."""
    return {"metric": metric.name, "unit": metric.unit, "better": metric.better}


@dataclass(frozen=True)
class Comparison(Part):
    """One metric of one treatment against a baseline; null bounds: too few rounds for an interval."""

    metric: str  # its name
    unit: str  # base unit of the metric; the ratio has none
    better: Better  # which direction is an improvement
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    ratio: float | None  # exp of the Hodges-Lehmann estimate of ln(treatment / baseline)
    low: float | None  # lower end of the ratio's interval
    high: float | None  # upper end of the ratio's interval
    overhead: Overhead  # the same as a cost
    rounds: int  # rounds in which both sides have a value
    verdict: Verdict  # what the interval shows
    mean_ratio: float | None  # exp of the mean of ln(treatment / baseline); stalls move it
    p95_ratio: float | None  # of the slow tails; null with fewer than 200 rounds
    baseline_stalls: float  # share of the baseline's runs slower than 1.5 times their median
    treatment_stalls: float  # the same of the treatment's runs
    stalls_p: float  # Fisher's exact test of the two
    carry_over: float | None  # log ratio with the baseline first minus that with it second
    carry_over_p: float | None  # of that, by permutation; null: the order never changed
    emulated: bool  # either side is
    warnings: Sequence[str]  # its notices as sentences
    verdict_code: VerdictCode  # the verdict as an identifier
    notice_codes: Sequence[Code]  # what casts doubt on it; `notices` of the run has causes and cures

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
    """One treatment in a ranking; overheads against the best, fractions, above 0 is a cost."""

    treatment: str  # its name
    overhead: float | None  # estimate; null: no round has both it and the best
    low: float | None  # lower end of its interval; null: too few rounds, or the best itself
    high: float | None  # upper end of its interval
    top: bool  # no other is shown to beat it
    tie: bool  # its interval lies within same_within of the best
    beaten_by: Sequence[str]  # names of those shown to be better, best first
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU


@dataclass(frozen=True)
class Ranking(Part):
    """One metric of one layer's treatments, where there are three or more."""

    metric: str  # its name
    layer: str  # host, vm or nested
    side: str  # as of its treatments
    standings: Sequence[Standing]  # best first
    rounds: int  # in which two treatments or more have a value
    incomplete: int  # of these, in which not all have
    same_within: float  # what makes a tie: a fraction, from the plan
    unranked: Sequence[str]  # treatments with values in fewer than half of the rounds

    @classmethod
    def made(cls, found: rankings.Ranking, emulated: Collection[str]) -> Self:
        standings = [Standing.of(entry, emulated=entry.treatment in emulated) for entry in found.standings]
        return cls.of(found, metric=found.metric.name, standings=standings)
