"""Figures beside the primary ones: means, which stalls move, slow tails, stalls themselves, and the order. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Comparison
from vmtax.core.units import time_ratio


@dataclass(frozen=True, slots=True)
class Robustness:
    """One contrast of one primary metric. Ratios are of times for the same work: 1 is no cost."""

    comparison: Comparison  # with its stalls, the shares of both sides and their p
    median: float  # ratio of times, Hodges-Lehmann over rounds
    mean: float  # ratio of times
    p95: float | None  # ratio of times of the slow tails; None: too few rounds
    order: float | None  # ratio of times by which it matters which side ran first; None: not tested
    emulated: bool  # whether either side is

    @property
    def order_p(self) -> float | None:
        """The p of the order, by permutation; None: not tested."""
        return None if self.order is None else self.comparison.carry_over_p

    @property
    def has_stalls(self) -> bool:
        """Whether any run of either side stalled."""
        return bool(self.comparison.baseline_stalls or self.comparison.treatment_stalls)


def robustness(analysis: Analysis) -> tuple[Robustness, ...]:
    """Contrasts of primary metrics that have rounds, in the order of the comparisons; without the A/A."""
    return tuple(_found(analysis))


def _found(analysis: Analysis) -> Iterator[Robustness]:
    for one in analysis.comparisons:
        if one.metric.name not in analysis.criteria.primary or one.mean_ratio is None:
            continue
        if one.treatment in analysis.repeats:
            continue  # it is the noise floor
        yield Robustness(
            comparison=one,
            median=_times(one, one.ratio),
            mean=_times(one, one.mean_ratio),
            p95=None if one.p95_ratio is None else _times(one, one.p95_ratio),
            order=_order(one),
            emulated=analysis.is_emulated(one),
        )


def _order(one: Comparison) -> float | None:
    if one.carry_over is None or one.carry_over_p is None:
        return None
    return _times(one, math.exp(one.carry_over))


def _times(one: Comparison, ratio: float) -> float:
    return time_ratio(one.metric.better, ratio)[0]
