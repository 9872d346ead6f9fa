"""Medians and overheads by workload: layers side by side, other settings, and the two sides. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vmtax.analysis.by_workload import Case, View, Workload
from vmtax.analysis.by_workload import Row as Line
from vmtax.analysis.effects import Effect
from vmtax.core.units import format_overhead
from vmtax.report.cells import effect_cell, number_cell
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Folded,
    Heading,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    term,
    value_cell,
)
from vmtax.report.wording.cost import special_cost
from vmtax.report.wording.disk_preparation import disk_preparation
from vmtax.workload.words import case as case_of
from vmtax.workload.words import label, same_as

MOST_SETTINGS = 8  # of each case, if there is little room


def section(shown: View) -> Section:
    """The tables of all workloads."""
    reading = (
        term("median", "Medians"),
        Span(" over rounds; a "),
        term("overhead", "cost"),
        Span(
            " is time for the same work, where nothing else is said, with its 95 % interval: below +100 % a percentage,"
            " from there on a number of times."
        ),
    )
    blocks = tuple(block for workload in shown.workloads for block in _blocks(workload, shown))
    return Section("numbers", "The numbers", (Paragraph(reading, "note"), *blocks) if blocks else (), "Numbers")


def _blocks(workload: Workload, shown: View) -> Iterator[Block]:
    if workload.between:
        yield from _sides(workload, shown)
    if not workload.told_between:
        yield Heading(workload.title, Detail.FILE)
        yield _layers(workload, shown)
        if workload.name == "disk" and (note := disk_preparation(shown.analysis.experiment)):
            yield Paragraph(note, "note")
    if any(case.settings for case in workload.cases):
        yield _settings(workload)


def lost(shown: View) -> Section | None:
    """The costs of rates again, as the share of the rate that is lost; None if no rate was compared."""
    pairs = tuple(dict.fromkeys(pair for workload in shown.workloads for pair in workload.contrasts))
    rows = tuple(_lost_rows(shown, pairs))
    if not rows:
        return None
    columns = (Column("rate"), *(Column(f"{high} vs {low}") for low, high in pairs))
    reading = "Below 0 the rate is higher. Twice the time for the same work is half of the rate."
    table = Table("Throughput lost", columns, rows)
    return Section("lost", "Throughput lost", (table, Paragraph(reading, "note")))


def _lost_rows(shown: View, pairs: Sequence[tuple[str, str]]) -> Iterator[Row]:
    for workload in shown.workloads:
        for case, line in ((one, line) for one in workload.cases for line in one.rows):
            if line.metric.better != "higher" or _is_said_twice(line, case, shown):
                continue
            effects = dict(zip(workload.contrasts, line.effects, strict=True))
            if any(effects.values()):
                what = " ".join(filter(None, (workload.title, case_of(line.metric), label(line.metric))))
                yield Row((name_cell(what, title=line.metric.name), *(_lost(effects.get(pair)) for pair in pairs)))


def _lost(effect: Effect | None) -> Cell:
    if effect is None or math.isnan(effect.fraction):
        return Cell()
    return value_cell(format_overhead(effect.fraction), emulated=effect.emulated)


def _is_said_twice(line: Line, case: Case, shown: View) -> bool:
    """Whether another row of the case is this one times a constant, and the plan is not about this one."""
    named = {row.metric.name for row in case.rows}
    return same_as(line.metric) in named and line.metric.name not in shown.analysis.criteria.primary


def _layers(workload: Workload, shown: View) -> Table:
    contrasts = workload.contrasts
    columns = (
        Column("metric"),
        *map(Column, workload.layers),
        # Nested against host follows from the other two.
        *(Column(f"{high} vs {low}", spare=place > 1) for place, (low, high) in enumerate(contrasts)),
        Column("rounds", detail=Detail.FILE),
    )
    rows: list[Row] = []
    for case in workload.cases:
        if case.name:
            rows.append(Row((name_cell(case.name),)))
        for line in case.rows:
            name = name_cell(label(line.metric), special_cost(line.metric), title=line.metric.name)
            cells = (*map(number_cell, line.medians), *map(effect_cell, line.effects), value_cell(_rounds(line)))
            own = not workload.where or bool(workload.between)
            detail = Detail.PAGE if _is_said_twice(line, case, shown) else Detail.BRIEF
            rows.append(Row((name, *cells), detail, id=line.metric.name if own else ""))
    return Table(workload.title, columns, tuple(rows))


def _rounds(line: Line) -> str:
    """Such as "7", or "5 to 7"."""
    return " to ".join(map(str, line.rounds))


def _sides(workload: Workload, shown: View) -> Iterator[Block]:
    """The other side against the plan's own, by the metrics that compare the layers."""
    sides = shown.analysis.sides
    assert sides is not None
    rows: list[Row] = []
    metric = None
    for between in workload.between:
        if between.metric != metric:
            metric = between.metric
            what = f"{between.case} {label(metric)}".lstrip()
            rows.append(Row((name_cell(what, special_cost(metric), title=metric.name),)))
        cells = (number_cell(between.own), number_cell(between.other), effect_cell(between.effect))
        rows.append(Row((name_cell(between.treatment), *cells)))
    columns = (Column("metric and configuration"), Column(sides.own), Column(sides.other), Column("cost"))
    yield Heading(f"{workload.between_title}: {sides.other} against {sides.own}", Detail.FILE)
    yield Table(f"{workload.between_title}, sides", columns, tuple(rows))


def _settings(workload: Workload) -> Folded:
    """Other levels against the first treatment of their layer; if there is little room, by one metric per case."""
    rows = tuple(row for case in workload.cases if case.settings for row in _setting_rows(case))
    columns = (
        *(Column("metric and configuration"), Column("median"), Column("cost")),
        Column("against", words=True),
    )
    table = Table(f"{workload.title}, settings", columns, rows, "settings", MOST_SETTINGS)
    reading = (
        Span("Their comparisons with the host and with the layer below are in the JSON answer ("),
        Span("vmtax show --json", "code"),
        Span(")."),
    )
    summary = f"{workload.title}: other settings against the first configuration of their layer"
    return Folded(summary, (Paragraph(reading, "note", Detail.PAGE), table))


def _setting_rows(case: Case) -> Iterator[Row]:
    for place, line in enumerate(case.rows):
        detail = Detail.FILE if place else Detail.BRIEF
        what = f"{case.name} {label(line.metric)}".lstrip()
        yield Row((name_cell(what, special_cost(line.metric), title=line.metric.name),), detail)
        for setting in case.settings:
            cells = (number_cell(setting.medians[place]), effect_cell(setting.effects[place]))
            yield Row((name_cell(setting.treatment), *cells, value_cell(setting.baseline)), detail)
