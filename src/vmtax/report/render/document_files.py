"""A document as the text of a file: as on a terminal, as a page, as Markdown."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TypeVar

from vmtax.report.document import Detail, Document
from vmtax.report.render.html import page
from vmtax.report.render.markdown import whole as markdown_text
from vmtax.report.render.terminal import whole as on_terminal
from vmtax.system.console import console

WIDTH = 100  # columns

Subject = TypeVar("Subject")
Writer = Callable[[Subject, bool], str]


def plain(document: Document, full: bool) -> str:
    """A document as on a terminal, with all details or without."""
    file = io.StringIO()
    rendered = on_terminal(document, Detail.FULL if full else Detail.BRIEF)
    console(file, width=WIDTH, color=False).print(rendered)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def writers(
    make: Callable[[Subject, Detail], Document],
) -> tuple[Writer[Subject], Writer[Subject], Writer[Subject]]:
    """What writes the document that `make` makes of a subject: as on a terminal, as a page, as Markdown."""

    def terminal(subject: Subject, full: bool) -> str:
        return plain(make(subject, Detail.FULL if full else Detail.BRIEF), full)

    def html(subject: Subject, full: bool) -> str:
        return page(make(subject, Detail.PAGE))

    def markdown(subject: Subject, full: bool) -> str:
        return markdown_text(make(subject, Detail.FILE))

    return terminal, html, markdown
