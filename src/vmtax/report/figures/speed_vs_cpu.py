"""Pareto pictures: operations per second against host CPU time per operation, marked by a selectable factor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from vmtax.core.records import Json
from vmtax.core.units import format_value
from vmtax.design.stopping import count
from vmtax.design.topology import with_count
from vmtax.report.figures.base import AXIS, LEVEL_STYLES, Choice, escape, frame, round_off
from vmtax.report.figures.svg import emulation
from vmtax.report.sections.speed_vs_cpu import Figure, Point, Tradeoff
from vmtax.report.wording.treatment_labels import varying

HEIGHT = 440
FEWEST_TICKS = 3
HOST = "host, without a guest"
LEAST_REACH = 0.15  # decades by which the host may extend an axis
NO_INTERVAL = "hollow: no interval, so this may be chance"
OTHERS = "other levels"  # for a factor with more levels than there are styles


def tradeoff_picture(found: Sequence[Tradeoff], shares: Mapping[str, float]) -> Choice | None:
    """All cases in one picture with selects, by layer and side; None if there are none.

    `shares`: what each factor explains; the marks first show the strongest one.
    """
    if not found:
        return None
    cases = list(dict.fromkeys(map(_case, found)))
    factors = list(dict.fromkeys(name for one in found for name in varying([point.treatment for point in one.points])))
    factors.sort(key=lambda name: -shares.get(name, 0.0))
    drawn: dict[tuple[int, ...], Json] = {
        ((cases.index(_case(one)), place) if factors else (cases.index(_case(one)),)): _figure(one, factor)
        for one in found
        for place, factor in enumerate(factors or [""])
    }
    joined = [point.treatment.name for point in found[0].points if point.best]
    return Choice(
        id="tradeoff",
        title="Speed against what it costs the host",
        caption="Up is faster, left costs the host less CPU time. The line joins the guests that no other beats in"
        " both, by the estimates; where intervals overlap, the order may be chance.",
        alternative=f"Operations per second against host CPU time for each operation, for {len(cases)} cases. In the"
        f" first, {cases[0]}, no guest is both faster and costs less than: {', '.join(joined)}.",
        selects=(("case", tuple(cases)), ("marks show", tuple(factors))) if factors else (("case", tuple(cases)),),
        figures=drawn,
    )


def _case(one: Tradeoff) -> str:
    return f"{one.name}, {with_count(one.layer, one.count)} {one.side}".rstrip()


def _figure(one: Tradeoff, factor: str) -> Json:
    levels = list(dict.fromkeys(point.treatment.levels.get(factor, "") for point in one.points))
    kept = levels if len(levels) <= len(LEVEL_STYLES) else levels[: len(LEVEL_STYLES) - 1]
    emulated = emulation([point.emulated for point in one.points])
    mark = f", {emulated}" if emulated else ""
    traces = [_front([point for point in one.points if point.best])]
    for number, (colour, symbol) in enumerate(LEVEL_STYLES):
        if number < len(kept):
            mine = [point for point in one.points if point.treatment.levels.get(factor, "") == kept[number]]
            traces.append(_points(_named(factor, kept[number]) + mark, mine, colour, symbol))
        elif number < len(levels):
            rest = [point for point in one.points if point.treatment.levels.get(factor, "") not in kept]
            traces.append(_points(OTHERS + mark, rest, colour, symbol))
            break
    host = one.host
    if host and _near(host, one.points):
        traces.append(_points(HOST, [host], "var(--host)", "square"))
    if any(not point.sure for point in one.points):
        traces.append({**_points(NO_INTERVAL, [], "var(--muted)", "circle-open"), "x": [None], "y": [None]})
    shown = [*one.points, *([host] if host and _near(host, one.points) else [])]
    return {
        "data": traces,
        "layout": {
            **frame(HEIGHT),
            "xaxis": {
                **_axis([point.price for point in shown], "s"),
                "title": {
                    "text": f"host CPU time per operation{mark}",
                    "standoff": 8,
                    "font": {"size": 13},
                },
            },
            "yaxis": {
                **_axis([point.speed for point in shown], "1/s", above=0.0 if host in shown or not host else 0.1),
                "automargin": True,
                "title": {"text": "operations", "font": {"size": 13}},
            },
            "annotations": [_beyond(host, one.points)] if host and not _near(host, one.points) else [],
        },
    }


def _near(host: Point, points: Sequence[Point]) -> bool:
    """Whether the host can be drawn without squeezing the guests into a corner."""
    for values, own in (
        ([point.speed.value for point in points], host.speed.value),
        ([point.price.value for point in points], host.price.value),
    ):
        low, high = math.log10(min(values)), math.log10(max(values))
        reach = max(high - low, LEAST_REACH)
        if not low - reach <= math.log10(own) <= high + reach:
            return False
    return True


def _beyond(host: Point, points: Sequence[Point]) -> Json:
    """Text about where a distant host would be."""
    cheaper = host.price.value < min(point.price.value for point in points)
    dearer = host.price.value > max(point.price.value for point in points)
    text = f"{HOST}: {format_value(host.speed.value, '1/s')}, {format_value(host.price.value, 's')} each"
    arrows = ("← " if cheaper else "", " →" if dearer else "")
    return {
        **{"text": f"{arrows[0]}{text}{arrows[1]}", "xref": "paper", "yref": "paper", "showarrow": False},
        **{"x": 1 if dearer else 0, "xanchor": "right" if dearer else "left", "y": 1, "yanchor": "top"},
        "font": {"size": 12, "color": "var(--muted)"},
    }


def _named(factor: str, level: str) -> str:
    return escape(f"{factor}={level or '–'}") if factor else "guests"


def _front(points: Sequence[Point]) -> Json:
    """The line through the Pareto set: stepped, because there is no choice between two of its points."""
    ordered = sorted(points, key=lambda point: point.price.value)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "no other guest beats these in both",
        "x": [round_off(point.price.value) for point in ordered],
        "y": [round_off(point.speed.value) for point in ordered],
        "line": {"color": "var(--muted)", "width": 1.5, "dash": "solid", "shape": "hv"},
        "hoverinfo": "skip",
    }


def _points(name: str, found: Sequence[Point], colour: str, symbol: str) -> Json:
    points = sorted(found, key=lambda point: not point.sure)  # the legend shows the marker of the first one
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [round_off(point.price.value) for point in points],
        "y": [round_off(point.speed.value) for point in points],
        "error_x": _arms([point.price for point in points], colour),
        "error_y": _arms([point.speed for point in points], colour),
        "marker": {
            "symbol": [symbol if point.sure else f"{symbol}-open" for point in points],
            "color": colour,
            "size": 9,
            "line": {"color": colour, "width": 1.5},
        },
        "text": ["<br>".join(_hover(point)) for point in points],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _arms(found: Sequence[Figure], colour: str) -> Json:
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if one.high is None else round_off(one.high - one.value) for one in found],
        "arrayminus": [0.0 if one.low is None else round_off(one.value - one.low) for one in found],
        "color": colour,
        "thickness": 1,
        "width": 0,
    }


def _hover(point: Point) -> Iterator[str]:
    yield f"<b>{escape(point.treatment.name)}</b>{' (emulated)' if point.emulated else ''}"
    yield f"{_told(point.speed, '1/s')}, {_told(point.price, 's')} of host CPU each"
    yield f"{count(point.speed.rounds)}{'; none is both faster and cheaper' if point.best else ''}"


def _told(found: Figure, unit: str) -> str:
    ends = (
        ""
        if found.low is None or found.high is None
        else (f" [{format_value(found.low, unit)} to {format_value(found.high, unit)}]")
    )
    return f"{format_value(found.value, unit)}{ends}"


def _axis(found: Sequence[Figure], unit: str, above: float = 0.0) -> Json:
    """Logarithmic, with round ticks, covering all values and intervals; `above`: additional space, as a share."""
    decades = [math.log10(end) for one in found for end in (one.value, one.low, one.high) if end]
    room = 0.06 * (max(decades) - min(decades)) or 0.05
    low, high = min(decades) - room, max(decades) + room
    high += above * (high - low)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(1 + step / 10 for step in range(0, 90, 2))):
        ticks = [
            step * 10.0**decade
            for decade in range(math.floor(low), math.ceil(high))
            for step in steps
            if low <= math.log10(step) + decade <= high
        ]
        if len(ticks) >= FEWEST_TICKS:
            break
    return {
        **AXIS,
        "type": "log",
        "range": [round_off(low), round_off(high)],
        "tickangle": 0,
        "tickvals": [round_off(tick) for tick in ticks],
        "ticktext": [re.sub(r"\.0+(?= )|(?<=\.\d)0+(?= )", "", format_value(tick, unit)) for tick in ticks],
        "minorloglabels": "none",
    }
