"""What a run shows about boots and iterations: how many were planned and why, and where the variance is. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.spread import Spread, spreads
from vmtax.core.units import count_of
from vmtax.design import iterations
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.report.document import Detail, Item, List, Paragraph, Section, Span, term


def lines(analysis: Analysis) -> tuple[str, ...]:
    """All of it as lines; empty if every boot has one iteration."""
    return (*_planned(analysis), *map(sentence, spreads(analysis)))


def sentence(spread: Spread) -> str:
    """What it means for the next run."""
    place = f"{spread.metric.name}, {spread.treatment}{' (emulated)' if spread.emulated else ''}"
    share = f"{place}: {spread.components.share_between:.0%} of the variance is between boots".replace("%", " %")
    if not spread.more_would_help:
        return f"{share}: more iterations would not help"
    inside = f"they cause {100 * spread.of_iterations:.0f} %"
    return f"{share}; of a boot’s mean over {spread.each:.3g} iterations, {inside}: more would help"


def section(analysis: Analysis) -> Section | None:
    """None if every boot has one iteration."""
    found = lines(analysis)
    if not found:
        return None
    reading = (
        Span("A "),
        term("boot"),
        Span(
            " is what is counted; its iterations are made one value. What lies between boots is in the machine’s own"
            " wandering too, and only more rounds make it smaller."
        ),
    )
    blocks = (Paragraph(reading, "note", Detail.PAGE), List(tuple(map(Item, found)), detail=Detail.FULL))
    return Section("iterations", "Boots and iterations", blocks, "Boots")


def _planned(analysis: Analysis) -> Iterator[str]:
    wanted = analysis.experiment.plan.get("iterations", 1)
    if wanted == 1:
        return
    if wanted != "auto":
        yield f"{wanted} iterations in each boot, as the plan says; each boot counts as one value, none is left out"
        return
    yield (
        f"iterations planned from a pilot, the first {PILOT_ROUNDS} rounds with {PILOT_ITERATIONS} in each boot;"
        " each boot counts as one value"
    )
    for case, planned in analysis.schedules.items():
        yield f"{iterations.name_of(case)}: {_plan(planned)} ({planned.reason})"


def _plan(planned: iterations.Schedule) -> str:
    number = f"{count_of(planned.iterations, 'iteration')} in each boot"
    if not planned.steady:
        return (
            f"{number}; no steady state, so none is left out as warm-up, the first {planned.runs} of each boot count:"
            " a longer workload may settle"
        )
    return f"{number}, the first {planned.warm_up} before them left out as warm-up" if planned.warm_up else number
