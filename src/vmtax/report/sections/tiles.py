"""Unlike guests at once: what those of each role had of the host, against one tile of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.at_once import Each
from vmtax.analysis.tiles import OfRole
from vmtax.core.units import format_value
from vmtax.report.document import Cell, Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.report.sections.at_once import named
from vmtax.workload.tile import ROLES

TITLE = "Several guests at once, by what they do"
READING = (
    "Each figure is that of the worst guest of its kind in a round, and the median over rounds. p99: 99 of 100"
    " operations of a database, or requests of a web server, took at most this long; a request's time runs from its"
    " arrival. Against one tile: as a multiple of the same with three guests, and otherwise equal levels but for how"
    " many share a CPU; it has no interval. Of the asked: what was done of the rate that was asked for. CPU not got:"
    " the CPUs that a guest wanted and its hypervisor gave to others (steal); – where it cannot be read, as the steal"
    " of emulated guests."
)
LATE = "No p99: a guest of that kind fell so far behind its rate that it did too few operations for one."


def section(analysis: Analysis) -> Section | None:
    """None if no guests had roles."""
    found = analysis.tiles
    if not found:
        return None
    heads = ("p99", "against one tile", "of the asked", "CPU not got")
    table = Table(TITLE, (Column("guests"), *map(Column, heads)), tuple(_rows(found, analysis)), "settings")
    late = (Paragraph(LATE, "note"),) if any(one.p99 is None and one.done is not None for one in found) else ()
    return Section("tiles", TITLE, (table, *late, Paragraph(READING, "note", Detail.FULL)), "Unlike guests")


def _rows(found: Sequence[OfRole], analysis: Analysis) -> Iterator[Row]:
    """A heading for each role, followed by a row for each configuration."""
    for role in ROLES:
        yield Row((name_cell(role),))
        for one in (each for each in found if each.role == role):
            emulated = one.treatment.name in analysis.emulated
            guests = named(one.treatment.name, one.tiles * len(ROLES))
            yield Row((name_cell(guests, emulated=emulated), *_cells(one, emulated)))


def _cells(one: OfRole, emulated: bool) -> list[Cell]:
    steal = Each(0.0, None, one.steal, None, None).lacking(emulated)
    figures = (
        "–" if one.p99 is None else format_value(one.p99, "s"),
        "–" if one.times is None else f"{one.times:.3g}×",
        "–" if one.done is None else f"{100 * one.done:.0f} %",
        "–" if steal is None else f"{steal:.2f}",
    )
    return [value_cell(text) for text in figures]
