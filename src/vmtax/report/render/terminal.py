"""What `vmtax show`, the end of `vmtax run` and `vmtax runs` print, as rich renderables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from vmtax.analysis.analysis import Analysis
from vmtax.core.units import format_duration, printable
from vmtax.report.document import (
    Block,
    Cell,
    Code,
    Detail,
    Folded,
    Head,
    Heading,
    Inline,
    Kind,
    List,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    shown,
    with_heads,
)
from vmtax.report.render.screen import FirstScreen
from vmtax.report.sections import at_once, requirements, scores

if TYPE_CHECKING:
    from vmtax.store import ExperimentSummary

WIDE = 120  # columns from which on an estimate and its interval share a line
CROWDED = 4  # columns of a table beyond which they do not on a narrow screen
STATE_STYLES = {"complete": "green", "running": "cyan", "interrupted": "yellow", "failed": "red", "damaged": "red"}
STYLES: dict[Kind, str] = {"strong": "bold", "muted": "dim", "emulated": "yellow"}


def render(analysis: Analysis, full: bool = False) -> RenderableType:
    """One screen that answers what the run was made for; with `full` all that there is."""
    if not full:
        asked = scores.section(scores.storage(analysis)) if analysis.profile else None
        first = (*requirements.sections(analysis), *((asked,) if asked else ()))
        several = at_once.section(analysis)
        if several is not None:
            several = replace(several, blocks=with_heads(several.blocks))
        more = [
            tuple(Group(*section(one, Detail.BRIEF), Text()) for one in some)
            for some in (first, (several,) if several else ())
        ]
        return FirstScreen(analysis, *more)
    from vmtax.report.contents import document  # here, because the first screen needs few of the sections

    detail = Detail.FULL
    found = document(analysis, detail)
    parts = [*_head(found.head), *(Group(*section(one, detail)) for one in found.sections)]
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1]), *parts[-1:])


def runs_table(runs: Iterable[ExperimentSummary]) -> RenderableType:
    """One line for each experiment of the store; labels where some run has one, hosts where one is not `local`."""
    listed = list(runs)
    labelled, elsewhere = any(run.label for run in listed), any(run.host != "local" for run in listed)
    names = [*(["label"] if labelled else []), *(["host"] if elsewhere else [])]
    table = _grid("id", *names, "rounds", "took", "guests", "result")
    table.columns[0].no_wrap = True  # to be copied
    for number in (-4, -3):
        table.columns[number].justify = "right"
        table.columns[number].no_wrap = True
    for run in listed:
        guests = {None: Text("–", style="dim"), True: _plain("emulated", "yellow"), False: Text("KVM")}[run.emulated]
        table.add_row(
            _plain(run.id),
            *([_plain(run.label)] if labelled else []),
            *([_plain(run.host)] if elsewhere else []),
            str(run.rounds),
            _plain("" if run.seconds is None else format_duration(run.seconds)),
            guests,
            _result(run),
        )
    return table if table.row_count else Text("no runs yet: `vmtax run` makes the first")


def _result(run: ExperimentSummary) -> Text:
    """Its headline, or its state where that is not "complete" or there is no headline; and trials that failed."""
    parts = [_plain(run.result)] if run.result else []
    if run.state != "complete" or not parts:
        parts.insert(0, Text(run.state, style=STATE_STYLES[run.state]))
    if run.failed:
        parts.append(Text(f"{run.failed} failed", style="red"))
    return Text(", ").join(parts)


def _head(head: Head) -> Iterator[RenderableType]:
    told = Text.assemble((printable(head.name), "bold"), "  ", (printable(" · ".join(head.facts)), "dim"))
    if head.ended:
        told.append(f"\nended {printable(head.ended)}", style="dim")
    yield told.append(f"\n{printable(head.id)}", style="dim")
    if head.banner:
        grid = Grid.grid(padding=(0, 2))
        grid.add_row(Text("EMULATED", style="bold yellow"), _plain(head.banner, "yellow"))
        yield grid


def section(found: Section, detail: Detail) -> Iterator[RenderableType]:
    """Its title, and what there is room for."""
    first = next(iter(shown(found.blocks, detail)), None)
    if not isinstance(first, Table) or first.title != found.title:
        yield _plain(found.title, "bold")
    yield from blocks(found.blocks, detail)


def blocks(found: Iterable[Block], detail: Detail) -> Iterator[RenderableType]:
    """An empty line before each table, and what a page folds, but one that comes first."""
    for number, block in enumerate(shown(found, detail)):
        if number and isinstance(block, (Table, Heading, Folded)):
            yield Text()
        yield from _block(block, detail)


def _block(block: Block, detail: Detail) -> Iterator[RenderableType]:
    match block:
        case Heading():
            yield _plain(block.text, "bold")
        case Paragraph():
            yield _inline(block.text, {"note": "dim", "warning": "yellow"}.get(block.style, ""))
        case Sentences():
            yield _sentences(block)
        case Table():
            yield _Table(block, detail)
        case List():
            yield _list(block, detail)
        case Code():
            yield from (_plain(f"  {line}") for line in block.lines)
        case Folded():
            yield from blocks(block.blocks, detail)


def _sentences(block: Sentences) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    for label, texts in block.items:
        for number, text in enumerate(texts):
            grid.add_row(_plain("" if number else label, "bold"), _inline(text))
    return grid


def _list(block: List, detail: Detail) -> Grid:
    items = [item for item in block.items if item.detail <= detail]
    most = block.most if detail is Detail.BRIEF and block.most else len(items)
    grid = Grid.grid(padding=(0, 1))
    for item in items[:most]:
        grid.add_row(" ", _inline(item.text))
    if len(items) > most:
        grid.add_row(" ", f"and {len(items) - most} more: `vmtax report` has all")
    return grid


@dataclass(frozen=True, slots=True)
class _Table:
    """A table whose figures are stacked where the screen is narrow."""

    table: Table
    detail: Detail

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= WIDE
        columns = [
            (n, c) for n, c in enumerate(self.table.columns) if c.detail <= self.detail and (wide or not c.spare)
        ]
        grid = _grid(self.table.title, *(_column_head(column.head) for _, column in columns[1:]))
        for place, (_, column) in enumerate(columns):
            if place and not column.words:
                grid.columns[place].justify = "right"
        stacked = not wide and len(columns) > CROWDED
        for row in self._rows():
            if row is None or row.is_heading:
                grid.add_row(Text() if row is None else _heading(row))
                continue
            cells = [_cell(row.cells[number], stacked) for number, _ in columns]
            grid.add_row(Padding(cells[0], (0, 0, 0, 1 if self._grouped else 0)), *cells[1:])
        yield grid

    @property
    def _grouped(self) -> bool:
        return any(row.is_heading for row in self.table.rows)

    def _rows(self) -> Iterator[Row]:
        """What there is room for; how many of a group are left out."""
        most = self.table.most if self.detail is Detail.BRIEF else None
        count = 0
        for row in (row for row in self.table.rows if row.detail <= self.detail):
            if row.is_heading:
                yield from _left_out(count, most)
                count = 0
            else:
                count += 1
            if most is None or count <= most:
                yield row
        yield from _left_out(count, most)


def _left_out(count: int, most: int | None) -> Iterator[Row]:
    if most is not None and count > most:
        yield Row((Cell((Span(f" and {count - most} more", "muted"),)),))


def _heading(row: Row) -> Text:
    name, *notes = row.cells[0].pieces
    text = Text(printable(name.text), style=STYLES.get(name.kind, "bold"))
    for note in notes:
        text.append(f", {printable(note.text)}")
    return text


def _cell(cell: Cell, stacked: bool) -> Text:
    if not cell.pieces:
        return Text("–", style="dim")
    # A mark behind an interval would be taken for the interval's.
    below = stacked or any(piece.kind == "interval" for piece in cell.pieces)
    text = Text()
    for number, piece in enumerate(cell.pieces):
        joint = "\n" if stacked or (below and piece.kind == "emulated") else " "
        text.append(joint if number else "")
        text.append_text(_span(piece))
    return text


def _inline(text: Inline, style: str = "") -> Text:
    if isinstance(text, str):
        return _plain(text, style)
    found = Text(style=style)
    for span in text:
        found.append_text(_span(span))
    return found


def _span(span: Span) -> Text:
    return Text(printable(span.text), style=STYLES.get(span.kind, ""))


def _column_head(head: Inline) -> Text:
    """What is emulated says so below its name."""
    text = _inline(head)
    if isinstance(head, tuple) and head[-1].kind == "emulated":
        name = _inline(head[:-1])
        name.rstrip()
        text = Text("\n").join((name, _span(head[-1])))
    return text


def _grid(*heads: str | Text) -> Grid:
    table = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(_plain(head) if isinstance(head, str) else head, vertical="top", overflow="fold")
    return table


def _plain(text: str, style: str = "") -> Text:
    """`text` as it is: neither markup nor escape sequences in it are obeyed."""
    return Text(printable(text), style=style)
