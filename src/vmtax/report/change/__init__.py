"""A comparison of sessions, for people, for pull requests, for CI systems and for programs."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

from vmtax.core.errors import BadInput

if TYPE_CHECKING:
    from vmtax.analysis.sessions import Change

FORMATS = ("terminal", "markdown", "junit", "json")


class UnknownFormat(BadInput):
    """A format that a comparison does not have."""


def renderer(format: str, *, full: bool) -> Callable[[Change], str]:
    """What writes a comparison in that format. Raises UnknownFormat with what there is."""
    if format == "terminal":
        from vmtax.report.change.terminal import as_text

        return lambda change: as_text(change, full=full)
    if format == "markdown":
        from vmtax.report.change.markdown import render_markdown

        return render_markdown
    if format == "junit":
        from vmtax.report.change.junit import render_junit

        return render_junit
    if format == "json":
        from vmtax.report.answers.change import Change as Answer
        from vmtax.report.render.envelope import envelope

        return lambda change: f"{envelope('comparison', Answer.made(change))}\n"
    near = difflib.get_close_matches(format, FORMATS, n=1)
    meant = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(FORMATS)}"
    raise UnknownFormat(f"unknown format {format!r}{meant}")
