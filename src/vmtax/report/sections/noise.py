"""The noise floor: the cost of a guest against itself, measured in the same rounds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Metric
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.report.view import Effect, effect, effect_cell
from vmtax.report.wording.cost import special_cost
from vmtax.workload.words import name

READING = (
    "One guest runs twice in each round, in boots of its own. Its cost against itself is the effect of chance and of"
    " this machine where there is no difference. A smaller cost than that deserves doubt. A few in a hundred of these"
    " intervals exclude 0 by chance; more do if something else differs between boots."
)


@dataclass(frozen=True, slots=True)
class Floor:
    """One primary metric of one A/A."""

    metric: Metric
    treatment: str  # the repeated one
    effect: Effect

    @property
    def name(self) -> str:
        """Such as "Disk randread-4k-qd1 operations, vm"."""
        return f"{name(self.metric)}, {self.treatment}"

    @property
    def cost(self) -> str:
        return special_cost(self.metric)


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


def section(analysis: Analysis) -> Section | None:
    """None if no guest was measured against itself."""
    floors = noise_floor(analysis)
    if not floors:
        return None
    rows = tuple(
        Row((name_cell(floor.name, floor.cost), effect_cell(floor.effect), value_cell(str(floor.effect.rounds))))
        for floor in floors
    )
    columns = (Column("metric"), Column("against itself"), Column("rounds", detail=Detail.FILE))
    return Section(
        "noise",
        "Noise floor",
        (Paragraph(READING, "note", Detail.FULL), Table("A guest against itself", columns, rows, "settings")),
    )
