"""GitHub-flavoured Markdown, for issues and wikis. Measured or user-given text is only ever text in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.core.units import printable
from vmtax.report.contents import document
from vmtax.report.document import (
    Block,
    Cell,
    Code,
    Detail,
    Document,
    Folded,
    Head,
    Heading,
    Inline,
    List,
    Outcomes,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    plain,
    shown,
)
from vmtax.report.render.markdown_text import escaped, row, text

EMULATED = "> **Emulated.** "


def render_markdown(analysis: Analysis) -> str:
    """The report of a run."""
    return whole(document(analysis, Detail.FILE))


def whole(found: Document, *, comment: bool = False) -> str:
    """The whole document; for a comment, headings are smaller, and what a page folds is folded."""
    head = _head(found.head) if found.head else ()
    parts = (head, *(_section(section, comment) for section in found.sections))
    return "\n".join(line for part in parts for line in (*part, "")).strip("\n") + "\n"


def _head(head: Head) -> Iterator[str]:
    yield from ("# What virtualization costs", "", text(", ".join((head.name, *head.facts, head.id))))
    if head.ended:
        yield from ("", text(f"Ended {head.ended}."))
    if head.banner:
        yield from ("", f"{EMULATED}{text(head.banner)}")


def _section(section: Section, comment: bool) -> Iterator[str]:
    if section.title:
        yield f"{'###' if comment else '##'} {text(section.title)}"
    yield from blocks(section.blocks, comment)


def blocks(found: Iterable[Block], comment: bool = False) -> Iterator[str]:
    """Each block after an empty line."""
    for block in shown(found, Detail.FILE):
        lines = list(_block(block, comment))
        if lines:
            yield from ("", *lines)


def _block(block: Block, comment: bool) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'####' if comment else '###'} {text(block.text)}"
        case Paragraph():
            begins = {"warning": "> ", "emulated": EMULATED}.get(block.style, "")
            yield f"{begins}{_inline(block.text)}"
        case Sentences():
            for label, texts in block.items:
                yield from (f"- {text(label)}: {_inline(one)}" for one in texts)
        case Table():
            yield from _table(block)
        case List():
            yield from (f"- {_inline(item.text)}" for item in block.items if item.detail <= Detail.FILE)
        case Code():
            yield from _code(block.lines, block.language)
        case Outcomes():
            for outcome in block.items:
                yield f"- {_span(outcome.status)} {text(outcome.name)}: {text(outcome.text)}"
                yield from (f"  - {_code_span(printable(line))}" for line in outcome.remedies)
        case Folded(summary=summary) if comment:
            yield f"<details><summary>{text(summary)}</summary>"
            yield from (*blocks(block.blocks, comment), "", "</details>")
        case Folded():
            yield from list(blocks(block.blocks, comment))[1:]


def _inline(found: Inline) -> str:
    """One line; spans keep their spaces, which separate them from their neighbours."""
    if isinstance(found, str):
        return text(found)
    return re.sub(r"^\s+|\s+$", "", "".join(map(_span, found)))


def _span(span: Span) -> str:
    raw = escaped(re.sub(r"\s+", " ", printable(span.text)))
    match span.kind:
        case "strong" | "good" | "bad":
            return f"**{raw}**"
        case "muted":
            return f"({raw})"
        case "interval":
            return span.text
        case "code":
            return _code_span(printable(span.text))
    return raw


def _code_span(raw: str) -> str:
    """A code span with more backquotes than the text contains."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", raw)), default=0))
    pad = " " if raw.startswith("`") or raw.endswith("`") else ""
    return f"{fence}{pad}{' '.join(raw.split())}{pad}{fence}"


def _table(table: Table) -> Iterator[str]:
    kept = [number for number, column in enumerate(table.columns) if column.detail <= Detail.FILE]
    columns = [table.columns[number] for number in kept]
    yield row(*(text(plain(column.head)) for column in columns))
    yield row("---", *("---" if column.words else "---:" for column in columns[1:]))
    yield from (_row(line, kept) for line in table.rows if line.detail <= Detail.FILE)


def _row(line: Row, kept: Sequence[int]) -> str:
    if line.is_heading:
        name, *notes = line.cells[0].pieces
        return row(" ".join((f"**{text(name.text)}**", *map(_span, notes))), *("" for _ in kept[1:]))
    return row(*(_cell(line.cells[number]) for number in kept))


def _cell(cell: Cell) -> str:
    return " ".join(map(_span, cell.pieces)) or "–"


def _code(lines: Sequence[str], language: str) -> Iterator[str]:
    """A fenced block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (f"{fence}{language}", *map(printable, lines), fence)
