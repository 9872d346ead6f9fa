"""Latency distributions, one picture for each case: percentiles on an axis that stretches the tail."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from vmtax.core.records import Json
from vmtax.core.units import format_value
from vmtax.report.figures.base import AXIS, LAYER_STYLES, Picture, emulation, escape, frame
from vmtax.report.sections.latency import Curve, Distribution, percentile

HEIGHT = 320
LEGEND_CHARACTERS = 44  # of a line
LEGEND_PIXELS, FREE_LINES = 19, 3  # of a line; so many take no room from the curves that they need
# Shares with a tick. The axis is log10 of 1 / (1 - share): each nine gets as much room as the one before.
ROLES = {  # (dash, marker, colour) of the best and the worst of many
    "best": ("longdash", "triangle-up", "var(--level-3)"),
    "worst": ("dashdot", "triangle-down", "var(--level-4)"),
}
TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


def latency_pictures(found: Iterable[Distribution]) -> tuple[Picture, ...]:
    """One picture for each case, in the order given."""
    return tuple(_picture(number, distribution) for number, distribution in enumerate(found, start=1))


def _picture(number: int, distribution: Distribution) -> Picture:
    curves = distribution.curves
    emulated = emulation([curve.emulated for curve in curves])
    told = "; ".join(filter(None, map(_in_words, curves)))
    return Picture(
        id=f"latency-{number}",
        title=distribution.name,
        caption="",
        alternative=f"Latency of {distribution.name} by percentile: {told}. The table below holds the percentiles.",
        figure={"data": [_line(curve) for curve in curves], "layout": _layout(curves, emulated)},
    )


def _in_words(curve: Curve) -> str:
    share, seconds = curve.points[-1]
    half = f"half within {value.text}, " if (value := curve.at(0.5)) else ""
    return f"{curve.treatment}: {half}{percentile(share)} {format_value(seconds, 's')}"


def _line(curve: Curve) -> Json:
    style = LAYER_STYLES[curve.layer]
    dash, symbol, colour = ROLES.get(curve.role, (style.dash, style.symbol, style.colour))
    if curve.second:
        dash, symbol = ("dashdot", "cross-thin-open")
    mark = " (emulated)" if curve.emulated else ""
    name = f"{escape(curve.treatment)}{f' ({curve.role})' if curve.role else ''}"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "<br>".join(map(escape, _legend(curve))),
        "x": [_place(share) for share, _ in curve.points],
        "y": [seconds for _, seconds in curve.points],
        "line": {"color": colour, "width": 1.75, "dash": dash},
        "marker": {"symbol": symbol, "color": colour, "size": 6, "line": {"color": colour}},
        "text": [
            f"<b>{name}</b>{mark}<br>{percentile(share)}: {format_value(seconds, 's')}"
            f"<br>median of {curve.rounds} round{'' if curve.rounds == 1 else 's'}"
            for share, seconds in curve.points
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _legend(curve: Curve) -> list[str]:
    """Lines of the curve's name: the role first, for a long name's end is what a narrow picture cuts off."""
    role = f"{curve.role}: " if curve.role else ""
    text = f"{role}{curve.treatment}{' (emulated)' if curve.emulated else ''}"
    return textwrap.wrap(text, LEGEND_CHARACTERS, break_on_hyphens=False, subsequent_indent="  ") or [text]


def _layout(curves: Sequence[Curve], emulated: str) -> Json:
    last = max(_place(curve.points[-1][0]) for curve in curves)
    ticks = [share for share in TICKS if _place(share) <= last + 0.01]
    low, high = _span(curves)
    values = list(_seconds(low, high))
    title = f"share of operations{f', {emulated}' if emulated else ''}"
    return {
        **frame(HEIGHT + LEGEND_PIXELS * max(0, sum(len(_legend(curve)) for curve in curves) - FREE_LINES)),
        "xaxis": {
            **AXIS,
            "title": {"text": title, "standoff": 8, "font": {"size": 13}},
            "range": [-0.04 * last, 1.04 * last],
            "tickangle": 0,
            "tickvals": [_place(share) for share in ticks],
            "ticktext": [f"{100 * share:.10g} %" for share in ticks],
        },
        "yaxis": {
            **AXIS,
            "type": "log",
            "automargin": True,
            "range": [low, high],
            "tickvals": values,
            "ticktext": [format_value(value, "s").replace(".00", "").replace(".0 ", " ") for value in values],
            "minorloglabels": "none",
        },
    }


def _place(share: float) -> float:
    return -math.log10(1 - share)


def _span(curves: Iterable[Curve]) -> tuple[float, float]:
    """The ends of the axis, in decades, with some room."""
    decades = [math.log10(seconds) for curve in curves for _, seconds in curve.points]
    room = 0.05 * (max(decades) - min(decades)) or 0.1
    return min(decades) - room, max(decades) + room


def _seconds(low: float, high: float) -> Iterator[float]:
    """Round numbers between two decades: 1, 2, 5 where there is room for them, else only 1."""
    steps = (1, 2, 5) if high - low < 3 else (1,)
    for decade in range(math.floor(low), math.ceil(high)):
        yield from (step * 10.0**decade for step in steps if low <= math.log10(step) + decade <= high)
