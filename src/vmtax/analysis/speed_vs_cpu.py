"""Speed against its cost for the host: operations per second and host CPU time per operation, and the best of both.

Pure. A point's interval is calculated from logarithms after removing each round's common level, because points are
compared with each other and are measured in the same rounds.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.rankings import FEWEST
from vmtax.core.records import Metric, Treatment
from vmtax.design.topology import groups, guest_count, hosts_of
from vmtax.workload.words import title

SPEED, PRICE = "iops", "host_cpu_seconds"  # measures of a case


@dataclass(frozen=True, slots=True)
class PointFigure:
    """One metric of one treatment, in the metric's unit."""

    value: float
    low: float | None  # of its interval; None if there are too few rounds
    high: float | None
    rounds: int


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """One treatment."""

    treatment: Treatment
    speed: PointFigure  # operations per second
    price: PointFigure  # host CPU seconds per operation
    best: bool  # no other guest of the layer is both faster and cheaper, by these estimates
    emulated: bool

    @property
    def sure(self) -> bool:
        """Whether both figures have an interval."""
        return self.speed.low is not None and self.price.low is not None


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """One case of one layer."""

    name: str  # "Disk randwrite-4k-qd1"
    layer: str
    side: str
    count: int  # machines that work at once in each of the treatments
    points: tuple[SpeedPoint, ...]  # in the plan's order
    host: SpeedPoint | None  # the host, if it has both
    rounds: int  # the largest number for a point


def tradeoffs(analysis: Analysis) -> tuple[Tradeoff, ...]:
    """Every case with both figures for at least three treatments of a layer; only primary ones if there are any."""
    numbers = analysis.boot_numbers
    metrics = {metric.name: metric for metric, _ in numbers}
    primary = {_case(metrics[name]) for name in analysis.criteria.primary if name in metrics}
    cases = [case for case in dict.fromkeys(map(_case, metrics.values())) if _pair(case, metrics)]
    chosen = [case for case in cases if case in primary] or cases
    grouped = groups(analysis.experiment.treatments)
    found = []
    for case in chosen:
        pair = _pair(case, metrics)
        for (layer, side, count), members in grouped.items():
            having = [t for t in members if pair and all((metric, t.name) in numbers for metric in pair)]
            if pair and layer != "host" and len(having) >= FEWEST:
                hosts = hosts_of(grouped, side, count)
                host = [t for t in hosts[:1] if all((metric, t.name) in numbers for metric in pair)]
                name = f"{title(case[0])} {case[1]}".strip()
                found.append(_tradeoff(analysis, name, having, host, pair))
    return tuple(found)


def _case(metric: Metric) -> tuple[str, str]:
    return metric.workload, metric.case


def _pair(case: tuple[str, str], metrics: Mapping[str, Metric]) -> tuple[Metric, Metric] | None:
    pair = [metrics.get(".".join(filter(None, (*case, measure)))) for measure in (SPEED, PRICE)]
    return (pair[0], pair[1]) if pair[0] and pair[1] else None


def _tradeoff(
    analysis: Analysis,
    name: str,
    members: Sequence[Treatment],
    host: Sequence[Treatment],
    pair: tuple[Metric, Metric],
) -> Tradeoff:
    everyone = [*members, *host]
    numbers, alpha = analysis.boot_numbers, analysis.criteria.alpha
    speeds, prices = (steadied([numbers[metric, t.name] for t in everyone], alpha) for metric in pair)
    best = pareto([(speed.value, price.value) for speed, price in zip(speeds, prices, strict=True)][: len(members)])
    points = [
        SpeedPoint(treatment, speed, price, number in best, treatment.name in analysis.emulated)
        for number, (treatment, speed, price) in enumerate(zip(everyone, speeds, prices, strict=True))
    ]
    guests = tuple(points[: len(members)])
    rounds = max(figure.rounds for point in guests for figure in (point.speed, point.price))
    baseline = points[-1] if host else None
    count = guest_count(members[0])
    return Tradeoff(name, members[0].layer, members[0].side, count, guests, baseline, rounds)


def steadied(columns: Sequence[Mapping[int, float]], alpha: float) -> list[PointFigure]:
    """Hodges-Lehmann estimate and interval of each column (round -> value above 0), without the rounds' common levels.

    A round's level is the median deviation of the columns that have it from their own medians.
    """
    logs = [{number: math.log(value) for number, value in column.items()} for column in columns]
    middles = [statistics.median(column.values()) for column in logs]
    away: dict[int, list[float]] = defaultdict(list)
    for column, middle in zip(logs, middles, strict=True):
        for number, value in column.items():
            away[number].append(value - middle)
    levels = {number: statistics.median(values) for number, values in away.items()}
    found = []
    for column in logs:
        values = [value - levels[number] for number, value in column.items()]
        bounds = stats.interval(values, alpha)
        low, high = (None, None) if bounds is None else map(math.exp, bounds)
        found.append(PointFigure(math.exp(stats.hodges_lehmann(values)), low, high, len(values)))
    return found


def pareto(points: Iterable[tuple[float, float]]) -> frozenset[int]:
    """Indices of the (speed, price) pairs that no other pair beats in one while being at least as good in the other."""
    known = list(points)
    return frozenset(
        number
        for number, (speed, price) in enumerate(known)
        if not any(other[0] >= speed and other[1] <= price and other != (speed, price) for other in known)
    )
