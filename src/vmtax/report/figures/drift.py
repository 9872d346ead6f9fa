"""Pictures of the run over time: small multiples, one above the other, which show what changes together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from vmtax.analysis.drift import Course, Point, thin
from vmtax.core.records import Metric
from vmtax.core.units import MINUS, format_cost, format_value
from vmtax.report.figures.svg import (
    LEFT,
    Axis,
    across,
    curve,
    drawing,
    element,
    emulation,
    mark,
    percent,
    spaced,
    text,
    upright,
)
from vmtax.report.picture import Key, Picture
from vmtax.report.wording.layers import STYLES

PANEL, TITLE = 110, 30  # pixels: height of a panel, and of its title
MOST_POINTS = 250  # points of a panel
MOST_BANDS = 60  # rounds that are marked individually
MOST_TICKS = 10
ROUND_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**6)
# Deviations that are readable ticks, the most familiar first; the axis is logarithmic in value / median.
TICKS = (0.0, 1.0, -0.5, 9.0, -0.9, 0.5, 0.2, -0.2, 0.1, -0.1, 0.05, -0.05, 0.02, -0.02, 0.01, -0.01, 0.005, -0.005)


def order_picture(courses: Sequence[Course]) -> Picture | None:
    """All courses over one axis of rounds; None if there is no course."""
    if not courses:
        return None
    shown = [thin(course, MOST_POINTS) for course in courses]
    points = [point for course in shown for point in course.points]
    marked = emulation([point.emulated for point in points])
    rounds = [number for course in shown for number, _ in course.rounds]
    title = "One dot for each trial"
    alternative = (
        f"Every trial in run order, as its distance from its configuration’s median, in {len(shown)} panels:"
        f" {', '.join(course.name for course in shown)}{f'; {marked}' if marked else ''}. The table below tells the"
        " drift."
    )
    height = len(shown) * (PANEL + TITLE)
    panels = _panels(shown, _rounds(min(rounds), max(rounds)), (min(rounds), max(rounds)))
    drawn = drawing(
        "order", f"{title}{f' ({marked})' if marked else ''}", alternative, panels, class_="chart curves", height=height
    )
    thinned = max(course.thinned for course in shown)
    return Picture("order", title, _caption(thinned), alternative, tuple(_legend(points)), drawn)


def _caption(thinned: int) -> str:
    caption = "From left to right as it ran, one band for each round; the line is the median of each round."
    if thinned > 1:
        caption += f" Thinned: one trial in {thinned} is drawn, evenly chosen, and every failure; the lines are of all."
    return caption


def _legend(points: Sequence[Point]) -> Iterator[Key]:
    for layer, style in STYLES.items():
        mine = [point.emulated for point in points if point.layer == layer and point.relative is not None]
        if mine:
            marked = emulation(mine)
            words = f"{layer}{f', {marked}' if marked else ''}: one trial, so no interval"
            yield Key(f"{style.mark}-open", style.colour, words)
    yield Key("line", "text", "median of the round")
    if any(point.relative is None for point in points):
        yield Key("cross", "warn", "failed")


def _rounds(first: int, last: int) -> Axis:
    room = 0.02 * (last - first + 1)
    step = next(step for step in ROUND_STEPS if (last - first) / step <= MOST_TICKS)
    numbers = [number for number in range(first, last + 1) if number % step == 0 or number == first]
    return Axis(first - room, last + 1 + room, tuple((number + 0.5, str(number)) for number in numbers))


def _panels(courses: Sequence[Course], rounds: Axis, span: tuple[int, int]) -> Iterator[Markup]:
    for number, course in enumerate(courses):
        top = number * (PANEL + TITLE) + TITLE
        better = "↑" if course.metric.better == "higher" else "↓"
        yield text(f"{course.name}, {better} better", f"-{LEFT}", str(top - 9), style="panel")
        inside = [*_bands(rounds, span), *_course(course, rounds)]
        if number == len(courses) - 1:
            inside.append(across(rounds))
        yield element("svg", *inside, y=top, height=PANEL)


def _course(course: Course, rounds: Axis) -> Iterator[Markup]:
    """Its axis, the rounds' medians and the points; failures have no value and are drawn at the bottom."""
    values = _axis(course)
    yield upright(values, 0, PANEL)
    medians = [(rounds.at(number + 0.5), 1 - values.at(math.log10(relative))) for number, relative in course.rounds]
    yield curve(medians, "text", "")
    for point in course.points:
        share = 0.06 if point.relative is None else values.at(math.log10(point.relative))
        own = STYLES[point.layer]
        kind, style = ("cross", "warn") if point.relative is None else (own.mark, own.colour)
        drawn = mark(
            kind if point.relative is None else f"{kind}-open",
            style,
            rounds.at(point.place),
            round(PANEL * (1 - share), 1),
        )
        yield element("g", element("title", _told(point, course.metric)), drawn)


def _told(point: Point, metric: Metric) -> str:
    doubt = ", emulated" if point.emulated else ""
    relative = "" if point.relative is None else f", {format_cost(point.relative).estimate}"
    text = point.error if point.value is None else format_value(point.value, metric.unit)
    return f"{point.treatment}{doubt}, round {point.round}: {text}{relative}"


def _axis(course: Course) -> Axis:
    decades = [math.log10(point.relative) for point in course.points if point.relative is not None]
    low, high = min(*decades, -0.002), max(*decades, 0.002)
    room = 0.12 * (high - low)
    ticks = ((math.log10(1 + tick), f"{100 * tick:+g} %".replace("-", MINUS).replace("+0 %", "0 %")) for tick in TICKS)
    return Axis(low - room, high + room, spaced(ticks, low - room, high + room, 5))


def _bands(rounds: Axis, span: tuple[int, int]) -> Iterator[Markup]:
    """Shade every other round; if there are many rounds, every other group of rounds."""
    first, last = span
    width = -(-(last - first + 1) // MOST_BANDS)
    for start in range(first + width, last + 1, 2 * width):
        left, right = rounds.at(start), rounds.at(min(start + width, last + 1))
        yield element("rect", class_="band", x=percent(left), width=percent(right - left), y=0, height="100%")
