"""The output of `vmtax compare`: headline, differences of the machines, primary figures, other figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from vmtax.analysis.sessions import Change, MetricChange
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Document,
    Folded,
    Kind,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    listed,
    name_cell,
    value_cell,
    with_heads,
)
from vmtax.report.wording import change as words
from vmtax.report.wording.cost import special_cost

MOST_FACTS, MOST_OTHERS = 12, 10  # facts of a machine and exploratory figures, unless all are requested
PRIMARY, EXPLORATORY = "Primary figures", "Exploratory figures"
KINDS: dict[str, Kind] = {"worse": "bad", "better": "good", "undecided": "doubt"}


def document(change: Change, detail: Detail) -> Document:
    """If there is little room, only those exploratory figures that differ."""
    primary = [line for line in change.lines if line.primary]
    others = [line for line in change.lines if not line.primary]
    sections = (
        Section("answer", f"vmtax compare: {words.headline(change)}", tuple(_sides(change))),
        Section("facts", "What differs", (_facts(change),)),
        Section("primary", PRIMARY, tuple(_primary(primary, change))),
        Section("exploratory", EXPLORATORY, tuple(_exploratory(others, change, detail))),
        Section("undecided", "Undecided", (listed(words.reasons(primary or others)),)),
        Section("warnings", "Warnings", (listed(change.warnings),)),
    )
    return Document(None, tuple(section for section in sections if _says(section)))


def _says(section: Section) -> bool:
    """Whether it has more than an empty list."""
    return any(getattr(block, "items", True) for block in section.blocks)


def _sides(change: Change) -> Iterator[Block]:
    yield Sentences(tuple((name, (text,)) for name, text in words.sides(change)))
    banner = words.banner(change)
    if banner:
        yield Paragraph(banner, "emulated")


def _facts(change: Change) -> Block:
    if not change.facts:
        return Paragraph("The machines do not differ in anything recorded.")
    rows: list[Row] = []
    for path, facts in itertools.groupby(change.facts, key=lambda fact: fact.path):
        rows.append(Row((name_cell(path),)))
        rows += (Row(tuple(map(name_cell, (fact.name, fact.before, fact.after)))) for fact in facts)
    heads = (Column("fact"), Column("before", words=True), Column("after", words=True))
    return Table("What differs", heads, tuple(rows), most=MOST_FACTS)


def _primary(lines: Sequence[MetricChange], change: Change) -> Iterator[Block]:
    if lines:
        yield from _figures(PRIMARY, lines, change)
    yield Paragraph(" ".join((words.READING, *words.basis(change))), "note")


def _exploratory(lines: Sequence[MetricChange], change: Change, detail: Detail) -> Iterator[Block]:
    if not lines:
        return
    apart = [line for line in lines if line.verdict in ("worse", "better")]
    shown = apart[:MOST_OTHERS] if detail is Detail.BRIEF else lines
    rest = f" {len(lines) - len(shown)} more: --full" if len(shown) < len(lines) else ""
    counted = f"{len(apart)} of {len(lines)} other figures differ{'s' if len(apart) == 1 else ''}"
    blocks = [*_figures(EXPLORATORY, shown, change)] if shown else []
    blocks.append(Paragraph(f"{counted} (1 in 20 would by chance).{rest}", "note"))
    yield Folded(f"{len(lines)} other figures", tuple(blocks))


def _figures(title: str, lines: Sequence[MetricChange], change: Change) -> Iterator[Block]:
    rows: list[Row] = []
    for metric, group in itertools.groupby(lines, key=lambda line: line.metric):
        rows.append(Row((name_cell(metric.name, special_cost(metric)),)))
        for line in group:
            verdict = Cell((Span(words.verdict(line, change), KINDS.get(line.verdict, "plain")),))
            rows.append(Row((name_cell(line.treatment), _cost(line), value_cell(words.sessions(line)), verdict)))
    others = (Column("cost of the change"), Column("sessions"), Column("verdict", words=True))
    yield from with_heads((Table(title, (Column("metric and configuration"), *others), tuple(rows)),))


def _cost(line: MetricChange) -> Cell:
    estimate, interval = words.cost(line)
    return value_cell(estimate, interval and f"({interval})", emulated=line.emulated and bool(interval))
