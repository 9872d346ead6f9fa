"""A report's table of contents: which sections there are, in which order, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.report import figures
from vmtax.report.document import Detail, Document, Figure, Section, shown
from vmtax.report.sections import (
    drift,
    factor_effects,
    interactions,
    iterations,
    latency,
    noise,
    numbers,
    outliers,
    rankings,
    requirements,
    robustness,
    scores,
    speed_vs_cpu,
    summary,
    warnings,
)
from vmtax.report.sections import run as about
from vmtax.report.sections.factor_effects import Deciding
from vmtax.report.sections.outliers import Outliers
from vmtax.report.sections.rankings import Ranked
from vmtax.report.view import View, view


def document(analysis: Analysis, detail: Detail) -> Document:
    """All that there is room for; what nobody would see is not computed."""
    viewed = view(analysis)
    sections = (section for section in _sections(analysis, viewed, detail) if section and shown(section.blocks, detail))
    return Document(about.head(viewed), tuple(sections))


def _sections(analysis: Analysis, viewed: View, detail: Detail) -> Iterator[Section | None]:
    run = analysis.experiment
    page = detail is Detail.PAGE
    told = rankings.ranked(analysis, primary_only=detail is not Detail.FULL)
    decides = factor_effects.deciding(analysis)
    doubts = warnings.warnings(analysis)
    far = outliers.outliers(analysis) if page else None
    yield summary.section(analysis, len(doubts), far)
    yield summary.decisions(analysis)
    yield from requirements.sections(analysis)
    if page:
        yield _pictures(viewed)
    yield rankings.section(told, figures.rank_pictures(analysis, told) if page else ())
    yield scores.section(scores.storage(analysis))
    yield rankings.effects_section(rankings.factor_tables(analysis), decides)
    if page:
        yield _choosing(analysis, told, decides)
    yield numbers.section(viewed)
    if detail >= Detail.FULL:
        yield robustness.section(analysis)
    yield noise.section(analysis)
    if far is not None:
        yield from _behind_the_figures(analysis, far)
    if detail >= Detail.FULL:
        yield iterations.section(analysis)
    yield warnings.section(doubts)
    yield about.notes(run)
    yield about.repeat(run)
    if detail >= Detail.FILE:
        yield about.machines(run)
    if page:
        yield about.words(emulated=bool(analysis.emulated))


def _pictures(viewed: View) -> Section | None:
    """Overheads as forest plots."""
    drawn = figures.forests(viewed)
    return Section("picture", "Overhead, layer by layer", (Figure(drawn),), "Pictures") if drawn else None


def _choosing(analysis: Analysis, told: Sequence[Ranked], decides: Sequence[Deciding]) -> Section | None:
    """Pictures whose factors and metrics the reader chooses; the strongest factors are shown at first."""
    shares: dict[str, float] = {}
    for term in (term for deciding in decides for term in deciding.terms):
        shares[term.name] = max(shares.get(term.name, 0.0), term.share)
    crossed = figures.crossed_picture(interactions.grids(analysis), told, shares)
    tradeoff = figures.tradeoff_picture(speed_vs_cpu.tradeoffs(analysis), shares)
    drawn = tuple(Figure((choice,)) for choice in (crossed, tradeoff) if choice)
    return Section("choices", "Choosing", drawn, "Choosing") if drawn else None


def _behind_the_figures(analysis: Analysis, far: Outliers) -> Iterator[Section | None]:
    """Latencies, the course of the run, and what lies far from the rest."""
    distributions = latency.distributions(analysis)
    yield latency.section(distributions, figures.latency_pictures(distributions))
    courses = drift.courses(analysis, tuple(analysis.headline_metrics.values()))
    yield drift.section(courses, figures.order_picture(courses), analysis.rounds)
    yield outliers.section(far, analysis.experiment.id)
