"""Doubts: each cause once, with the figures that it affects. Pure."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.notices import Cause
from vmtax.core.notices import sentence
from vmtax.report.document import Detail, Item, List, Paragraph, Section, Span
from vmtax.report.wording.figures import about

MOST = 8  # shown if there is little room


def warnings(analysis: Analysis) -> tuple[Cause, ...]:
    """The causes that are not shown elsewhere: the banner, and every number, already say what is emulated."""
    return tuple(cause for cause in analysis.causes if cause.code != "emulated")


def section(analysis: Analysis) -> Section:
    """A list of the causes."""
    items = tuple(
        Item((Span(cause.code, "code"), Span(f": {sentence_of(cause, analysis)}"))) for cause in warnings(analysis)
    )
    blocks = (List(items, MOST, style="doubts"),) if items else (Paragraph("None.", detail=Detail.PAGE),)
    return Section("doubts", "Warnings", blocks, "Warnings")


def sentence_of(cause: Cause, analysis: Analysis) -> str:
    """Cause, effect, remedy and the affected figures, in complete sentences."""
    parts = [sentence(cause.text)]
    if cause.code != "other":
        parts += (sentence(cause.effect), sentence(cause.remedy))
    return " ".join((*parts, f"This is about {about(cause, analysis)}."))
