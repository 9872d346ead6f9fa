"""Costs in words: what they consist of, their amounts, and the warning about emulated ones. Pure."""

from __future__ import annotations

from vmtax.analysis.comparisons import as_times
from vmtax.analysis.effects import Effect
from vmtax.core.records import Better, Metric
from vmtax.core.units import format_cost
from vmtax.workload.base import CPU_PER_OPERATION
from vmtax.workload.words import label, may_be_zero

NOT_A_COST = "The figures show that everything works, not what hardware costs."
SHORTLY_NOT_A_COST = "No cost here is a real one."
SAME_WORK = "for the same work"


def cost(metric: Metric) -> str:
    """What a cost of this metric consists of: "time for the same work", "CPU time for the same work"."""
    if may_be_zero(metric) and metric.unit == "1":
        return f"loss {SAME_WORK}"
    if metric.measure == CPU_PER_OPERATION or (metric.unit in ("1", "s/B") and metric.better == "lower"):
        return f"CPU time {SAME_WORK}"
    return f"{'bytes' if metric.unit == 'B' else 'time'} {SAME_WORK}"


def special_cost(metric: Metric) -> str:
    """What a cost of this metric consists of if it is not time; "" if it is, or if the label says it."""
    kind = cost(metric).removesuffix(f" {SAME_WORK}")
    return "" if kind == "time" or kind in label(metric) else kind


def cost_of(better: Better, overhead: float, low: float | None, high: float | None) -> tuple[str, str]:
    """An overhead and its interval as a cost: ("+1.9 %", "1.5–2.3"); ("24×", "") without an interval."""
    found = format_cost(*as_times(better, overhead, low, high))
    return found.estimate, found.interval


def effect_in_words(effect: Effect) -> tuple[str, str]:
    """Its estimate and its interval, or why there is none: ("+1.9 %", "1.5–2.3"), ("+1.9 %", "too few rounds")."""
    found = format_cost(*effect.times)
    return found.estimate, found.interval or effect.comparison.verdict
