"""A report as blocks: sections produce the content, renderers lay it out. Neither depends on the other.

Text is plain text: a renderer escapes all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markupsafe import Markup

    from vmtax.report.picture import Picture, PictureChoice


class Detail(IntEnum):
    """How much a reader has room for. A block is shown from its own detail upwards."""

    BRIEF = 0  # a terminal
    FULL = 1  # a terminal, with --full
    FILE = 2  # Markdown
    PAGE = 3  # HTML


Kind = Literal["plain", "strong", "muted", "interval", "emulated", "good", "bad", "doubt", "term", "link", "code"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of text of one kind."""

    text: str
    kind: Kind = "plain"
    target: str = ""  # for a term: its word in the glossary; for a link: a section's id


Inline = str | tuple[Span, ...]  # spans include the spaces around them


@dataclass(frozen=True, slots=True)
class Cell:
    """Pieces, which a renderer places side by side or one below the other; empty: nothing to show."""

    pieces: tuple[Span, ...] = ()
    title: str = ""  # an additional sentence, shown if there is room
    bar: float | None = None  # a share, 0 to 1, drawn before the text
    style: str = ""  # class in the page's style sheet
    more: tuple[str, ...] = ()  # names that a page can unfold


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column."""

    head: Inline
    words: bool = False  # contains words, not numbers
    detail: Detail = Detail.BRIEF
    spare: bool = False  # the first column to omit on a narrow screen


@dataclass(frozen=True, slots=True)
class Row:
    """The first cell is the row's name. A group's heading has no other cell."""

    cells: tuple[Cell, ...]
    detail: Detail = Detail.BRIEF
    style: str = ""
    id: str = ""  # of a metric, so that a page can be linked to there

    @property
    def is_heading(self) -> bool:
        return len(self.cells) == 1


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    style: str = ""  # class in the page's style sheet
    most: int | None = None  # rows of a group that are shown if there is little room; None: all
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class SortableTable(Table):
    """A table that a page can sort by any of its columns; without headings of groups."""

    id: str = ""  # in its page
    places: tuple[tuple[int, ...], ...] = ()  # for each row, its place if the table is sorted by each column


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a part of a section."""

    text: str
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A note explains how to read something; a warning must not be missed, nor must the mark of emulated figures."""

    text: Inline
    style: Literal["plain", "note", "warning", "headline", "emulated"] = "plain"
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences, each with its subject."""

    items: tuple[tuple[str, tuple[Inline, ...]], ...]
    detail: Detail = Detail.BRIEF
    glossary: bool = False  # links to terms lead here


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list."""

    text: Inline
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class List:
    """A list of sentences."""

    items: tuple[Item, ...]
    most: int | None = None  # that are shown if there is little room; None: all
    detail: Detail = Detail.BRIEF
    style: str = ""  # class in the page's style sheet


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of a check."""

    status: Span
    name: str  # of the check
    text: str
    remedies: tuple[str, ...] = ()  # to be copied, so no renderer wraps them


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Checks, one below the other."""

    items: tuple[CheckOutcome, ...]
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be copied."""

    lines: tuple[str, ...]
    language: str = ""
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Figure:
    """Pictures that belong together."""

    pictures: tuple[Picture | PictureChoice, ...]
    style: str = ""
    detail: Detail = Detail.PAGE


@dataclass(frozen=True, slots=True)
class Tile:
    """The answer about one subject."""

    subject: str  # "CPU"
    figure: str  # "+3.1 %"
    word: str  # the cost in a word: "hardly slower"
    interval: str  # "2.4–3.9"; "" if there is none
    bar: Markup | None = None  # the interval as a drawing; None if there is none
    more: str = ""  # the cost of nesting
    emulated: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles side by side."""

    items: tuple[Tile, ...]
    detail: Detail = Detail.PAGE


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that a page unfolds on demand; other renderers show them in place."""

    summary: str
    blocks: tuple[Block, ...]
    detail: Detail = Detail.BRIEF


Block = Heading | Paragraph | Sentences | Table | List | Outcomes | Code | Figure | Tiles | Folded


Place = Literal["top", "first", "beside", "folded"]


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    name: str = ""  # in a page's navigation; "": not listed there
    place: Place = "folded"  # on a page


# Of most documents
COSTS = (
    "A cost is time for the same work: the Hodges–Lehmann estimate of the ratio over rounds, with the exact signed-rank"
    " interval."
)


@dataclass(frozen=True, slots=True)
class Head:
    """The part above all sections."""

    name: str  # of the plan
    id: str
    host: str
    facts: tuple[str, ...]  # where, when, how long
    ended: str
    banner: str  # "" unless the run is emulated
    answer: str = ""  # the title of a page
    command: str = "report"  # of vmtax, that wrote it
    method: str = COSTS  # what its figures are


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    head: Head | None  # None: the first section replaces it
    sections: tuple[Section, ...]


def shown(blocks: Iterable[Block], detail: Detail) -> tuple[Block, ...]:
    """The blocks that are shown at that detail."""
    return tuple(block for block in blocks if block.detail <= detail)


def plain(text: Inline) -> str:
    """The text without formatting."""
    return text if isinstance(text, str) else "".join(span.text for span in text)


def term(word: str, text: str = "") -> Span:
    """A word that is in the glossary."""
    return Span(text or word, "term", word)


def listed(lines: Iterable[str]) -> List:
    """Lines as a list."""
    return List(tuple(map(Item, lines)))


def name_cell(text: str, note: str = "", *, emulated: bool = False, title: str = "") -> Cell:
    """The cell with a row's name."""
    spans = (Span(text), Span(note, "muted"), Span("emulated" if emulated else "", "emulated"))
    return Cell(tuple(span for span in spans if span.text), title)


def value_cell(text: str, interval: str = "", *, emulated: bool = False, shown: bool = False) -> Cell:
    """The cell of a figure; `shown`: its interval excludes "no effect"."""
    spans = (
        Span(text, "strong" if shown else "plain"),
        Span(interval, "interval"),
        Span("emulated" if emulated else "", "emulated"),
    )
    return Cell(tuple(span for span in spans if span.text))


def headed(table: Table) -> Table:
    """Move "emulated" from the cells to the column's head if all of its figures are emulated."""
    heads, places = [], []
    for place, column in enumerate(table.columns):
        cells = [row.cells[place] for row in table.rows if not row.is_heading and row.cells[place].pieces]
        marked = bool(place and cells) and all(any(p.kind == "emulated" for p in cell.pieces) for cell in cells)
        spans = (Span(column.head),) if isinstance(column.head, str) else column.head
        heads.append(replace(column, head=(*spans, Span(" "), Span("emulated", "emulated"))) if marked else column)
        places += [place] * marked
    rows = tuple(
        row if row.is_heading else replace(row, cells=tuple(_unmarked(row.cells, places))) for row in table.rows
    )
    return replace(table, columns=tuple(heads), rows=rows) if places else table


def _unmarked(cells: Sequence[Cell], places: Sequence[int]) -> Iterable[Cell]:
    for place, cell in enumerate(cells):
        kept = tuple(piece for piece in cell.pieces if piece.kind != "emulated")
        yield replace(cell, pieces=kept) if place in places else cell


def with_heads(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The blocks, with every table `headed`."""
    return tuple(
        headed(block)
        if isinstance(block, Table)
        else replace(block, blocks=with_heads(block.blocks))
        if isinstance(block, Folded)
        else block
        for block in blocks
    )


def columns(first: str, *others: str, words: Sequence[str] = ()) -> tuple[Column, ...]:
    """Columns with these heads; those in `words` contain words."""
    return (Column(first), *(Column(head, head in words) for head in others))
