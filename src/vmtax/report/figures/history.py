"""The picture of a history: a panel for each cost, with its runs over time, their intervals, and where it changed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from vmtax.analysis.many.history import DAY, HistoryLine, HistoryPoint
from vmtax.core.units import MINUS
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
    rule,
    spaced,
    text,
    upright,
)
from vmtax.report.picture import Key, Picture
from vmtax.report.wording import history as words

PANEL, TITLE = 90, 30  # pixels: height of a panel, and of its title
MOST_TICKS = 6
TICKS = tuple(sign * size for size in (0.0, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 9, 99) for sign in (1, -1))
STEPS = (1, 2, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650)  # days between dates on the axis


def history_picture(title: str, lines: Sequence[HistoryLine]) -> Picture | None:
    """All lines over one axis of time; None: there is a single run."""
    times = sorted({point.created for line in lines for point in line.points})
    if len(times) < 2:
        return None
    id = f"history-{title.partition(' ')[0].lower()}"
    marked = emulation([line.emulated for line in lines])
    alternative = (
        f"The cost of each run over time in {len(lines)} panels{f', {marked}' if marked else ''}:"
        f" {', '.join(map(words.subject, lines))}. The table above has the newest costs and the changes."
    )
    drawn = drawing(
        id,
        title,
        alternative,
        _panels(lines, _days(times[0], times[-1])),
        class_="chart curves",
        height=len(lines) * (PANEL + TITLE),
    )
    keys = (
        Key("circle", "vm", "one run, with its interval"),
        Key("line", "text", "mean between changes"),
        Key("line", "warn", "a change", "4 3"),
    )
    return Picture(id, title, "One dot for each run; more is slower.", alternative, keys, drawn)


def _days(first: float, last: float) -> Axis:
    room = 0.03 * (last - first)
    step = next((days for days in STEPS if (last - first) / DAY / days <= MOST_TICKS), STEPS[-1])
    count = int((last - first) / DAY / step)
    ticks = tuple((at, words.short_date(at)) for at in (first + step * DAY * n for n in range(count + 1)))
    return Axis(first - room, last + room, ticks)


def _panels(lines: Sequence[HistoryLine], days: Axis) -> Iterator[Markup]:
    for number, line in enumerate(lines):
        top = number * (PANEL + TITLE) + TITLE
        doubt = ", emulated" if line.emulated else ""
        yield text(f"{words.subject(line)}{doubt}", f"-{LEFT}", str(top - 9), style="panel")
        inside = [*_line(line, days)]
        if number == len(lines) - 1:
            inside.append(across(days))
        yield element("svg", *inside, y=top, height=PANEL)


def _line(line: HistoryLine, days: Axis) -> Iterator[Markup]:
    costs = _costs(line.points)
    yield upright(costs, 0, PANEL)
    firsts = [0, *(_place(line, change.run) for change in line.changes), len(line.points)]
    for change in line.changes:
        middle = days.at((change.before + change.since) / 2)
        yield element("g", element("title", words.told(line, change)), _upright_rule(middle))
    for first, after in itertools.pairwise(firsts):
        part = line.points[first:after]
        mean = 1 - costs.at(math.fsum(math.log10(point.ratio) for point in part) / len(part))
        ends = [days.at(part[0].created) - 0.005, days.at(part[-1].created) + 0.005]
        yield curve([(ends[0], mean), (ends[1], mean)], "text", "")
    for point in line.points:
        at = days.at(point.created)
        y = [
            round(PANEL * (1 - costs.at(math.log10(value))), 1)
            for value in (point.ratio, point.low or point.ratio, point.high or point.ratio)
        ]
        said = f"{words.short_date(point.created)} {point.run}: {words.cost(point)}"
        yield element(
            "g", element("title", said), rule("bar vm", (at, at), (y[1], y[2])), mark("circle", "vm", at, y[0])
        )


def _upright_rule(at: float) -> Markup:
    place = percent(at)
    return element("line", class_="curve warn", stroke_dasharray="4 3", x1=place, x2=place, y1=0, y2="100%")


def _place(line: HistoryLine, run: str) -> int:
    return next(place for place, point in enumerate(line.points) if point.run == run)


def _costs(points: Sequence[HistoryPoint]) -> Axis:
    """Logarithmic in the ratio of times."""
    decades = [math.log10(value) for point in points for value in (point.ratio, point.low, point.high) if value]
    low, high = min(decades), max(decades)
    room = max(0.12 * (high - low), 0.002)
    ticks = ((math.log10(1 + tick), f"{100 * tick:+g} %".replace("-", MINUS)) for tick in TICKS if tick > -1)
    names = ((at, "0 %" if name in ("+0 %", f"{MINUS}0 %") else name) for at, name in ticks)
    return Axis(low - room, high + room, spaced(names, low - room, high + room, 4))
