"""Rankings, effects of factors, and decisions in words, for all reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.gains import Gain
from vmtax.analysis.rankings import FactorEffect, Ranking, Standing
from vmtax.core.records import Metric
from vmtax.core.units import format_percent
from vmtax.design.stopping import Answer, count
from vmtax.design.topology import with_count
from vmtax.report.wording.cost import cost, cost_of
from vmtax.workload.words import name

ANSWERS: dict[Answer, str] = {
    "yes": "is worse by more than {}",
    "no": "is not worse by more than {}",
    "undecided": "may be worse by more than {}, undecided after all rounds",
}
ORDER = {answer: place for place, answer in enumerate(ANSWERS)}
MOST_NAMED = 4  # contrasts per sentence; the JSON has all


@dataclass(frozen=True, slots=True)
class RankingLine:
    """One row of a ranking or of a table of effects."""

    what: str  # the treatment, or the factor's level
    amount: str  # cost against the best, or against the factor's first level
    interval: str  # "" if there is none
    remark: str  # "top set", "beaten by 3 of 5", "71 % of the variance"
    emulated: bool
    plain: bool = False  # nothing is shown about it: it is neither best nor beaten
    value: str = ""  # for a score: the figure itself, with its unit


@dataclass(frozen=True, slots=True)
class Ranked:
    """One metric of one layer."""

    metric: Metric
    layer: str
    side: str  # Treatment.side of them all
    count: int  # machines that work at once in each of these treatments
    heading: str  # "Disk randread-4k-qd1 operations, vm"
    lines: tuple[RankingLine, ...]
    reading: str  # how to read the claims


def ranked(analysis: Analysis, *, primary_only: bool = True) -> tuple[Ranked, ...]:
    """The rankings in words: only those of the plan's primary metrics, or all."""
    where = sides(analysis)
    return tuple(
        Ranked(
            ranking.metric,
            ranking.layer,
            ranking.side,
            ranking.count,
            f"{name(ranking.metric)}, {whose(ranking, where)}",
            tuple(standing(entry, ranking, analysis.emulated) for entry in ranking.standings),
            what_is_claimed(ranking, cost(ranking.metric)),
        )
        for ranking in (analysis.primary_rankings if primary_only else analysis.rankings)
    )


def factor_tables(analysis: Analysis) -> tuple[Ranked, ...]:
    """The effects of factors, one table for each primary metric and layer; the strongest first."""
    emulated = analysis.emulated_layers
    where = sides(analysis)
    grouped: dict[tuple[Metric, str, str, int], list[FactorEffect]] = {}
    for effect in analysis.factor_effects:
        grouped.setdefault((effect.metric, effect.layer, effect.side, effect.count), []).append(effect)
    return tuple(
        Ranked(
            metric,
            layer,
            side,
            count,
            f"{name(metric)}, {whose(found[0], where)}",
            tuple(_effect(effect, layer in emulated) for effect in sorted(found, key=lambda effect: -effect.share)),
            "Least squares on logs with rounds as blocks; a level against its factor's first, over all other factors;"
            " two levels together: what they cost beyond each alone. Each interval is of one level alone; the chance"
            " that any factor or pair of this table is said to matter and does not is about 5 %.",
        )
        for (metric, layer, side, count), found in grouped.items()
    )


def decided(analysis: Analysis) -> Iterator[str]:
    """The answers to the plan's question as sentences, one for each metric and answer."""
    margin = format_percent(analysis.stopping.worse_than or 0.0)
    grouped: dict[tuple[str, Answer], list[str]] = {}
    for decision in analysis.decisions:
        contrast = decision.comparison
        doubt = " (emulated)" if analysis.is_emulated(contrast) else ""
        contrasts = grouped.setdefault((contrast.metric.name, decision.answer), [])
        contrasts.append(f"{contrast.treatment} against {contrast.baseline}{doubt}")
    for (metric, answer), contrasts in sorted(grouped.items(), key=lambda entry: (entry[0][0], ORDER[entry[0][1]])):
        more = f", and {len(contrasts) - MOST_NAMED} more" if len(contrasts) > MOST_NAMED else ""
        yield f"{metric} {ANSWERS[answer].format(margin)}: {', '.join(contrasts[:MOST_NAMED])}{more}"


def sides(analysis: Analysis) -> dict[str, str]:
    """Treatment.side -> its addition to headings: "on ssh://b"; "" if nothing is interleaved."""
    two = analysis.sides
    return {"": two.where(own=True), two.other: two.where(own=False)} if two else {"": ""}


def whose(found: Ranking | FactorEffect | Gain, where: dict[str, str]) -> str:
    """The treatments that it is about: "vm", "vm, 4 at once on ssh://b"; `where`: from `sides`."""
    return f"{with_count(found.layer, found.count)} {where[found.side]}".rstrip()


def standing(entry: Standing, ranking: Ranking, emulated: frozenset[str]) -> RankingLine:
    """One treatment's line."""
    best = entry is ranking.standings[0]
    amount, interval = ("best", "") if best else against_best(entry, ranking.metric)
    if entry.beaten_by:
        remark = f"beaten by {len(entry.beaten_by)} of {len(ranking.standings) - 1}"
    else:
        remark = "top set, tie" if entry.tie and not best else "top set"
    return RankingLine(
        entry.treatment, amount, interval, remark, entry.treatment in emulated, plain=not entry.beaten_by
    )


def against_best(entry: Standing, metric: Metric) -> tuple[str, str]:
    """Its cost against the best, and the interval."""
    if entry.overhead is None:
        return "–", "no round with the best"
    return cost_of(metric.better, entry.overhead, entry.low, entry.high)


def _effect(effect: FactorEffect, emulated: bool) -> RankingLine:
    what = " and ".join(f"{name}={level}" for name, level in zip(effect.factors, effect.levels, strict=True))
    amount, interval = cost_of(effect.metric.better, effect.overhead, effect.low, effect.high)
    remark = f"{effect.share:.0%} of the variance".replace("%", " %") + (
        "" if effect.shown else ", not distinguishable"
    )
    return RankingLine(
        what, amount, interval, remark, emulated, plain=not effect.shown or effect.low <= 0 <= effect.high
    )


def what_is_claimed(ranking: Ranking, spent: str) -> str:
    """How to read a ranking; `spent`: what its costs consist of, for the middle of a sentence."""
    left_out = f", {ranking.incomplete} of them incomplete" if ranking.incomplete else ""
    rare = f" Not ranked, for want of values: {', '.join(ranking.unranked)}." if ranking.unranked else ""
    return (
        f"{spent[:1].upper()}{spent[1:]} against the best, over {count(ranking.rounds)}{left_out}. The top set are"
        " those that no other is shown to beat; the chance of any false claim in this table is 5 % at most. A tie lies"
        f" within ±{format_percent(ranking.same_within)} of the best." + rare
    )
