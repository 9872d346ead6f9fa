"""The noise floor, as a table: the cost of a guest against itself. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.noise import Floor, noise_floor
from vmtax.core.layers import EXISTING, LAYERS
from vmtax.report.cells import effect_cell
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.report.wording.cost import special_cost
from vmtax.workload.words import name

BOOTED = "One guest runs twice in each round, in boots of its own."
AS_IT_RUNS = "What is not booted is measured twice in each round, as it runs."
READING = (
    " Its cost against itself is the effect of chance and of this machine where there is no difference. A smaller cost"
    " than that deserves doubt. A few in a hundred of these intervals exclude 0 by chance; more do if something else"
    " differs between the two."
)


def section(analysis: Analysis) -> Section | None:
    """None if no guest was measured against itself."""
    floors = noise_floor(analysis)
    if not floors:
        return None
    again = [each for each in analysis.experiment.treatments if each.repeats is not None]
    how = BOOTED if any(LAYERS[each.layer].kernels and each.layer != EXISTING for each in again) else AS_IT_RUNS
    rows = tuple(_row(floor) for floor in floors)
    columns = (Column("metric"), Column("against itself"), Column("rounds", detail=Detail.FILE))
    return Section(
        "noise",
        "Noise floor",
        (Paragraph(how + READING, "note", Detail.FULL), Table("A guest against itself", columns, rows, "settings")),
    )


def _row(floor: Floor) -> Row:
    named = name_cell(f"{name(floor.metric)}, {floor.treatment}", special_cost(floor.metric))
    return Row((named, effect_cell(floor.effect), value_cell(str(floor.effect.rounds))))
