"""Comparisons as costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import overhead
from vmtax.core.layers import CONTRASTS
from vmtax.core.records import Comparison, Metric, Treatment
from vmtax.core.units import time_ratio


@dataclass(frozen=True, slots=True)
class Effect:
    """One comparison as an overhead; above 0 is a cost."""

    comparison: Comparison  # of treatment with baseline
    fraction: float  # lost rate, or added time; NaN if no round has both sides
    low: float | None  # of its interval, as `fraction`; None: too few rounds
    high: float | None
    emulated: bool  # either side is

    @property
    def times(self) -> tuple[float, float | None, float | None]:
        """(estimate, low, high) of the ratio of times for the same work."""
        return time_ratio(
            self.comparison.metric.better, self.comparison.ratio, self.comparison.low, self.comparison.high
        )

    @property
    def rounds(self) -> int:
        return self.comparison.rounds

    @property
    def unclear(self) -> bool:
        """Whether neither a cost nor a gain is shown."""
        return self.comparison.verdict not in ("worse", "better")


def layer_contrasts(first: Mapping[str, Treatment]) -> tuple[tuple[str, str], ...]:
    """(baseline, treatment) names for each of CONTRASTS; `first`: layer -> the treatment that stands for it."""
    return tuple((first[low].name, first[high].name) for low, high in CONTRASTS if low in first and high in first)


def effect(analysis: Analysis, metric: Metric, baseline: str, treatment: str) -> Effect | None:
    """A comparison as an overhead; None if these two were not compared."""
    comparison = analysis.contrasts.get((metric, baseline, treatment))
    if comparison is None:
        return None
    return Effect(comparison, *overhead(comparison), analysis.is_emulated(comparison))
