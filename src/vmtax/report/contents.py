"""The table of contents of a report: which sections it has, in which order, and what they are made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.by_workload import View, view
from vmtax.analysis.deciding import deciding
from vmtax.report.document import Detail, Document, Place, Section, shown, with_heads
from vmtax.report.sections import (
    at_once,
    durability,
    energy,
    exits,
    host_boots,
    idle,
    iterations,
    ledger,
    memory,
    noise,
    numbers,
    prices,
    published,
    rankings,
    requirements,
    robustness,
    scores,
    summary,
    tiles,
    warnings,
)
from vmtax.report.sections import run as about
from vmtax.report.wording import rankings as words


def document(analysis: Analysis, detail: Detail) -> Document:
    """All content that fits the detail; what would not be shown is not computed."""
    viewed = view(analysis)
    head = about.head(analysis)
    if detail is Detail.PAGE:
        from vmtax.report.sections import first

        known = requirements.recommendations_if_known(analysis)
        choice = next((one.advice.choice.treatment for one in known if one.advice.choice), "")
        head = replace(head, answer=first.page_title(first.first(analysis), choice))
    every = _page(analysis, viewed) if detail is Detail.PAGE else _text(analysis, viewed, detail)
    found = (section for section in every if section and shown(section.blocks, detail))
    return Document(head, tuple(replace(section, blocks=with_heads(section.blocks)) for section in found))


def _text(analysis: Analysis, viewed: View, detail: Detail) -> Iterator[Section | None]:
    """For a terminal and for Markdown, which are read from top to bottom."""
    run = analysis.experiment
    ranked = words.ranked(analysis, primary_only=detail is not Detail.FULL)
    decides = deciding(analysis)
    yield durability.lead(analysis)
    yield durability.section(analysis)
    yield summary.section(analysis)
    yield summary.decisions(analysis)
    yield prices.section(analysis)
    for recommended in requirements.sections(analysis):
        yield from recommended
    yield rankings.section(ranked, ())
    yield scores.section(scores.storage(analysis))
    yield rankings.effects_section(words.factor_tables(analysis), decides)
    yield numbers.section(viewed)
    yield tiles.section(analysis)
    yield at_once.section(analysis)
    yield idle.section(analysis)
    yield memory.section(analysis)
    yield host_boots.section(analysis)
    yield published.section(analysis)
    if detail is Detail.FULL:
        yield numbers.lost(viewed)
    if detail >= Detail.FULL:
        yield exits.section(analysis)
        yield energy.section(analysis)
        yield ledger.section(analysis)
        yield robustness.section(analysis)
    yield noise.section(analysis)
    if detail >= Detail.FULL:
        yield iterations.section(analysis)
    yield warnings.section(analysis)
    yield about.notes(run)
    yield about.repeat(run)
    if detail >= Detail.FILE:
        yield about.machines(run)


def _page(analysis: Analysis, viewed: View) -> Iterator[Section | None]:
    """For a page: the answer on the first screen, the evidence next to it, and everything else folded below."""
    from vmtax.analysis.outliers import outliers
    from vmtax.report import evidence, figures
    from vmtax.report.sections import beside, first

    run, shown_first = analysis.experiment, first.first(analysis)
    ranked = words.ranked(analysis, primary_only=True)
    decides = deciding(analysis)
    far = outliers(analysis)
    recommended = requirements.sections(analysis)
    pictures = evidence.pictures(viewed, folded=bool(recommended))
    yield durability.lead(analysis)
    for advice, _ in recommended:
        yield _at("first", advice)
    if not recommended:
        yield first.tiles(shown_first)
        yield first.verdict(shown_first)
    yield _at("first", summary.decisions(analysis))
    yield _at("first", prices.section(analysis))
    yield _at("first", tiles.section(analysis))
    yield _at("first", idle.section(analysis))
    if durability.is_all(analysis):
        yield _at("first", durability.section(analysis))
    yield from (section for section in pictures if section.place == "first")
    yield _at("first", rankings.section(ranked, figures.rank_pictures(analysis, ranked)))
    yield first.main_figures(shown_first)
    yield beside.builds(run)
    yield beside.machine(run)
    yield beside.sure(shown_first, far)
    for _, given_up in recommended:
        yield given_up
    yield summary.section(analysis)
    if not durability.is_all(analysis):
        yield durability.section(analysis)
    yield from (section for section in pictures if section.place == "folded")
    yield scores.section(scores.storage(analysis))
    yield rankings.effects_section(words.factor_tables(analysis), decides)
    yield evidence.choosing(analysis, ranked, decides)
    yield numbers.section(viewed)
    yield at_once.section(analysis)
    yield memory.section(analysis)
    yield exits.section(analysis)
    yield energy.section(analysis)
    yield ledger.section(analysis, figures.ledger_picture(analysis.ledger, analysis.emulated))
    yield host_boots.section(analysis)
    yield published.section(analysis)
    yield robustness.section(analysis)
    yield noise.section(analysis)
    if not durability.is_all(analysis):  # counts have neither latencies nor a course over time
        yield from evidence.behind_the_figures(analysis, far)
    yield iterations.section(analysis)
    yield warnings.section(analysis)
    yield about.notes(run)
    yield about.repeat(run)
    yield about.machines(run)
    yield about.words(emulated=bool(analysis.emulated))


def _at(place: Place, section: Section | None) -> Section | None:
    return section and replace(section, place=place)
