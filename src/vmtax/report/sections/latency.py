"""How long single operations took on each layer, as a table below its pictures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vmtax.analysis.latency import JUDGED, Distribution
from vmtax.core.units import format_percentile, format_value
from vmtax.report.document import (
    Column,
    Detail,
    Figure,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    term,
    value_cell,
)

if TYPE_CHECKING:
    from vmtax.report.picture import Picture

TABLED = (0.5, 0.9, 0.99, 0.999, 0.9999)  # in the table


def section(found: Sequence[Distribution], pictures: Sequence[Picture]) -> Section | None:
    """None if no trial kept its latencies."""
    if not found:
        return None
    reading: tuple[Span, ...] = (
        Span(
            "From left to right the operations get rarer: half of them take at most the value at 50 %, one in a"
            " hundred takes longer than the value at 99 %; each step is ten times rarer than the one before. A line"
            " that climbs to the right has a tail, which a mean hides. "
        ),
        term("latency", "Latencies"),
        Span(" are medians over rounds, drawn as far as every round has enough operations."),
    )
    if any(distribution.others for distribution in found):
        many = "Of many configurations of a layer, the first is drawn, and the best and the worst by"
        reading += (Span(f" {many} {format_percentile(JUDGED)}."),)
    blocks = (Paragraph(reading, "note", Detail.PAGE), Figure(tuple(pictures), "pair"), _table(found))
    return Section("latency", "How long single operations take", blocks, "How long single operations take")


def _table(found: Sequence[Distribution]) -> Table:
    shares = tabled(found)
    columns = (
        Column("case and configuration"),
        *(Column(format_percentile(share)) for share in shares),
        Column("rounds"),
    )
    rows: list[Row] = []
    for distribution in found:
        rows.append(Row((name_cell(distribution.name),)))
        for curve in distribution.curves:
            name = f"{curve.treatment}{f' ({curve.role})' if curve.role else ''}"
            seconds = (curve.at(share) for share in shares)
            cells = (value_cell("" if value is None else format_value(value, "s")) for value in seconds)
            rows.append(Row((name_cell(name, emulated=curve.emulated), *cells, value_cell(str(curve.rounds)))))
    title = "Latency percentiles"
    return Table(title, columns, tuple(rows), "latencies", detail=Detail.PAGE)


def tabled(found: Iterable[Distribution]) -> tuple[float, ...]:
    """Those of TABLED that any distribution has."""
    have = {share for distribution in found for curve in distribution.curves for share, _ in curve.points}
    return tuple(share for share in TABLED if share in have)
