"""Documents on the terminal."""

from __future__ import annotations

from vmtax.cli.app import printed
from vmtax.report.document import Detail, Document
from vmtax.report.render.terminal import whole


def printed_document(document: Document, detail: Detail = Detail.BRIEF) -> None:
    """Print it as tables and text."""
    printed(whole(document, detail))
