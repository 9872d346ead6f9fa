"""Published figures compared with those of this run, if its plan measures the same; shares are recalculated. Pure."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from itertools import groupby

from vmtax.analysis.analysis import Analysis
from vmtax.claims.beside import OwnRatio, own_ratios
from vmtax.claims.files import articles
from vmtax.claims.schema import ClaimTable, Derived, load
from vmtax.core.units import UNITS, format_value
from vmtax.report.document import Block, Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell

TITLE = "Published figures beside yours"
HEADS = ("configuration", "published", "share", "printed as", "here", "share here")
READING = (
    "Share: its speed, or its CPU time, as a share of that of the configuration after 'of', computed from the figures;"
    " beside it the share as it was printed. The hardware and the software are others, so compare the shares, not the"
    " figures."
)


def section(analysis: Analysis) -> Section | None:
    """None if the plan measures nothing that was published, or lacks the reference of the shares."""
    blocks: list[Block] = []
    for (title, _), found in groupby(own_ratios(_tables(), analysis), lambda one: (one.table.title, one.metric)):
        ratios = tuple(found)
        rows = tuple(map(_row, ratios))
        blocks.append(Table(title, tuple(map(Column, HEADS)), rows, "settings", detail=Detail.FULL))
        blocks.append(Paragraph(ratios[0].table.remark or "", "note", Detail.FULL))
    note = Paragraph(READING, "note", Detail.FULL)
    return Section("published", TITLE, (*blocks, note), TITLE) if blocks else None


@cache
def _tables() -> tuple[ClaimTable, ...]:
    return tuple(table for name in articles() for table in load(name).tables if table.metric and table.remark)


def _row(one: OwnRatio) -> Row:
    exact = share(one.published)
    theirs = (figure_text(one.table, one.derived.of), one.derived.shown or exact, printed_share(one.derived))
    ours = (format_value(one.value, one.metric.unit), share(one.own))
    cells = (*map(value_cell, theirs), *(value_cell(text, emulated=one.emulated) for text in ours))
    return Row((name_cell(f"{one.derived.of}, of {one.derived.base}"), *cells))


def share(ratio: float) -> str:
    """A ratio as a share."""
    return f"{100 * ratio:.1f} %"


def figure_text(table: ClaimTable, row: str) -> str:
    """A published figure with its unit."""
    found = table.rows[row]
    if found.shown:
        return found.shown
    if table.unit in UNITS:
        return format_value(found.figure.value, table.unit)
    return f"{found.figure.text or f'{found.figure.value:.6g}'} {table.unit}"


def printed_share(one: Derived) -> str:
    """What was printed of a comparison, as a share with the printed decimals; "–" if nothing was."""
    if one.printed is None:
        return "–"
    printed = Decimal(one.printed.text.replace("\N{MINUS SIGN}", "-"))
    shares = {
        "share": printed,
        "times": 100 * printed,
        **dict.fromkeys(("loss", "less"), 100 - printed),
        **dict.fromkeys(("gain", "more"), 100 + printed),
    }
    return f"{shares[one.word]} %" if one.word in shares else f"{printed} {one.word}"
