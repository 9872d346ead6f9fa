"""Secondary statistics: the mean, which stalls affect, the stalls themselves, and the order. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.robustness import Robustness, robustness
from vmtax.core.units import format_cost
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.workload.words import name

TITLE = "Secondary statistics"
HEADS = ("contrast", "median", "mean", "p95", "stalls", "order")
READING = (
    "Costs by the median (Hodges–Lehmann), by the mean, which stalls move, and by the slow tails, from 200 rounds on."
    " Stalls: runs slower than 1.5 times the median of their configuration, the baseline’s share first, with Fisher’s"
    " p. Order: how much it matters which side ran first, with p by permutation."
)


def section(analysis: Analysis) -> Section | None:
    """None without a primary contrast that has rounds."""
    rows = tuple(map(_row, robustness(analysis)))
    if not rows:
        return None
    table = Table(TITLE, tuple(map(Column, HEADS)), rows, "settings", detail=Detail.FULL)
    return Section("robustness", TITLE, (table, Paragraph(READING, "note", Detail.FULL)), TITLE)


def _row(found: Robustness) -> Row:
    """Its cells are in the order of HEADS."""
    one = found.comparison
    what = f"{name(one.metric)}, {one.treatment} against {one.baseline}"
    costs = (found.median, found.mean, found.p95)
    cells = (*map(_cost, costs), _stalls(found), _order(found))
    return Row((name_cell(what, emulated=found.emulated), *map(value_cell, cells)), Detail.FULL)


def _cost(ratio: float | None) -> str:
    return "–" if ratio is None else format_cost(ratio).estimate


def _stalls(found: Robustness) -> str:
    one = found.comparison
    if not found.has_stalls:
        return "none"
    return f"{100 * one.baseline_stalls:.0f}, {100 * one.treatment_stalls:.0f} % (p {one.stalls_p:.2g})"


def _order(found: Robustness) -> str:
    return "–" if found.order is None else f"{_cost(found.order)} (p {found.order_p:.2g})"
