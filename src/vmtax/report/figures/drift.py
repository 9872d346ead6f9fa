"""The run in its own order: small multiples, one above the other, so that what moves together is seen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from vmtax.core.records import Json
from vmtax.core.units import format_cost
from vmtax.report.figures.base import AXIS, LAYER_STYLES, Picture, apart, emulation, escape, frame, percent_tick
from vmtax.report.sections.drift import Course, Point, thin

PANEL_PIXELS = 150
GAP_PIXELS = 34  # between panels; holds the next one's title
FOOT_PIXELS = 84  # axis and legend
MOST_POINTS = 600  # of a panel
CROWD = 250  # points of a panel from which on they are drawn smaller
MOST_BANDS = 60  # rounds that are marked one by one
MOST_ROUND_TICKS = 10
ROUND_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**6)
HOVER = "<b>%{customdata[0]}</b>, round %{customdata[1]}<br>%{customdata[2]}<br>after %{customdata[3]}<extra></extra>"
# Deviations that make a readable tick; the axis is logarithmic in value / median.
TICKS = tuple(
    sorted(
        {-0.9, -0.75, 0.0, 9.0, 99.0, 999.0}
        | {sign * step for sign in (-1, 1) for step in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)}
        | {1.0, 2.0, 4.0}
    )
)


def order_picture(courses: Sequence[Course]) -> Picture | None:
    """All courses on one axis of rounds; None without a course."""
    if not courses:
        return None
    shown = [thin(course, MOST_POINTS) for course in courses]
    emulated = emulation([point.emulated for course in shown for point in course.points])
    thinned = [course.thinned for course in shown if course.thinned > 1]
    height = len(shown) * PANEL_PIXELS + (len(shown) - 1) * GAP_PIXELS + FOOT_PIXELS + GAP_PIXELS
    panels = list(_panels(shown))
    return Picture(
        id="order",
        title="One point for each trial",
        caption=" ".join(_caption(emulated, max(thinned, default=1))),
        alternative="Every trial in run order, as its distance from its treatment’s median, in "
        f"{len(shown)} panels: {', '.join(course.name for course in shown)}. The table below tells the drift.",
        figure={
            "data": list(_with_legend(trace for panel in panels for trace in panel.traces())),
            "layout": _layout(panels, height, emulated),
        },
    )


def _caption(emulated: str, thinned: int) -> Iterator[str]:
    yield "From left to right as it ran, one band for each round; the line is the median of each round."
    if emulated:
        yield "Every point is emulated." if emulated == "emulated" else "Points that are emulated say so."
    if thinned > 1:
        yield f"Thinned: one point in {thinned} is drawn, evenly chosen, and every failure; the lines are of all."


class _Panel:
    """One course in its place."""

    def __init__(self, number: int, course: Course, top: float, bottom: float) -> None:
        self.course, self.top, self.bottom = course, top, bottom
        self.suffix = "" if number == 0 else str(number + 1)
        decades = [math.log10(point.relative) for point in course.points if point.relative is not None]
        low, high = min(*decades, -0.002), max(*decades, 0.002)
        room = 0.12 * (high - low)
        self.low, self.high = low - room, high + room

    def traces(self) -> Iterator[Json]:
        """The points of each layer, the rounds' medians, and what failed."""
        worked = [point for point in self.course.points if point.relative is not None]
        for layer, style in LAYER_STYLES.items():
            points = [point for point in worked if point.layer == layer]
            emulated = emulation([point.emulated for point in points])
            marker = {"symbol": style.symbol, "color": style.colour, "size": 6 if len(worked) < CROWD else 4.5}
            yield self._points(layer + (f" ({emulated})" if emulated else ""), points, marker)
        yield {
            **self._trace("median of the round"),
            "mode": "lines",
            "x": [number + 0.5 for number, _ in self.course.rounds],
            "y": [relative for _, relative in self.course.rounds],
            "line": {"color": "var(--text)", "width": 1.5},
            "hoverinfo": "skip",
        }
        failed = [point for point in self.course.points if point.relative is None]
        marker = {"symbol": "x", "color": "var(--warn)", "size": 8}
        yield self._points("failed", failed, marker)

    def _points(self, name: str, points: Sequence[Point], marker: Json) -> Json:
        foot = self.low + 0.06 * (self.high - self.low)
        return {
            **self._trace(name),
            "mode": "markers",
            "x": [round(point.place, 4) for point in points],
            # What failed has no value: it stands at the panel's foot.
            "y": [10**foot if point.relative is None else round(point.relative, 5) for point in points],
            "marker": marker,
            "customdata": [_hover(point) for point in points],
            "hovertemplate": HOVER,
        }

    def _trace(self, name: str) -> Json:
        kind = name.partition(" (")[0]
        return {
            "type": "scatter",
            "name": name,
            "legendgroup": kind,
            "xaxis": "x",
            "yaxis": f"y{self.suffix}",
        }

    def axis(self) -> Json:
        inside = [tick for tick in TICKS if self.low <= math.log10(1 + tick) <= self.high]
        ticks = apart(inside, (self.high - self.low) / 6)
        return {
            **AXIS,
            "type": "log",
            "automargin": True,
            "domain": [self.bottom, self.top],
            "range": [self.low, self.high],
            "tickvals": [1 + tick for tick in ticks],
            "ticktext": [("+" if tick > 0 else "") + percent_tick(tick) for tick in ticks],
            "minorloglabels": "none",
        }

    def title(self) -> Json:
        better = "↑" if self.course.metric.better == "higher" else "↓"
        return {
            "text": f"<b>{escape(self.course.name)}</b>, {better} better",
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": self.top,
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
        }


def _panels(courses: Sequence[Course]) -> Iterator[_Panel]:
    whole = len(courses) * PANEL_PIXELS + (len(courses) - 1) * GAP_PIXELS
    for number, course in enumerate(courses):
        top = 1 - number * (PANEL_PIXELS + GAP_PIXELS) / whole
        yield _Panel(number, course, top, max(0.0, top - PANEL_PIXELS / whole))


def _with_legend(traces: Iterable[Json]) -> Iterator[Json]:
    """Those that have points; the first of each kind stands for it in the legend."""
    told: set[str] = set()
    for trace in traces:
        if trace["x"]:
            yield {**trace, "showlegend": trace["legendgroup"] not in told}
            told.add(trace["legendgroup"])


def _hover(point: Point) -> list[str]:
    """What HOVER shows of a point: apart, for there may be thousands of them."""
    mark = " (emulated)" if point.emulated else ""
    relative = "" if point.relative is None else f", {format_cost(point.relative).estimate}"
    return [escape(point.treatment) + mark, str(point.round), escape(point.text) + relative, point.after]


def _layout(panels: Sequence[_Panel], height: int, emulated: str) -> Json:
    layout = frame(height)
    layout["margin"]["t"] = GAP_PIXELS + 28
    layout["legend"]["y"] = 1 + GAP_PIXELS / (height - FOOT_PIXELS)
    rounds = [number for panel in panels for number, _ in panel.course.rounds]
    first, last = min(rounds), max(rounds)
    step = next(step for step in ROUND_STEPS if (last - first) / step <= MOST_ROUND_TICKS)
    marked = [number for number in range(first, last + 1) if number % step == 0 or number == first]
    return {
        **layout,
        "xaxis": {
            **AXIS,
            "title": {"text": "round" + (f", {emulated}" if emulated else ""), "standoff": 8, "font": {"size": 13}},
            "range": [first - 0.02 * (last - first + 1), last + 1 + 0.02 * (last - first + 1)],
            "tickvals": [number + 0.5 for number in marked],
            "ticktext": [str(number) for number in marked],
            "tickangle": 0,
            "showgrid": False,
            "anchor": f"y{panels[-1].suffix}",
        },
        **{f"yaxis{panel.suffix}": panel.axis() for panel in panels},
        "annotations": [panel.title() for panel in panels],
        "shapes": list(_bands(panels, first, last)),
    }


def _bands(panels: Sequence[_Panel], first: int, last: int) -> Iterator[Json]:
    """Every other round shaded; with many rounds every other few."""
    width = -(-(last - first + 1) // MOST_BANDS)
    for panel, start in itertools.product(panels, range(first + width, last + 1, 2 * width)):
        yield {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": start,
            "x1": min(start + width, last + 1),
            "y0": panel.bottom,
            "y1": panel.top,
            "fillcolor": "var(--wash)",
            "line": {"width": 0},
            "layer": "below",
        }
