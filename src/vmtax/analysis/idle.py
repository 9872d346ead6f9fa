"""What a guest that does nothing takes of its host's CPU, without what the host takes by itself. Pure.

A ratio says little of it: a host that takes a hundredth of a CPU by itself makes a guest that takes as much "2.0×".
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.comparisons import contrasts
from vmtax.analysis.values import Values
from vmtax.core.layers import LAYERS, OWNERS
from vmtax.core.records import Treatment, Trial
from vmtax.stats.arrays import np
from vmtax.workload.idle import CPU


@dataclass(frozen=True, slots=True)
class IdleGuest:
    """The CPU time that one idle guest takes of the host."""

    treatment: str  # name of its treatment
    baseline: str  # name of the treatment that is subtracted: the host's, or that of the guest around it; "": none is
    rounds: int  # in which both have a figure
    seconds: float  # of the host's CPU in a second: the Hodges-Lehmann estimate of the differences between the two
    low: float | None  # of the interval, in seconds of CPU in a second; null: too few rounds
    high: float | None  # of the interval, likewise


def idle_guests(
    treatments: Sequence[Treatment], trials: Sequence[Trial], alpha: float, *, is_watched: bool = False
) -> tuple[IdleGuest, ...]:
    """One for each treatment whose guest idled, in their order; `trials`: those that count; `is_watched`: the figure of
    a VM of the user's is that of its QEMU alone.

    A round's figure is the median of its trials, because the boot is the unit.
    """
    values = _by_round(trials)
    found = []
    for treatment, baseline in _without_the_guest(treatments, is_watched=is_watched).items() if values else ():
        after = values.get(treatment, {})
        before = values.get(baseline, {}) if baseline else dict.fromkeys(after, 0.0)
        differences = np.array([after[number] - before[number] for number in sorted(before.keys() & after.keys())])
        if differences.size:
            low, high = stats.interval(differences, alpha) or (None, None)
            center = stats.hodges_lehmann(differences)
            found.append(IdleGuest(treatment, baseline, differences.size, center, low, high))
    return tuple(found)


def _without_the_guest(treatments: Sequence[Treatment], *, is_watched: bool) -> Mapping[str, str]:
    """Name of each treatment with a guest -> that of its counterpart on the nearest layer below that was measured; ""
    for one that is watched, whose figure is its own. Another VM of the user's has none: it runs while its host is
    measured.
    """
    layers = {treatment.name: LAYERS[treatment.layer] for treatment in treatments}
    found: dict[str, str] = {}
    for baseline, treatment in contrasts(treatments):
        upper, lower = layers[treatment], layers[baseline]
        nearest = layers[found[treatment]].kernels if treatment in found else -1
        if upper.boots and lower in upper.below and lower.kernels > nearest:
            found[treatment] = baseline
    if is_watched:
        found |= {each.name: "" for each in treatments if each.layer in OWNERS and each.repeats is None}
    return {name: found[name] for name in layers if name in found}


def _by_round(trials: Sequence[Trial]) -> Mapping[str, Mapping[int, float]]:
    """Treatment -> round -> seconds of the host's CPU in a second."""
    values: dict[str, Values] = defaultdict(Values)
    for trial in trials:
        if trial.workload == CPU.workload and trial.status == "ok":
            for measurement in trial.measurements:
                if measurement.metric.name == CPU.name:
                    values[trial.treatment].add(trial.round, measurement.value)
    return {name: {at: statistics.median(few) for at, few in each.by_round().items()} for name, each in values.items()}
