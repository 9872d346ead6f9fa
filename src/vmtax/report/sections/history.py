"""The output of `vmtax history`: one sentence, a line for each cost with its runs, what changed, what was left out."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from vmtax.analysis.many.history import HistoryChange, HistoryLine, HostHistory
from vmtax.analysis.summary import label
from vmtax.core.units import count_of
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Document,
    Figure,
    Folded,
    Head,
    Item,
    List,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    value_cell,
    with_heads,
)
from vmtax.report.figures.history import history_picture
from vmtax.report.wording import history as words

MOST_LEFT_OUT, MOST_CHANGES = 3, 5  # on a terminal
PRIMARY, OTHERS = "Primary costs", "Other costs"


def document(history: HostHistory, detail: Detail) -> Document:
    """On a terminal, only primary costs unless everything is asked for."""
    primary = list(history.primary)
    others = [line for line in history.lines if line not in primary]
    sections = (
        Section("answer", _title(history), tuple(_answer(history, detail)), place="first"),
        Section("primary", PRIMARY, tuple(_lines(PRIMARY, primary)), "Costs", "first"),
        Section("changes", "Changes", (_changes(history),), place="first"),
        Section("drift", "Trends", (List(tuple(map(Item, words.trends(history))), most=MOST_CHANGES),), place="first"),
        Section("odd", "Odd runs", (List(tuple(map(Item, words.odd(history))), most=MOST_CHANGES),), place="first"),
        Section("others", OTHERS, tuple(_others(others, detail))),
        Section("left-out", "Left out", (_left_out(history),)),
    )
    kept = tuple(one for one in sections if any(getattr(block, "items", True) for block in one.blocks))
    return Document(_head(history) if detail is Detail.PAGE else None, kept)


def _title(history: HostHistory) -> str:
    chosen = f"{history.plan} ({history.label})" if history.label else history.plan
    return f"vmtax history: {chosen} on {history.host}"


def _head(history: HostHistory) -> Head:
    facts = (f"on {history.host}", words.about(history))
    return Head(
        *(history.plan, history.runs[-1], history.host, facts, ""),
        banner=words.banner(history) or "",
        answer=words.headline(history),
        command="history",
    )


def _answer(history: HostHistory, detail: Detail) -> Iterator[Block]:
    if detail is not Detail.PAGE:  # whose title it is
        yield Paragraph(words.headline(history), "headline")
    yield Paragraph(f"{words.about(history)}; newest {history.runs[-1]}", "note")
    if banner := words.banner(history):
        yield Paragraph(banner, "emulated")


def _lines(title: str, lines: Sequence[HistoryLine]) -> Iterator[Block]:
    if not lines:
        return
    rows: list[Row] = []
    for metric, group in itertools.groupby(lines, key=lambda line: line.metric):
        rows.append(Row((name_cell(label(metric)),)))
        rows += (Row((name_cell(words.contrast(line)), *_cells(line))) for line in group)
    columns = (
        Column("cost"),
        Column("runs", words=True),
        Column("newest"),
        Column("changed since", words=True),
    )
    yield from with_heads((Table(title, columns, tuple(rows)),))
    picture = history_picture(title, lines)
    if picture is not None:
        yield Figure((picture,))
    yield Paragraph(words.READING, "note")


def _cells(line: HistoryLine) -> Iterator[Cell]:
    newest = words.newest(line)
    yield Cell((Span(words.bars(line)),))
    yield value_cell(newest.estimate, newest.interval and f"({newest.interval})", emulated=line.emulated)
    yield Cell((Span(words.since(line), "doubt" if line.changes else "plain"),))


def _changes(history: HostHistory) -> List:
    """The newest first; all changes between the same two runs are one item."""
    found: dict[str, list[tuple[HistoryLine, HistoryChange]]] = defaultdict(list)
    for line in history.lines:
        for change in line.changes:
            found[change.run].append((line, change))
    newest = sorted(found.values(), key=lambda pairs: -pairs[0][1].since)
    return List(tuple(Item(words.changes(pairs)) for pairs in newest), most=MOST_CHANGES)


def _others(lines: Sequence[HistoryLine], detail: Detail) -> Iterator[Block]:
    if not lines:
        return
    if detail is Detail.BRIEF:
        changed = sum(bool(line.changes) for line in lines)
        yield Paragraph(f"{count_of(len(lines), 'other cost')}, {changed} with a change: --full", "note")
        return
    yield Folded(f"{len(lines)} other costs", tuple(_lines(OTHERS, lines)))


def _left_out(history: HostHistory) -> List:
    items = tuple(Item(f"{one.run}: {one.why}") for one in reversed(history.left_out))
    return List(items, most=MOST_LEFT_OUT)
