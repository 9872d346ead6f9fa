"""Many treatments of one layer: which is best, which are beaten, which tie, and what each factor does. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmtax import stats
from vmtax.analysis.comparisons import Numbers, as_overhead
from vmtax.analysis.criteria import Criteria
from vmtax.core.records import Metric, Treatment
from vmtax.design.host import of_boot
from vmtax.stats.arrays import np, npt

FEWEST = 3  # treatments of a layer; two are a comparison, not a ranking


@dataclass(frozen=True, slots=True)
class Standing:
    """One treatment in a ranking; figures against the best, as overheads: fractions, above 0 is a cost."""

    treatment: str
    overhead: float | None  # None: no round has both it and the best
    low: float | None  # its interval; None with too few rounds, and for the best itself
    high: float | None
    top: bool  # no other is shown to beat it
    tie: bool  # its interval lies within what does not matter
    beaten_by: tuple[str, ...]  # shown to be better, best first


@dataclass(frozen=True, slots=True)
class Ranking:
    """One metric of one layer's treatments."""

    metric: Metric
    layer: str
    side: str  # Treatment.side of them all
    standings: tuple[Standing, ...]  # best first
    rounds: int  # in which two treatments or more have a value
    incomplete: int  # of these, in which not all have
    same_within: float  # fraction: what makes a tie
    unranked: tuple[str, ...] = ()  # treatments with values in fewer than half of the rounds


@dataclass(frozen=True, slots=True)
class FactorEffect:
    """One level of a factor against its first, or what two levels do together beyond each alone."""

    metric: Metric
    layer: str
    side: str  # Treatment.side of them all
    factors: tuple[str, ...]
    levels: tuple[str, ...]
    overhead: float  # fraction, above 0 is a cost
    low: float  # interval of this level alone, which describes it
    high: float
    share: float  # of the variance within rounds that the factors explain so
    shown: bool  # that the factors do anything so, all levels at once; one error rate over a metric's factors and pairs


def rankings(treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria) -> tuple[Ranking, ...]:
    """For every layer of three treatments or more and every metric of `numbers` that they have; primary metrics first.

    numbers: as `comparisons.boot_numbers` gives them
    """
    ranked = (
        (_ranking(metric, members, numbers, criteria), unranked)
        for metric, members, unranked in _fields(treatments, numbers, criteria)
    )
    return tuple(replace(ranking, unranked=tuple(unranked)) for ranking, unranked in ranked if ranking is not None)


def factor_effects(treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria) -> tuple[FactorEffect, ...]:
    """Of the primary metrics, for every layer in which two factors or more differ."""
    return tuple(
        effect
        for metric, members, _ in _fields(treatments, numbers, criteria)
        if metric.name in criteria.primary
        for effect in _effects(metric, members, numbers, criteria.alpha)
    )


def _fields(
    treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria
) -> Iterator[tuple[Metric, Sequence[Treatment], Sequence[str]]]:
    """(metric, treatments that are ranked by it, names of those that have it too rarely) of each ranking."""
    layers: dict[tuple[str, str], list[Treatment]] = defaultdict(list)  # by layer and side
    for treatment in treatments:
        if treatment.repeats is None:
            layers[treatment.layer, treatment.side].append(treatment)
    primary = {name: place for place, name in enumerate(criteria.primary)}
    metrics = sorted(dict.fromkeys(metric for metric, _ in numbers), key=lambda m: primary.get(m.name, len(primary)))
    for metric in metrics:
        for members in layers.values():
            counts = {t.name: len(numbers.get((metric, t.name), ())) for t in members}
            # With one value among ten of others it might lead by chance, and nothing could beat it.
            having = [treatment for treatment in members if counts[treatment.name] >= max(1, max(counts.values()) / 2)]
            if len(having) >= FEWEST:
                yield metric, having, [t.name for t in members if counts[t.name] and t not in having]


def _logs(metric: Metric, members: Sequence[Treatment], numbers: Numbers) -> npt.NDArray[np.float64]:
    """Shape `(rounds, treatments)`, NaN where a boot has no number."""
    columns = [numbers[metric, treatment.name] for treatment in members]
    rounds = sorted(set().union(*columns))
    return np.log([[column.get(number, math.nan) for column in columns] for number in rounds]).reshape(
        len(rounds), len(members)
    )


def _ranking(metric: Metric, members: Sequence[Treatment], numbers: Numbers, criteria: Criteria) -> Ranking | None:
    within = criteria.same_within
    logs = _logs(metric, members, numbers)
    try:
        ranked = stats.rank(logs, metric.better)
    except ValueError:
        return None  # one of them shares no round with any other
    names = [treatment.name for treatment in members]
    best = ranked.order[0]
    top = set(ranked.top)
    standings = []
    for number in ranked.order:
        overhead, low, high = (
            (0.0, None, None) if number == best else _against(logs[:, best], logs[:, number], metric, criteria.alpha)
        )
        tie = number == best or (low is not None and high is not None and -within <= low and high <= within)
        beaten_by = tuple(names[other] for other in ranked.order if ranked.beaten[other, number])
        standings.append(Standing(names[number], overhead, low, high, number in top, tie, beaten_by))
    incomplete = int(np.isnan(logs).any(axis=1).sum())
    return Ranking(metric, members[0].layer, members[0].side, tuple(standings), ranked.rounds, incomplete, within)


def _against(
    best: npt.NDArray[np.float64], other: npt.NDArray[np.float64], metric: Metric, alpha: float
) -> tuple[float | None, float | None, float | None]:
    differences = other - best
    differences = differences[~np.isnan(differences)]
    if not differences.size:
        return None, None, None
    bounds = stats.interval(differences, alpha)
    low, high = (None, None) if bounds is None else map(math.exp, bounds)
    return as_overhead(metric.better, math.exp(stats.hodges_lehmann(differences)), low, high)


def _effects(metric: Metric, members: Sequence[Treatment], numbers: Numbers, alpha: float) -> Iterator[FactorEffect]:
    levels = [dict(treatment.levels) for treatment in members]
    varying = [name for name in levels[0] if len({entry.get(name) for entry in levels}) > 1]
    logs = _logs(metric, members, numbers)
    if len(varying) < 2 or len(logs) < stats.minimum_rounds(alpha):
        return  # with few rounds the errors, estimated from as few, are too small
    try:
        estimates = stats.factor_effects(levels, logs, alpha, by_round=len(set(map(of_boot, members))) > 1)
    except ValueError:
        return  # too few boots to distinguish them; the ranking stands
    for effect in estimates:
        overhead, low, high = as_overhead(metric.better, effect.ratio, effect.low, effect.high)
        assert low is not None and high is not None
        yield FactorEffect(
            metric,
            members[0].layer,
            members[0].side,
            effect.factors,
            effect.levels,
            overhead,
            low,
            high,
            effect.share,
            shown=effect.term_p <= alpha,
        )
