"""Whether the machine drifted: every trial against its configuration's median, in its order of execution. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vmtax.analysis.drift import THIRDS_ROUNDS, Course
from vmtax.core.units import format_cost
from vmtax.report.document import (
    Cell,
    Column,
    Detail,
    Figure,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    term,
    value_cell,
)

if TYPE_CHECKING:
    from vmtax.report.picture import Picture

TITLE = "Did the machine drift?"


def section(found: Sequence[Course], picture: Picture | None, rounds: int) -> Section:
    """Whether the machine's speed changed during the run."""
    if picture is None:
        few = Paragraph(f"Drift shows from two rounds on; this run has {rounds}.", detail=Detail.PAGE)
        return Section("drift", TITLE, (few,), "Drift")
    reading = (
        *(Span("Each "), term("trial"), Span(" against the "), term("median"), Span(" of its configuration")),
        Span(
            ": at 0 % it came out as usual. What moves up or down for all layers together is the machine, not"
            " virtualization; it cancels out of every cost, for those compare within a "
        ),
        *(term("round"), Span(".")),
    )
    heads = (
        *("metric", "trials", "failed", "middle half of the values", "farthest value"),
        "last third of the rounds against the first third",
    )
    rows = tuple(Row(tuple(_cells(course))) for course in found)
    title = "Values against the medians of their configurations, over the whole run"
    table = Table(title, tuple(map(Column, heads)), rows, "wrapped", detail=Detail.PAGE)
    return Section("drift", TITLE, (Paragraph(reading, "note", Detail.PAGE), Figure((picture,)), table), "Drift")


def _cells(course: Course) -> Iterator[Cell]:
    low, high = course.middle
    shift = f"needs {THIRDS_ROUNDS} rounds" if course.shift is None else format_cost(course.shift).estimate
    yield name_cell(course.name)
    for text in (
        len(course.points),
        course.failed,
        f"{format_cost(low).estimate} to {format_cost(high).estimate}",
        format_cost(course.farthest).estimate,
    ):
        yield value_cell(str(text))
    yield value_cell(shift)
