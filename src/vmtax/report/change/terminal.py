"""What `vmtax compare` prints: what differs about the machines, the primary figures, what else is apart."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vmtax.analysis.sessions import Change, Line
from vmtax.core.records import Metric
from vmtax.core.units import printable
from vmtax.report.change import words
from vmtax.report.view import special_cost
from vmtax.system.console import console

MOST_FACTS, MOST_OTHERS = 12, 10  # facts and exploratory figures, unless all are asked for
LONG_NAME = 26  # characters of a metric, from which on it takes two lines
STYLES = {"worse": "red", "better": "green", "same": "", "undecided": "yellow"}
FILE_WIDTH = 100  # columns, where it is no terminal that is written to


def as_text(change: Change, *, full: bool = False) -> str:
    """For a file: neither colour nor escape sequences."""
    text = io.StringIO()
    console(text, width=FILE_WIDTH, color=False).print(render(change, full=full))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def render(change: Change, *, full: bool = False) -> RenderableType:
    """`full`: every fact that differs, and every exploratory figure, not only those that are apart."""
    primary = [line for line in change.lines if line.primary]
    others = [line for line in change.lines if not line.primary]
    apart = [line for line in others if line.verdict in ("worse", "better")]
    shown = others if full else apart[:MOST_OTHERS]
    parts = [
        _grid((name, text) for name, text in words.sides(change)),
        *_banner(change),
        *_facts(change, full),
        Text(words.headline(change), style="bold"),
        *_figures("Primary", primary, change),
        *_figures("Exploratory", shown, change),
        *_rest(len(others), len(apart), len(shown)),
        Text(" ".join((words.READING, *words.basis(change))), style="dim"),
        *_listed("Undecided", words.reasons(primary or others)),
        *_listed("Warnings", change.warnings),
    ]
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1]), parts[-1])


def _banner(change: Change) -> Iterator[RenderableType]:
    text = words.banner(change)
    if text:
        yield _grid([("EMULATED", text)], "yellow")


def _facts(change: Change, full: bool) -> Iterator[RenderableType]:
    if not change.facts:
        yield Text("No fact of the machines that lasts differs.")
        return
    table = _table("What differs", "before", "after")
    shown = change.facts if full else change.facts[:MOST_FACTS]
    for path, facts in itertools.groupby(shown, key=lambda fact: fact.path):
        table.add_row(_plain(path, "bold"))
        for fact in facts:
            table.add_row(Padding(_plain(fact.name), (0, 0, 0, 1)), _plain(fact.before), _plain(fact.after))
    if len(shown) < len(change.facts):
        table.add_row(Text(f" and {len(change.facts) - len(shown)} more: --full", style="dim"))
    yield table


def _figures(title: str, lines: Sequence[Line], change: Change) -> Iterator[RenderableType]:
    if not lines:
        return
    table = _table(title, "cost of the change", "sessions", "verdict")
    table.columns[2].justify = "right"
    for metric, group in itertools.groupby(lines, key=lambda line: line.metric):
        table.add_row(_metric(metric))
        for line in group:
            verdict = _plain(words.verdict(line, change), STYLES[line.verdict])
            name = Padding(_plain(line.treatment), (0, 0, 0, 1))
            table.add_row(name, _plain(words.amount(line)), words.sessions(line), verdict)
    yield table


def _metric(metric: Metric) -> Text:
    """Its name, and what its cost is of where that is not time."""
    kind = special_cost(metric)
    return Text.assemble((_name(metric), "bold"), *((f"\n {kind}", "dim") for _ in range(bool(kind))))


def _name(metric: Metric) -> str:
    case, _, measure = printable(metric.name).rpartition(".")
    return f"{case}.\n {measure}" if len(metric.name) > LONG_NAME else f"{case}.{measure}"


def _rest(others: int, apart: int, shown: int) -> Iterator[RenderableType]:
    if others:
        rest = f" {others - shown} are not here: --full, or --json." if shown < others else ""
        text = f"Of {others} exploratory figures {apart} are apart; of twenty, one is so by chance.{rest}"
        yield Text(text, style="dim")


def _listed(title: str, lines: Sequence[str]) -> Iterator[RenderableType]:
    if lines:
        yield Group(Text(title, style="bold"), _grid((" ", line) for line in lines))


def _grid(rows: Iterator[tuple[str, str]] | Sequence[tuple[str, str]], style: str = "") -> Table:
    grid = Table.grid(padding=(0, 1))
    for name, text in rows:
        grid.add_row(_plain(name, f"bold {style}".strip()), _plain(text, style))
    return grid


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, vertical="top")
    return table


def _plain(text: str, style: str = "") -> Text:
    """`text` as it is: neither markup nor escape sequences in it are obeyed."""
    return Text(printable(text), style=style)
