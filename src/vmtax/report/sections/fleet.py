"""The output of `vmtax fleet show`: one sentence, means and where the next host lies, odd hosts, groups, all hosts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from vmtax.analysis.many.fleet import Fleet, FleetLine
from vmtax.analysis.summary import label
from vmtax.core.units import count_of, format_overhead
from vmtax.report.document import (
    Block,
    Cell,
    Column,
    Detail,
    Document,
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
from vmtax.report.sections.all_hosts import HOSTS, hosts
from vmtax.report.wording import fleet as words

MOST_LISTED = 5  # on a terminal
PRIMARY, OTHERS = "Primary costs", "Other costs"


def document(fleet: Fleet, detail: Detail) -> Document:
    """On a terminal, a part of the hosts, and only primary costs unless everything is asked for."""
    primary = list(fleet.primary)
    others = [line for line in fleet.lines if line not in primary]
    odd = words.odd(fleet, primary)
    associations = words.associations(fleet)
    sections = (
        Section("answer", _title(fleet), tuple(_answer(fleet, detail)), place="first"),
        Section("primary", PRIMARY, tuple(_lines(PRIMARY, primary)), "Costs", "first"),
        Section("odd", "Odd hosts", tuple(_odd(fleet, detail)) if odd else (), "Odd hosts", "first"),
        Section("groups", "What costs go with", tuple(_groups(fleet)) if associations else (), "Groups", "first"),
        Section("hosts", HOSTS, tuple(hosts(fleet, detail)), HOSTS, "first"),
        Section("others", OTHERS, tuple(_others(others, detail))),
        Section("merged", "Counted once", (_most(map(words.merged, fleet.merged)),)),
        Section("left-out", "Left out", (_most(f"{one.host}, {one.run}: {one.why}" for one in fleet.left_out),)),
    )
    kept = tuple(one for one in sections if any(getattr(block, "items", True) for block in one.blocks))
    return Document(_head(fleet) if detail is Detail.PAGE else None, kept)


def _title(fleet: Fleet) -> str:
    return f"vmtax fleet show: {fleet.plan}{f' ({fleet.label})' if fleet.label else ''}"


def _head(fleet: Fleet) -> Head:
    name = f"{fleet.plan}{f' ({fleet.label})' if fleet.label else ''}"
    facts, banner = tuple(words.facts(fleet)), words.banner(fleet) or ""
    return Head(name, "", "", facts, "", banner, answer=words.headline(fleet), command="fleet show")


def _answer(fleet: Fleet, detail: Detail) -> Iterator[Block]:
    if detail is not Detail.PAGE:  # whose title it is
        yield Paragraph(words.headline(fleet), "headline")
        yield Paragraph(", ".join(words.facts(fleet)), "note")
        if banner := words.banner(fleet):
            yield Paragraph(banner, "emulated")
    if said := words.not_shown(fleet):
        yield Paragraph(said, "note")


def _lines(title: str, lines: Sequence[FleetLine]) -> Iterator[Block]:
    if not lines:
        return
    rows: list[Row] = []
    for metric, group in itertools.groupby(lines, key=lambda line: line.metric):
        rows.append(Row((name_cell(label(metric)),)))
        rows += (Row((name_cell(words.contrast(line)), *_cells(line))) for line in group)
    columns = (Column("cost"), Column("mean"), Column("next host"), Column("apart"), Column("odd", words=True))
    yield from with_heads((Table(title, columns, tuple(rows)),))
    yield Paragraph(words.READING, "note")


def _cells(line: FleetLine) -> Iterator[Cell]:
    mean = words.mean(line)
    if mean is None:
        yield value_cell("one host")
    else:
        yield value_cell(mean.estimate, mean.interval and f"({mean.interval})", emulated=line.emulated)
    yield value_cell(words.following(line)) if words.following(line) else Cell()
    yield value_cell(format_overhead(line.between)) if line.between is not None else Cell()
    names = [host.host for host in line.odd]
    more = f" +{len(names) - 1}" if names[1:] else ""
    yield Cell((Span(f"{names[0]}{more}", "bad"),)) if names else Cell()


def _odd(fleet: Fleet, detail: Detail) -> Iterator[Block]:
    found = words.odd(fleet, fleet.primary)
    yield _most(words.deviations(pairs) for pairs in found.values())
    yield Paragraph(words.ODD_READING, "note")


def _groups(fleet: Fleet) -> Iterator[Block]:
    *found, reminder = words.associations(fleet)
    yield _most(found)
    yield Paragraph(reminder, "note")


def _most(texts: Any) -> List:
    return List(tuple(map(Item, texts)), most=MOST_LISTED)


def _others(lines: Sequence[FleetLine], detail: Detail) -> Iterator[Block]:
    if not lines:
        return
    if detail is Detail.BRIEF:
        odd = sum(bool(line.odd) for line in lines)
        yield Paragraph(f"{count_of(len(lines), 'other cost')}, {odd} with odd hosts: --full", "note")
        return
    yield Folded(f"{len(lines)} other costs", tuple(_lines(OTHERS, lines)))
