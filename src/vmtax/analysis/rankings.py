"""Rank the treatments of one layer: which is best, which are beaten, which tie, and what each factor does. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmtax import stats
from vmtax.analysis.comparisons import Numbers, as_overhead
from vmtax.analysis.criteria import Criteria
from vmtax.core.records import Metric, Treatment
from vmtax.design.host import of_boot
from vmtax.design.topology import groups, guest_count
from vmtax.stats.arrays import np, npt

FEWEST = 3  # treatments of a layer; with two there is only a comparison


@dataclass(frozen=True, slots=True)
class Standing:
    """One treatment in a ranking, compared with the best one. Overheads are fractions; above 0 is a cost."""

    treatment: str  # name of the treatment
    overhead: float | None  # estimate, 0 for the best itself; None: no round has both this treatment and the best
    low: float | None  # lower end of the overhead's interval; None: too few rounds, or this is the best
    high: float | None  # upper end of the overhead's interval
    top: bool  # whether no other treatment is shown to be better
    tie: bool  # whether the interval lies within same_within; true for the best itself
    beaten_by: tuple[str, ...]  # names of the treatments that are shown to be better, best first


@dataclass(frozen=True, slots=True)
class Ranking:
    """The treatments of one layer with the same number of machines at once, ranked by one metric. Fewer than three have
    no ranking.
    """

    metric: Metric
    layer: str  # host, vm or nested
    side: str  # `side` of these treatments
    standings: tuple[Standing, ...]  # the ranked treatments, best first
    rounds: int  # rounds in which at least two of the treatments have a value
    incomplete: int  # number of these rounds in which at least one treatment has no value
    same_within: float  # differences within this fraction are ties; from the plan
    unranked: tuple[str, ...] = ()  # names of treatments that are not ranked, because they have values in fewer than
    # half of the rounds
    count: int = 1  # machines that work at once in each of these treatments


@dataclass(frozen=True, slots=True)
class FactorEffect:
    """The effect of one level of a factor on a primary metric, compared with the factor's first level; or the
    interaction of two levels: what both together do beyond the effects of each alone.
    """

    metric: Metric
    layer: str  # host, vm or nested
    side: str  # `side` of these treatments
    factors: tuple[str, ...]  # name of the factor, or names of the two that interact
    levels: tuple[str, ...]  # one level for each factor
    overhead: float  # estimate of the effect, a fraction; above 0 is a cost
    low: float  # lower end of the interval for this level alone
    high: float  # upper end of the interval for this level alone
    share: float  # share of the variance within rounds that the factor or pair explains, with all its levels, 0 to 1
    shown: bool  # whether the factor or pair is shown to have an effect, over all its levels; one error rate holds for
    # all factors and pairs of a metric
    count: int = 1  # machines that work at once in each of these treatments


def rankings(treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria) -> tuple[Ranking, ...]:
    """For every layer of at least three treatments and every metric of `numbers` that they have; primary metrics first.

    numbers: from `comparisons.boot_numbers`
    """
    ranked = (
        (_ranking(metric, members, numbers, criteria), unranked)
        for metric, members, unranked in _fields(treatments, numbers, criteria)
    )
    return tuple(replace(ranking, unranked=tuple(unranked)) for ranking, unranked in ranked if ranking is not None)


def factor_effects(treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria) -> tuple[FactorEffect, ...]:
    """For the primary metrics, for every layer in which at least two factors vary."""
    return tuple(
        effect
        for metric, members, _ in _fields(treatments, numbers, criteria)
        if metric.name in criteria.primary
        for effect in _effects(metric, members, numbers, criteria.alpha)
    )


def _fields(
    treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria
) -> Iterator[tuple[Metric, Sequence[Treatment], Sequence[str]]]:
    """(metric, treatments ranked by it, names of those that have it too rarely) for each ranking."""
    found = groups(treatments)
    primary = {name: place for place, name in enumerate(criteria.primary)}
    metrics = sorted(dict.fromkeys(metric for metric, _ in numbers), key=lambda m: primary.get(m.name, len(primary)))
    for metric in metrics:
        for members in found.values():
            counts = {t.name: len(numbers.get((metric, t.name), ())) for t in members}
            # With one value among ten of the others, a treatment might lead by chance, and nothing could beat it.
            having = [treatment for treatment in members if counts[treatment.name] >= max(1, max(counts.values()) / 2)]
            if len(having) >= FEWEST:
                yield metric, having, [t.name for t in members if counts[t.name] and t not in having]


def _logs(metric: Metric, members: Sequence[Treatment], numbers: Numbers) -> npt.NDArray[np.float64]:
    """Shape `(rounds, treatments)`, NaN if a boot has no number."""
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
        return None  # a treatment shares no round with any other
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
    group = members[0].layer, members[0].side
    count = guest_count(members[0])
    return Ranking(metric, *group, tuple(standings), ranked.rounds, incomplete, within, count=count)


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
        return  # with few rounds, the estimated errors would be too small
    try:
        estimates = stats.factor_effects(levels, logs, alpha, by_round=len(set(map(of_boot, members))) > 1)
    except ValueError:
        return  # too few boots to distinguish the factors; the ranking remains valid
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
            count=guest_count(members[0]),
        )
