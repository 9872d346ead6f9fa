"""Compare choices by speed, host CPU and features. Pure.

Costs are natural logarithms, one for each round, lower is better: the negative logarithm of a rate, the logarithm of a
time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.comparisons import Numbers
from vmtax.core.records import Metric
from vmtax.stats.arrays import np

Costs = Mapping[str, Mapping[int, float]]  # treatment -> round -> cost


@dataclass(frozen=True, slots=True)
class Distance:
    """How much more one choice costs than another, as a difference of logarithms; positive values are higher costs."""

    middle: float
    low: float | None  # None if there are too few rounds
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """One of the costs, for all choices that have it."""

    costs: Costs
    order: tuple[str, ...]  # cheapest first
    place: Mapping[str, float]  # estimate for each, relative to the cheapest
    beaten: frozenset[tuple[str, str]]  # (better, worse): shown, with a single error rate for all claims
    rounds: int  # in which at least two choices have it
    alpha: float

    def distance(self, one: str, other: str) -> Distance:
        """From `other` to `one`, over the rounds that both have."""
        mine, theirs = self.costs[one], self.costs[other]
        differences = [mine[number] - theirs[number] for number in sorted(mine.keys() & theirs.keys())]
        if not differences:
            return Distance(math.nan, None, None)
        values = np.array(differences)
        low, high = stats.interval(values, self.alpha) or (None, None)
        return Distance(stats.hodges_lehmann(values), low, high)


def mean_costs(numbers: Numbers, metrics: Sequence[Metric], names: Sequence[str]) -> Costs:
    """The mean over `metrics` with equal weights (a geometric mean), in the rounds that have all of them."""
    costs: dict[str, dict[int, float]] = {}
    for name in names:
        columns = [(numbers.get((metric, name), {}), 1 if metric.better == "lower" else -1) for metric in metrics]
        common = set.intersection(*(set(column) for column, _ in columns)) if columns else set()
        costs[name] = {
            number: sum(sign * math.log(column[number]) for column, sign in columns) / len(columns)
            for number in sorted(common)
        }
    return costs


def scale(costs: Costs, alpha: float) -> Scale | None:
    """None if one shares no round with any other, or if there is nothing."""
    names = list(costs)
    if not names:
        return None
    if len(names) == 1:
        return Scale(costs, tuple(names), {names[0]: 0.0}, frozenset(), len(costs[names[0]]), alpha)
    rounds = sorted(set[int]().union(*costs.values()))
    logs = np.array([[costs[name].get(number, math.nan) for name in names] for number in rounds])
    try:
        ranked = stats.rank(logs.reshape(len(rounds), len(names)), "lower")
    except ValueError:
        return None
    order = tuple(names[number] for number in ranked.order)
    place = {names[number]: math.log(ranked.relative[number]) for number in range(len(names))}
    beaten = frozenset(
        (names[i], names[j]) for i in range(len(names)) for j in range(len(names)) if ranked.beaten[i, j]
    )
    return Scale(costs, order, place, beaten, ranked.rounds, alpha)


def pareto_set(
    scales: Sequence[Scale], features: Mapping[str, frozenset[str]], names: Sequence[str], within: float
) -> tuple[str, ...]:
    """Those of `names` that no other of them makes pointless, in their order.

    Another one does if it measured no worse on every scale, has all of its features, and either has more features or is
    shown to be better on one scale by more than `within` (the fraction that counts as the same). A choice that merely
    happened to measure better excludes no other.
    """
    matters = math.log1p(within)

    def pointless(one: str, other: str) -> bool:
        if any(s.place[other] > s.place[one] for s in scales) or not features[other] >= features[one]:
            return False
        better = any((other, one) in s.beaten and s.place[one] - s.place[other] > matters for s in scales)
        return better or features[other] > features[one]

    return tuple(one for one in names if not any(pointless(one, other) for other in names if other != one))
