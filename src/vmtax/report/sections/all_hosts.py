"""The table of all hosts of a fleet, and their map on a page: what `vmtax fleet show` and `fleet compare` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vmtax.analysis.many.fleet import Fleet
from vmtax.report.document import Block, Cell, Column, Detail, Figure, Row, SortableTable, Span, value_cell
from vmtax.report.figures.fleet import fleet_map
from vmtax.report.wording import fleet as words

MOST_HOSTS = 12  # on a terminal
COSTS_ON_SCREEN, COSTS_ON_PAGE = 2, 6  # columns of the table
HOSTS = "Hosts"


def hosts(fleet: Fleet, detail: Detail, odd_word: str = "odd") -> Iterator[Block]:
    """The primary costs of each host: odd ones first, then by name. `odd_word`: what is written beside an odd one."""
    chosen = fleet.primary[: COSTS_ON_PAGE if detail is Detail.PAGE else COSTS_ON_SCREEN]
    known = [{host.run: host for host in line.hosts} for line in chosen]
    odd = words.odd(fleet, fleet.primary)
    order = sorted(fleet.costs, key=lambda run: run.id not in odd)
    names = [name for name in ("CPU", "kernel") if len({run.properties.get(name) for run in fleet.costs}) > 1]
    shown = names if detail >= Detail.FULL else []
    rows, keys = [], []
    for run in order:
        costs = [found.get(run.id) for found in known]
        amounts = [None if one is None else words.cost(one) for one in costs]
        marked = Span(f" {odd_word}", "bad") if run.id in odd else Span("")
        rows.append(
            Row(
                (
                    Cell((Span(run.host_name), *((marked,) if marked.text else ()))),
                    *(Cell((Span(run.properties.get(name, "–")),)) for name in shown),
                    *(
                        Cell() if one is None else value_cell(one.estimate, one.interval and f"({one.interval})")
                        for one in amounts
                    ),
                )
            )
        )
        properties = [run.properties.get(name, "") for name in shown]
        keys.append(((run.id not in odd, run.host_name), *properties, *(one.ratio if one else 0.0 for one in costs)))
    columns = (
        Column("host"),
        *(Column(name, words=True) for name in shown),
        *(Column(words.subject(line)) for line in chosen),
    )
    picture = fleet_map(fleet, odd_word) if detail is Detail.PAGE else None
    if picture is not None:
        yield Figure((picture,))
    yield SortableTable(
        HOSTS, columns, tuple(rows), most=MOST_HOSTS, id="all-hosts", places=tuple(_places(keys, len(columns)))
    )


def _places(keys: Sequence[tuple[Any, ...]], columns: int) -> Iterator[tuple[int, ...]]:
    """For each row, its place in each column; equal ones keep their order."""
    found = []
    for column in range(columns):
        values = [key[column] for key in keys]
        order = sorted(range(len(keys)), key=values.__getitem__)
        found.append({row: place for place, row in enumerate(order)})
    return (tuple(order[row] for order in found) for row in range(len(keys)))
