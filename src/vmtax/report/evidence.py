"""Sections that only a page has room for: pictures, latencies, the course of the run, outliers. Slow to import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.analysis import interactions, speed_vs_cpu
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import View
from vmtax.analysis.deciding import Deciding
from vmtax.analysis.drift import courses
from vmtax.analysis.latency import distributions
from vmtax.analysis.outliers import Outliers
from vmtax.report import figures
from vmtax.report.document import Figure, Section
from vmtax.report.sections import drift, latency, outliers
from vmtax.report.wording.rankings import Ranked

MORE = ("tails", "cpu")  # pictures that few readers need first


def pictures(viewed: View, *, folded: bool) -> tuple[Section, ...]:
    """The picture that answers the plan's question, and those shown on demand; `folded`: all are shown on demand."""
    drawn = figures.forests(viewed)
    answers = tuple(Figure((one,)) for one in drawn if one.id not in MORE and not folded)
    more = tuple(Figure((one,)) for one in drawn if one.id in MORE or folded)
    found = (
        Section("picture", "", answers, "Pictures", "first"),
        Section("pictures", "More pictures" if answers else "Pictures of the layers", more, "More pictures"),
    )
    return tuple(section for section in found if section.blocks)


def choosing(analysis: Analysis, rankings: Sequence[Ranked], decides: Sequence[Deciding]) -> Section | None:
    """Pictures with selectable factors and metrics; the strongest factors are shown first."""
    shares: dict[str, float] = {}
    for term in (term for deciding in decides for term in deciding.terms):
        shares[term.name] = max(shares.get(term.name, 0.0), term.share)
    crossed = figures.crossed_picture(interactions.grids(analysis), rankings, shares)
    tradeoff = figures.tradeoff_picture(speed_vs_cpu.tradeoffs(analysis), shares)
    drawn = tuple(Figure((choice,)) for choice in (crossed, tradeoff) if choice)
    return Section("choices", "Choosing", drawn, "Choosing") if drawn else None


def behind_the_figures(analysis: Analysis, far: Outliers) -> Iterator[Section | None]:
    """Latencies, the course of the run, and outliers."""
    found = distributions(analysis)
    yield latency.section(found, figures.latency_pictures(found))
    every = courses(analysis, tuple(analysis.headline_metrics.values()))
    yield drift.section(every, figures.order_picture(every), analysis.rounds)
    yield outliers.section(far, analysis.experiment.id)
