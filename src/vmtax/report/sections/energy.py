"""The power that the host's processors took while each configuration worked. Pure."""

from __future__ import annotations

from itertools import groupby

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.energy import PowerTaken, power
from vmtax.report.document import Column, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.workload import words

TITLE = "Power of the host's processors"
READING = (
    "All packages of the host together, as they count their energy themselves (RAPL), whoever used it, from before each"
    " command until after it; without memory, disks and power supply. Joules: of one measurement. vmtax has read it"
    " only from files that stand in for such counters."
)


def section(analysis: Analysis) -> Section | None:
    """None where the processors' energy could not be read."""
    rows: list[Row] = []
    found = power(analysis.experiment, analysis.trials)
    for name, members in groupby(found, key=lambda one: one.treatment.name):
        rows.append(Row((name_cell(name, emulated=name in analysis.emulated),)))
        rows += map(_row, members)
    if not rows:
        return None
    columns = (Column("workload"), Column("watts"), Column("joules"))
    return Section("energy", TITLE, (Table(TITLE, columns, tuple(rows), "settings"), Paragraph(READING, "note")), TITLE)


def _row(one: PowerTaken) -> Row:
    name = name_cell(" ".join(filter(None, (words.title(one.workload), one.case))))
    return Row((name, value_cell(f"{one.watts:.1f}"), value_cell(f"{one.joules:,.0f}")))
