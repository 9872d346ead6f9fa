"""The output of `vmtax fleet compare`: one sentence, what differs, mean changes, hosts that changed unlike others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from vmtax.analysis.many.fleet_change import ChangedLine, FleetChange
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
    Kind,
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
from vmtax.report.wording import fleet as fleet_words
from vmtax.report.wording import fleet_change as words

MOST_LISTED = 5  # on a terminal
PRIMARY, OTHERS = "Primary times", "Other times and costs"
KINDS: dict[str, Kind] = {"worse": "bad", "better": "good", "undecided": "doubt"}


def document(change: FleetChange, detail: Detail) -> Document:
    """On a terminal, a part of the hosts, and only primary times unless everything is asked for."""
    primary = list(change.primary)
    others = [one for one in change.lines if one not in primary]
    odd = fleet_words.odd(change.changes, [one.line for one in primary])
    found = (*map(fleet_words.deviations, odd.values()),)
    associations = fleet_words.associations(change.changes)
    left_out = [f"{one.host}, {one.run}: {one.why}" for one in change.left_out]
    sections = (
        Section("answer", _title(change), tuple(_answer(change, detail)), place="first"),
        Section("facts", "What else differs", (_listed(words.software(change)),), place="first"),
        Section("primary", PRIMARY, tuple(_lines(PRIMARY, primary, change)), "Times", "first"),
        Section("unlike", "Hosts that changed unlike the others", tuple(_unlike(found, change)), "Unlike", "first"),
        Section("groups", "What changes go with", tuple(_groups(associations)), "Groups", "first"),
        Section("hosts", HOSTS, tuple(hosts(change.changes, detail, words.UNLIKE)), HOSTS, "first"),
        Section("others", OTHERS, tuple(_others(others, change, detail))),
        Section("left-out", "Left out", (_listed(left_out),)),
    )
    kept = tuple(one for one in sections if one.blocks and all(getattr(block, "items", True) for block in one.blocks))
    return Document(_head(change) if detail is Detail.PAGE else None, kept)


def _title(change: FleetChange) -> str:
    return f"vmtax fleet compare: {change.plan}, {change.before} and {change.after}"


def _head(change: FleetChange) -> Head:
    banner = fleet_words.banner(change.changes) or ""
    facts = tuple(words.facts(change))
    answer = words.headline(change)
    return Head(change.plan, "", "", facts, "", banner, answer=answer, command="fleet compare", method=words.METHOD)


def _answer(change: FleetChange, detail: Detail) -> Iterator[Block]:
    if detail is not Detail.PAGE:  # whose title it is
        yield Paragraph(words.headline(change), "headline")
        if banner := fleet_words.banner(change.changes):
            yield Paragraph(banner, "emulated")
        yield Paragraph(", ".join(words.facts(change)), "note")


def _lines(title: str, lines: Sequence[ChangedLine], change: FleetChange) -> Iterator[Block]:
    if not lines:
        return
    rows: list[Row] = []
    for metric, group in itertools.groupby(lines, key=lambda one: one.line.metric):
        rows.append(Row((name_cell(label(metric)),)))
        rows += (Row((name_cell(fleet_words.contrast(one.line)), *_cells(one, change))) for one in group)
    columns = (
        *(Column("time"), Column("mean change"), Column("next host"), Column("apart")),
        *(Column("verdict", words=True), Column("unlike", words=True)),
    )
    yield from with_heads((Table(title, columns, tuple(rows)),))
    yield Paragraph(words.READING, "note")


def _cells(one: ChangedLine, change: FleetChange) -> Iterator[Cell]:
    line = one.line
    mean, following = fleet_words.mean(line), fleet_words.following(line)
    if mean is None:
        yield value_cell("one host" if len(line.hosts) < 2 else "no spread")
    else:
        yield value_cell(mean.estimate, mean.interval and f"({mean.interval})", emulated=line.emulated)
    yield value_cell(following) if following else Cell()
    yield value_cell(format_overhead(line.between)) if line.between is not None else Cell()
    yield Cell((Span(words.verdict(one, change), KINDS.get(one.verdict, "plain")),))
    names = [host.host for host in line.odd]
    more = f" +{len(names) - 1}" if names[1:] else ""
    yield Cell((Span(f"{names[0]}{more}", "bad"),)) if names else Cell()


def _groups(associations: Sequence[str]) -> Iterator[Block]:
    """Nothing, or what goes with a property; the last line says that this is no cause."""
    if associations:
        yield _listed(associations[:-1])
        yield Paragraph(associations[-1], "note")


def _unlike(found: Sequence[str], change: FleetChange) -> Iterator[Block]:
    yield _listed(found)
    yield Paragraph(f"{words.UNLIKE_READING} {words.single_hosts(change)}", "note")


def _listed(texts: Sequence[str]) -> List:
    return List(tuple(map(Item, texts)), most=MOST_LISTED)


def _others(lines: Sequence[ChangedLine], change: FleetChange, detail: Detail) -> Iterator[Block]:
    if not lines:
        return
    if detail is Detail.BRIEF:
        changed = sum(one.verdict in ("worse", "better") for one in lines)
        counted = count_of(len(lines), "other figure")
        yield Paragraph(f"{counted}, {changed} worse or better: --full", "note")
        return
    yield Folded(f"{len(lines)} others", tuple(_lines(OTHERS, lines, change)))
