"""Render blocks on a terminal, as rich renderables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from vmtax.core.units import printable
from vmtax.report.document import (
    Block,
    Cell,
    CheckOutcome,
    Code,
    Detail,
    Document,
    Folded,
    Head,
    Heading,
    Inline,
    Kind,
    List,
    Outcomes,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    shown,
)

WIDE = 120  # with this many columns, an estimate and its interval share a line
CROWDED = 4  # with more columns of a table than this, they do not on a narrow screen
WHOLE_NAMES = "choices"  # style of tables whose names are not broken, for their heads can be
NARROW = 80  # columns; with fewer they are
LONG_NAME = 26  # characters; in a longer name of a group, the part after the last dot goes on its own line
STATUS, NAME = 8, 15  # widths of an outcome's columns
STYLES: dict[Kind, str] = {
    **{"strong": "bold", "muted": "dim", "emulated": "yellow"},
    **{"good": "green", "bad": "red", "doubt": "yellow"},
}


def whole(found: Document, detail: Detail) -> RenderableType:
    """Head and sections, separated by empty lines."""
    parts = [
        *(_head(found.head) if found.head else ()),
        *(Group(*section(one, detail)) for one in found.sections),
    ]
    return Group(*[line for part in parts for line in (part, Text())][:-1])


def _head(head: Head) -> Iterator[RenderableType]:
    about = Text.assemble((printable(head.name), "bold"), "  ", (printable(" · ".join(head.facts)), "dim"))
    if head.ended:
        about.append(f"\nended {printable(head.ended)}", style="dim")
    yield about.append(f"\n{printable(head.id)}", style="dim")
    if head.banner:
        yield _emulated(head.banner)


def _emulated(text: Inline) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    grid.add_row(Text("EMULATED", style="bold yellow"), _inline(text, "yellow"))
    return grid


def section(found: Section, detail: Detail) -> Iterator[RenderableType]:
    """Its title, and the blocks that fit."""
    first = next(iter(shown(found.blocks, detail)), None)
    while isinstance(first, Folded):
        first = next(iter(shown(first.blocks, detail)), None)
    if found.title and not (isinstance(first, Table) and first.title == found.title):
        yield plain_text(found.title, "bold")
    yield from blocks(found.blocks, detail)


def blocks(found: Iterable[Block], detail: Detail) -> Iterator[RenderableType]:
    """Blocks with an empty line before each table and each folded part, unless it comes first."""
    for number, block in enumerate(shown(found, detail)):
        if number and isinstance(block, (Table, Heading, Folded)):
            yield Text()
        yield from _block(block, detail)


def _block(block: Block, detail: Detail) -> Iterator[RenderableType]:
    match block:
        case Heading():
            yield plain_text(block.text, "bold")
        case Paragraph(style="emulated"):
            yield _emulated(block.text)
        case Paragraph():
            yield _inline(block.text, {"note": "dim", "warning": "yellow"}.get(block.style, ""))
        case Sentences():
            yield _sentences(block)
        case Table():
            yield _Table(block, detail)
        case List():
            yield _list(block, detail)
        case Outcomes():
            for outcome in block.items:
                yield from _outcome(outcome)
        case Code():
            yield from (plain_text(f"  {line}") for line in block.lines)
        case Folded():
            yield from blocks(block.blocks, detail)


def _sentences(block: Sentences) -> Grid:
    grid = Grid.grid(padding=(0, 2))
    for label, texts in block.items:
        for number, text in enumerate(texts):
            grid.add_row(plain_text("" if number else label, "bold"), _inline(text))
    return grid


def _list(block: List, detail: Detail) -> Grid:
    items = [item for item in block.items if item.detail <= detail]
    most = block.most if detail is Detail.BRIEF and block.most else len(items)
    grid = Grid.grid(padding=(0, 1))
    for item in items[:most]:
        grid.add_row(" ", _inline(item.text))
    if len(items) > most:
        grid.add_row(" ", f"and {len(items) - most} more: --full shows all")
    return grid


def _outcome(one: CheckOutcome) -> Iterator[RenderableType]:
    grid = Grid.grid(padding=(0, 1, 0, 0))
    for width in (1, STATUS, NAME):
        grid.add_column(min_width=width)
    grid.add_row("", _span(one.status), plain_text(one.name), plain_text(one.text))
    yield grid
    for line in one.remedies:
        yield Text(f"    → {printable(line)}", style="bold", no_wrap=True, overflow="ignore")


@dataclass(frozen=True, slots=True)
class _Table:
    """A table whose figures are stacked on a narrow screen."""

    table: Table
    detail: Detail

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= WIDE
        columns = [
            (n, c) for n, c in enumerate(self.table.columns) if c.detail <= self.detail and (wide or not c.spare)
        ]
        grid = headed_grid(self.table.title, *(_column_head(column.head) for _, column in columns[1:]))
        for place, (_, column) in enumerate(columns):
            if place and not column.words:
                grid.columns[place].justify = "right"
        grid.columns[0].no_wrap = self.table.style == WHOLE_NAMES and options.max_width >= NARROW
        stacked = not wide and len(columns) > CROWDED
        for row in self._rows():
            if row is None or row.is_heading:
                grid.add_row(Text() if row is None else _heading(row))
                continue
            cells = [_cell(row.cells[number], stacked) for number, _ in columns]
            grid.add_row(Padding(cells[0], (0, 0, 0, 1 if self._grouped else 0)), *cells[1:])
        yield grid
        hidden = [column.head for column in self.table.columns if column.spare and not wide and column.head]
        if hidden and self.detail >= Detail.FULL:
            names = [_column_head(head).plain.splitlines()[0] for head in hidden]
            yield Text(f"On a terminal with {WIDE} columns, also: {', '.join(names)}.", style="dim")

    @property
    def _grouped(self) -> bool:
        return any(row.is_heading for row in self.table.rows)

    def _rows(self) -> Iterator[Row]:
        """The rows that fit, and how many of a group are omitted."""
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
    case, dot, measure = name.text.rpartition(".")
    long = dot and len(name.text) > LONG_NAME and " " not in name.text
    text = Text(style=STYLES.get(name.kind, "bold"))
    text.append(f"{printable(case)}.\n {printable(measure)}" if long else printable(name.text))
    for note in notes:
        text.append(f", {printable(note.text)}")
    return text


def _cell(cell: Cell, stacked: bool) -> Text:
    if not cell.pieces:
        return Text("–", style="dim")
    # A mark after an interval would seem to refer to the interval.
    below = stacked or any(piece.kind == "interval" for piece in cell.pieces)
    text = Text()
    for number, piece in enumerate(cell.pieces):
        joint = "\n" if stacked or (below and piece.kind == "emulated") else " "
        text.append(joint if number else "")
        text.append_text(_span(piece))
    return text


def _inline(text: Inline, style: str = "") -> Text:
    if isinstance(text, str):
        return plain_text(text, style)
    found = Text(style=style)
    for span in text:
        found.append_text(_span(span))
    return found


def _span(span: Span) -> Text:
    return Text(printable(span.text), style=STYLES.get(span.kind, ""))


def _column_head(head: Inline) -> Text:
    """The column's head, with "emulated" below its name if it is."""
    text = _inline(head)
    if isinstance(head, tuple) and head[-1].kind == "emulated":
        name = _inline(head[:-1])
        name.rstrip()
        text = Text("\n").join((name, _span(head[-1])))
    return text


def headed_grid(*heads: str | Text) -> Grid:
    table = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(plain_text(head) if isinstance(head, str) else head, vertical="top", overflow="fold")
    return table


def plain_text(text: str, style: str = "") -> Text:
    """`text` as literal text: neither markup nor escape sequences in it have an effect."""
    return Text(printable(text), style=style)
