"""Every renderer shows every kind of block, and obeys nothing in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.test_report import printed
from tests.unit.test_report_html import HOSTILE
from vmtax.report.document import (
    Block,
    CheckOutcome,
    Code,
    Detail,
    Document,
    Folded,
    Heading,
    Outcomes,
    Paragraph,
    Section,
    Sentences,
    Span,
    columns,
    listed,
)
from vmtax.report.document import Row as Line
from vmtax.report.document import Table as Rows
from vmtax.report.document import name_cell as name
from vmtax.report.document import value_cell as value
from vmtax.report.render import html, markdown, terminal

BLOCKS: tuple[Block, ...] = (
    Heading("a heading"),
    Paragraph("a paragraph"),
    Paragraph("figures that are", "emulated"),
    Sentences((("about", ("a sentence",)),)),
    Rows("rows", columns("what", "amount"), (Line((name("a row"), value("7", "6–8"))),)),
    listed(("an item",)),
    Outcomes((CheckOutcome(Span("missing", "bad"), "KVM", "no /dev/kvm", ("modprobe kvm",)),)),
    Code(("a command",)),
    Folded("a summary", (Paragraph("within"),)),
)
WORDS = (
    *("a heading", "a paragraph", "figures that are", "about", "a sentence", "a row", "7", "6–8", "an item"),
    *("missing", "KVM", "no /dev/kvm", "modprobe kvm", "a command", "within"),
)


def on_terminal(blocks: tuple[Block, ...]) -> str:
    return printed(terminal.whole(Document(None, (Section("one", "Title", blocks),)), Detail.FULL))


def as_markdown(blocks: tuple[Block, ...]) -> str:
    return markdown.whole(Document(None, (Section("one", "Title", blocks),)))


def as_comment(blocks: tuple[Block, ...]) -> str:
    return markdown.whole(Document(None, (Section("one", "Title", blocks),)), comment=True)


def as_html(blocks: tuple[Block, ...]) -> str:
    macros = html._environment().get_template("blocks.html.j2").module
    return "".join(str(macros.render(block)) for block in blocks)


@pytest.mark.parametrize("render", [on_terminal, as_markdown, as_comment, as_html])
def test_every_kind_of_block_is_shown_in_its_order(render: Callable[[tuple[Block, ...]], str]) -> None:
    text, place = render(BLOCKS), 0
    for words in WORDS:
        place = text.index(words, place)


@pytest.mark.parametrize("render", [as_markdown, as_comment, as_html])
def test_an_outcome_is_text(render: Callable[[tuple[Block, ...]], str]) -> None:
    hostile = CheckOutcome(Span("ok", "good"), HOSTILE, HOSTILE)
    assert "<script" not in render((Outcomes((hostile,)),)) and "<img" not in render((Outcomes((hostile,)),))


def test_a_remedy_is_not_broken_where_it_is_printed_uncropped() -> None:
    from vmtax.system.console import as_text

    long = "echo " + "x" * 200
    shown = Outcomes((CheckOutcome(Span("missing", "bad"), "KVM", "no /dev/kvm", (long,)),))
    text = as_text(terminal.whole(Document(None, (Section("one", "Title", (shown,)),)), Detail.BRIEF))
    assert f"    → {long}\n" in text
