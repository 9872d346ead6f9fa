"""Robustness of each primary ratio: the mean, which stalls affect, the stalls themselves, and the order. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Comparison
from vmtax.core.units import format_cost, time_ratio
from vmtax.report.document import Column, Detail, Paragraph, Row, Section, Table, name_cell, value_cell
from vmtax.workload.words import name

TITLE = "Beside the primary figures"
HEADS = ("contrast", "median", "mean", "p95", "stalls", "order")
READING = (
    "Costs by the median (Hodges–Lehmann), by the mean, which stalls move, and by the slow tails, from 200 rounds on."
    " Stalls: runs slower than 1.5 times the median of their configuration, the baseline’s share first, with Fisher’s"
    " p. Order: how much it matters which side ran first, with p by permutation."
)


@dataclass(frozen=True, slots=True)
class Robustness:
    """One contrast of one primary metric, in words."""

    what: str  # "Disk randread-4k-qd1 operations, vm against host"
    median: str
    mean: str
    p95: str
    stalls: str
    order: str
    emulated: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """In the order of HEADS, without the first."""
        return self.median, self.mean, self.p95, self.stalls, self.order


def robustness(analysis: Analysis) -> tuple[Robustness, ...]:
    """Contrasts of primary metrics that have rounds, in the order of the comparisons; without the A/A."""
    return tuple(_lines(analysis))


def _lines(analysis: Analysis) -> Iterator[Robustness]:
    for found in analysis.comparisons:
        if found.metric.name not in analysis.criteria.primary or found.mean_ratio is None:
            continue
        if found.treatment in analysis.repeats:
            continue  # it is the noise floor
        yield Robustness(
            what=f"{name(found.metric)}, {found.treatment} against {found.baseline}",
            median=_cost(found, found.ratio),
            mean=_cost(found, found.mean_ratio),
            p95="–" if found.p95_ratio is None else _cost(found, found.p95_ratio),
            stalls=_stalls(found),
            order=_order(found),
            emulated=analysis.is_emulated(found),
        )


def _cost(found: Comparison, ratio: float) -> str:
    return format_cost(*time_ratio(found.metric.better, ratio)).estimate


def _stalls(found: Comparison) -> str:
    if not found.baseline_stalls and not found.treatment_stalls:
        return "none"
    return f"{100 * found.baseline_stalls:.0f}, {100 * found.treatment_stalls:.0f} % (p {found.stalls_p:.2g})"


def _order(found: Comparison) -> str:
    if found.carry_over is None or found.carry_over_p is None:
        return "–"
    return f"{_cost(found, math.exp(found.carry_over))} (p {found.carry_over_p:.2g})"


def section(analysis: Analysis) -> Section | None:
    """None without a primary contrast that has rounds."""
    rows = tuple(
        Row((name_cell(line.what, emulated=line.emulated), *map(value_cell, line.cells)), Detail.FULL)
        for line in robustness(analysis)
    )
    if not rows:
        return None
    table = Table(TITLE, tuple(map(Column, HEADS)), rows, "settings", detail=Detail.FULL)
    return Section("robustness", TITLE, (table, Paragraph(READING, "note", Detail.FULL)), TITLE)
