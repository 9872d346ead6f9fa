"""A report's table of contents: which sections there are, in which order, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vmtax.analysis.analysis import Analysis
from vmtax.report.document import Detail, Document, Section, shown, with_heads
from vmtax.report.sections import (
    factor_effects,
    iterations,
    noise,
    numbers,
    rankings,
    requirements,
    robustness,
    scores,
    summary,
    warnings,
)
from vmtax.report.sections import run as about
from vmtax.report.view import View, view


def document(analysis: Analysis, detail: Detail) -> Document:
    """All that there is room for; what nobody would see is not computed."""
    viewed = view(analysis)
    sections = (section for section in _sections(analysis, viewed, detail) if section and shown(section.blocks, detail))
    return Document(
        about.head(analysis), tuple(replace(section, blocks=with_heads(section.blocks)) for section in sections)
    )


def _sections(analysis: Analysis, viewed: View, detail: Detail) -> Iterator[Section | None]:
    run = analysis.experiment
    is_page = detail is Detail.PAGE
    if is_page:
        from vmtax.report import evidence, figures
        from vmtax.report.sections.outliers import outliers
    ranked = rankings.ranked(analysis, primary_only=detail is not Detail.FULL)
    decides = factor_effects.deciding(analysis)
    far = outliers(analysis) if is_page else None
    yield summary.section(analysis, len(warnings.warnings(analysis)), far)
    yield summary.decisions(analysis)
    yield from requirements.sections(analysis)
    if is_page:
        yield evidence.pictures(viewed)
    yield rankings.section(ranked, figures.rank_pictures(analysis, ranked) if is_page else ())
    yield scores.section(scores.storage(analysis))
    yield rankings.effects_section(rankings.factor_tables(analysis), decides)
    if is_page:
        yield evidence.choosing(analysis, ranked, decides)
    yield numbers.section(viewed)
    if detail is Detail.FULL:
        yield numbers.lost(viewed)
    if detail >= Detail.FULL:
        yield robustness.section(analysis)
    yield noise.section(analysis)
    if far is not None:
        yield from evidence.behind_the_figures(analysis, far)
    if detail >= Detail.FULL:
        yield iterations.section(analysis)
    yield warnings.section(analysis)
    yield about.notes(run)
    yield about.repeat(run)
    if detail >= Detail.FILE:
        yield about.machines(run)
    if is_page:
        yield about.words(emulated=bool(analysis.emulated))
