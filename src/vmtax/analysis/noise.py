"""The noise floor: the cost of a guest against itself, measured in the same rounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.effects import Effect, effect
from vmtax.core.records import Metric


@dataclass(frozen=True, slots=True)
class Floor:
    """One primary metric of one A/A."""

    metric: Metric  # a primary one
    treatment: str  # the repeated one
    effect: Effect  # of the repeat against it


def noise_floor(analysis: Analysis) -> tuple[Floor, ...]:
    """In the order of the plan's primary metrics; empty if no guest was measured."""
    primary = {name: place for place, name in enumerate(analysis.criteria.primary)}
    floors = [
        Floor(metric, baseline, found)
        for metric, baseline, treatment in analysis.contrasts
        if treatment in analysis.repeats and metric.name in primary
        if (found := effect(analysis, metric, baseline, treatment))
    ]
    return tuple(sorted(floors, key=lambda floor: primary[floor.metric.name]))


def floor_of(metric: Metric, analysis: Analysis) -> float | None:
    """The farthest end of a guest's interval against itself, as a ratio of times above 1; None: not measured."""
    ends = [
        end
        for treatment in analysis.experiment.treatments
        if treatment.repeats and (found := analysis.contrasts.get((metric, treatment.repeats, treatment.name)))
        for end in (found.low, found.high)
        if end is not None
    ]
    return max((max(end, 1 / end) for end in ends), default=None)
