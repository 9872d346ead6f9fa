"""The noise floor: what a guest costs against itself, measured in the same rounds. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.analysis.emulation import emulated_treatments
from vmtax.core.records import Comparison, Experiment, Metric
from vmtax.report.view import Effect, cost, effect
from vmtax.workload.words import name

READING = (
    "One guest treatment enters each round twice, in boots of its own: what it costs against itself is what chance"
    " and this machine make of no difference. A smaller overhead than that deserves doubt. A few in a hundred of these"
    " intervals leave out 0 by chance; more do where something differs between boots that nobody has asked about."
)


@dataclass(frozen=True, slots=True)
class Floor:
    """One primary metric of one A/A."""

    metric: Metric
    treatment: str  # which was repeated
    effect: Effect

    @property
    def text(self) -> str:
        """ "chess.nodes_per_second: vm against itself 0.4 % [−0.9, 1.6]"."""
        beyond = "" if self.effect.unclear else "leaves out 0, by chance or because boots differ"
        parts = (self.effect.text, self.effect.interval, "emulated" if self.effect.emulated else "", beyond)
        return f"{self.metric.name}: {self.treatment} against itself {' '.join(filter(None, parts))}"

    @property
    def name(self) -> str:
        """ "Disk randread-4k-qd1 operations, vm"."""
        return f"{name(self.metric)}, {self.treatment}"

    @property
    def cost(self) -> str:
        return cost(self.metric)


def noise_floor(experiment: Experiment, comparisons: Sequence[Comparison]) -> tuple[Floor, ...]:
    """In the order of the plan's primary metrics; empty where no guest was measured."""
    emulated = emulated_treatments(experiment)
    repeats = {treatment.name for treatment in experiment.treatments if treatment.repeats is not None}
    primary = {name: place for place, name in enumerate(experiment.plan.get("primary", ()))}
    found = [
        Floor(comparison.metric, comparison.baseline, effect(comparison, emulated))
        for comparison in comparisons
        if comparison.treatment in repeats and comparison.metric.name in primary
    ]
    return tuple(sorted(found, key=lambda floor: primary[floor.metric.name]))
