"""A report as blocks: sections yield the content, renderers lay it out. Neither knows the other.

Text is text: a renderer escapes all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from markupsafe import Markup

    from vmtax.report.figures.base import Choice
    from vmtax.report.figures.svg import Picture


class Detail(IntEnum):
    """How much a reader has room for. What a block asks for is shown there, and wherever there is more room."""

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
    target: str = ""  # of a term: its word in the glossary; of a link: a section's id


Inline = str | tuple[Span, ...]  # spans bring their own spaces


@dataclass(frozen=True, slots=True)
class Cell:
    """Pieces, which a renderer puts side by side or one below the other; none: there is nothing to show."""

    pieces: tuple[Span, ...] = ()
    title: str = ""  # a further sentence, shown beside it where there is room
    bar: float | None = None  # a share, 0 to 1, that is drawn before the text
    style: str = ""  # what the page's style sheet calls it
    more: tuple[str, ...] = ()  # names that a page unfolds


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column."""

    head: Inline
    words: bool = False  # it holds words, not numbers
    detail: Detail = Detail.BRIEF
    spare: bool = False  # the first to go where a screen is narrow


@dataclass(frozen=True, slots=True)
class Row:
    """The first cell is the row's name. A group's heading has no other."""

    cells: tuple[Cell, ...]
    detail: Detail = Detail.BRIEF
    style: str = ""
    id: str = ""  # of a metric, by which a page can be entered there

    @property
    def is_heading(self) -> bool:
        return len(self.cells) == 1


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    style: str = ""  # what the page's style sheet calls it
    most: int | None = None  # rows of a group that are shown where there is little room; None: all
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Heading:
    """Of a part of a section."""

    text: str
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A note explains how to read something; a warning must not be missed, nor that figures are emulated."""

    text: Inline
    style: Literal["plain", "note", "warning", "headline", "emulated"] = "plain"
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Sentences:
    """What each is about, and its sentences."""

    items: tuple[tuple[str, tuple[Inline, ...]], ...]
    detail: Detail = Detail.BRIEF
    glossary: bool = False  # terms lead here


@dataclass(frozen=True, slots=True)
class Item:
    """Of a list."""

    text: Inline
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class List:
    """Sentences."""

    items: tuple[Item, ...]
    most: int | None = None  # that are shown where there is little room; None: all
    detail: Detail = Detail.BRIEF
    style: str = ""  # what the page's style sheet calls it


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a check."""

    status: Span
    name: str  # of what was checked
    text: str
    remedies: tuple[str, ...] = ()  # to be copied: no renderer breaks them


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Checks, one below the other."""

    items: tuple[Outcome, ...]
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Code:
    """To be copied."""

    lines: tuple[str, ...]
    language: str = ""
    detail: Detail = Detail.BRIEF


@dataclass(frozen=True, slots=True)
class Figure:
    """Pictures that stand together."""

    pictures: tuple[Picture | Choice, ...]
    style: str = ""
    detail: Detail = Detail.PAGE


@dataclass(frozen=True, slots=True)
class Tile:
    """The answer about one subject."""

    subject: str  # "CPU"
    figure: str  # "+3.1 %"
    word: str  # what that is in a word: "hardly slower"
    interval: str  # "2.4–3.9"; "" without one
    bar: Markup | None = None  # the interval, drawn; None without one
    more: str = ""  # what nesting adds
    emulated: bool = False


@dataclass(frozen=True, slots=True)
class Tiles:
    """Side by side."""

    items: tuple[Tile, ...]
    detail: Detail = Detail.PAGE


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that a page unfolds on demand; elsewhere they just follow."""

    summary: str
    blocks: tuple[Block, ...]
    detail: Detail = Detail.BRIEF


Block = Heading | Paragraph | Sentences | Table | List | Outcomes | Code | Figure | Tiles | Folded


Place = Literal["top", "first", "beside", "folded"]


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under one title."""

    id: str
    title: str
    blocks: tuple[Block, ...]
    name: str = ""  # in the navigation of a page; "" : it has no entry there
    place: Place = "folded"  # of a page


@dataclass(frozen=True, slots=True)
class Head:
    """What stands above all sections."""

    name: str  # of the plan
    id: str
    host: str
    facts: tuple[str, ...]  # where, when, how long
    ended: str
    banner: str  # "" of a run that is not emulated
    answer: str = ""  # of a page: its title


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    head: Head | None  # None: the first section says it
    sections: tuple[Section, ...]


def shown(blocks: Iterable[Block], detail: Detail) -> tuple[Block, ...]:
    """The blocks that there is room for."""
    return tuple(block for block in blocks if block.detail <= detail)


def plain(text: Inline) -> str:
    """Without what spans add."""
    return text if isinstance(text, str) else "".join(span.text for span in text)


def term(word: str, text: str = "") -> Span:
    """A word of the glossary."""
    return Span(text or word, "term", word)


def listed(lines: Iterable[str]) -> List:
    """Lines as a list."""
    return List(tuple(map(Item, lines)))


def name_cell(text: str, note: str = "", *, emulated: bool = False, title: str = "") -> Cell:
    """What a row is about."""
    spans = (Span(text), Span(note, "muted"), Span("emulated" if emulated else "", "emulated"))
    return Cell(tuple(span for span in spans if span.text), title)


def value_cell(text: str, interval: str = "", *, emulated: bool = False, shown: bool = False) -> Cell:
    """A figure; `shown`: its interval excludes no effect."""
    spans = (
        Span(text, "strong" if shown else "plain"),
        Span(interval, "interval"),
        Span("emulated" if emulated else "", "emulated"),
    )
    return Cell(tuple(span for span in spans if span.text))


def headed(table: Table) -> Table:
    """The table with "emulated" in the head of each column whose figures all are, and no longer beside each of them."""
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
    """Heads; those of `words` hold words."""
    return (Column(first), *(Column(head, head in words) for head in others))
