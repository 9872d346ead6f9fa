"""What runs on this host have measured about a setting of an existing guest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.layers import OWNERS
from vmtax.core.records import Comparison, Experiment, Metric, Treatment
from vmtax.core.units import time_ratio
from vmtax.design.factors import FACTORS
from vmtax.existing.advice import SettingAdvice


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """The time that the same work takes with the guest's level, against the recommended one."""

    run: str  # id of the run
    metric: Metric
    ratio: float  # of the times; 2: twice as long with the guest's level
    low: float | None  # ends of its interval; None: there are too few rounds
    high: float | None
    is_shown: bool  # whether a difference is shown
    is_emulated: bool


def measured(runs: Iterable[Experiment], change: SettingAdvice) -> MeasuredSetting | None:
    """Of the first run that compares the two levels with all else equal, the primary metric that the guest's level
    costs most; None if no run does.
    """
    for run in runs:
        pairs = _pairs(run, change)
        if not pairs:
            continue
        analysis = Analysis(run)
        costs = [
            _setting(run, comparison, analysis, is_turned=(base, other) != (comparison.baseline, comparison.treatment))
            for comparison in analysis.comparisons
            for base, other in pairs
            if comparison.metric.name in run.plan["primary"]
            and {comparison.baseline, comparison.treatment} == {base, other}
        ]
        part = change.factor.partition(".")[0]  # of a disk's setting, the disk's figures say more than the CPU's
        costs = [one for one in costs if one.metric.workload == part] or costs
        if costs:
            return max(costs, key=lambda each: (each.is_shown, each.ratio))
    return None


def by_cost(
    found: Iterable[SettingAdvice], runs: Sequence[Experiment]
) -> list[tuple[SettingAdvice, MeasuredSetting | None]]:
    """Each with what was measured of it. The unsafe ones stay first; then the one that is shown to cost most is."""

    def order(each: tuple[SettingAdvice, MeasuredSetting | None]) -> tuple[bool, float]:
        advised, cost = each
        return advised.weight != "unsafe", -cost.ratio if cost is not None and cost.is_shown else -1.0

    return sorted(((each, measured(runs, each)) for each in found), key=order)


def _pairs(run: Experiment, change: SettingAdvice) -> list[tuple[str, str]]:
    """Names of treatments that have the recommended and the guest's level, and are alike in all other factors."""

    def rest(treatment: Treatment) -> dict[str, str]:
        levels = {name: factor.default for name, factor in FACTORS.items()} | dict(treatment.levels)
        return {name: level for name, level in levels.items() if name != change.factor}

    layers = ("vm", *OWNERS)
    guests = [each for each in run.treatments if each.layer in layers and each.repeats is None and not each.side]
    level = {each.name: each.levels.get(change.factor, FACTORS[change.factor].default) for each in guests}
    return [
        (better.name, own.name)
        for better in guests
        for own in guests
        if level[better.name] == change.better and level[own.name] == change.level
        if better.layer == own.layer and rest(better) == rest(own)
    ]


def _setting(run: Experiment, comparison: Comparison, analysis: Analysis, *, is_turned: bool) -> MeasuredSetting:
    ratio, low, high = time_ratio(comparison.metric.better, comparison.ratio, comparison.low, comparison.high)
    if is_turned:
        ratio, low, high = 1 / ratio, None if high is None else 1 / high, None if low is None else 1 / low
    is_shown = comparison.verdict in ("worse", "better")
    return MeasuredSetting(run.id, comparison.metric, ratio, low, high, is_shown, analysis.is_emulated(comparison))
