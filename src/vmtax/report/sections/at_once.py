"""Several guests at once: what they reach together, and how evenly they share it. Pure."""

from __future__ import annotations

import math

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.at_once import AtOnce, at_once
from vmtax.core.units import format_value
from vmtax.report.document import Cell, Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.workload.words import name

TITLE = "Several guests at once"
READING = (
    "Together: the sum of all guests, the median over rounds. Of the ideal: the share that this is of as many times the"
    " rate of one guest alone, which is measured in the same rounds. Fairness: Jain's index, 100 % where all guests get"
    " the same and 1/n where one of n gets all. At the same time: the smallest share of a measurement in which all of"
    " them worked."
)


def section(analysis: Analysis) -> Section | None:
    """None where no configuration has several guests."""
    rates = at_once(analysis.experiment, analysis.schedules)
    if not rates:
        return None
    columns = (
        Column("figure"),
        Column("together"),
        Column("of the ideal"),
        Column("least to most"),
        Column("fairness"),
        Column("at the same time"),
    )
    rows = tuple(
        row
        for treatment in dict.fromkeys(rate.treatment.name for rate in rates)
        for row in _rows(treatment, [rate for rate in rates if rate.treatment.name == treatment], analysis)
    )
    return Section(
        "at-once", TITLE, (Table(TITLE, columns, rows, "settings"), Paragraph(READING, "note", Detail.FULL)), TITLE
    )


def _rows(treatment: str, rates: list[AtOnce], analysis: Analysis) -> list[Row]:
    """A heading, and a row for each rate."""
    emulated = treatment in analysis.emulated
    count = len(rates[0].each)
    return [
        Row((name_cell(f"{treatment}: {count} guests", emulated=emulated),)),
        *(Row((name_cell(name(rate.metric)), *_cells(rate, emulated=emulated))) for rate in rates),
    ]


def _cells(rate: AtOnce, *, emulated: bool) -> list[Cell]:
    unit = rate.metric.unit
    least, most = (format_value(extreme(rate.each.values()), unit) for extreme in (min, max))
    ideal = rate.share_of_ideal
    return [
        value_cell(format_value(rate.together, unit), emulated=emulated),
        value_cell("–" if ideal is None else f"{100 * ideal:.0f} %", emulated=emulated and ideal is not None),
        value_cell(f"{least} to {most}", emulated=emulated),
        value_cell(_share(rate.fairness), emulated=emulated),
        value_cell(_share(rate.overlap)),
    ]


def _share(share: float) -> str:
    """Rounded down, so that nothing reads as all of it that is not."""
    return f"{math.floor(1000 * share + 1e-9) / 10:g} %"
