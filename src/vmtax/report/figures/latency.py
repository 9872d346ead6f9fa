"""Latency distributions, one picture per case: percentiles on an axis that stretches the tail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from vmtax.analysis.latency import Curve, Distribution
from vmtax.core.units import format_percentile, format_value
from vmtax.report.figures.svg import Axis, across, curve, drawing, emulation, spaced, upright
from vmtax.report.picture import Key, Picture
from vmtax.report.wording.layers import STYLES

HEIGHT = 220
# Shares with a tick. The axis is log10 of 1 / (1 - share), so each additional nine takes the same space.
TICKS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
# Colour and dash of the best and the worst of many
ROLES = {"best": ("level-3", "14 4"), "worst": ("level-4", "10 4 2 4")}
SECOND_DASH = "10 3 2 3 2 3"  # for the other side


def latency_pictures(found: Iterable[Distribution]) -> tuple[Picture, ...]:
    """One picture for each case, in the order given."""
    return tuple(_picture(number, distribution) for number, distribution in enumerate(found, start=1))


def _picture(number: int, distribution: Distribution) -> Picture:
    curves = distribution.curves
    marked = emulation([curve.emulated for curve in curves])
    words = "; ".join(filter(None, map(_in_words, curves)))
    id = f"latency-{number}"
    alternative = (
        f"Latency of {distribution.name} by percentile{f', {marked}' if marked else ''}: {words}. The table below holds"
        " the percentiles."
    )
    title = f"{distribution.name}{f' ({marked})' if marked else ''}"
    drawn = drawing(id, title, alternative, _drawn(curves), class_="chart curves", height=HEIGHT)
    return Picture(id, distribution.name, "", alternative, tuple(map(_key, curves)), drawn)


def _in_words(curve: Curve) -> str:
    share, seconds = curve.points[-1]
    half = f"half within {format_value(value, 's')}, " if (value := curve.at(0.5)) else ""
    return f"{curve.treatment}: {half}{format_percentile(share)} {format_value(seconds, 's')}"


def _key(curve: Curve) -> Key:
    role = f"{curve.role}: " if curve.role else ""
    return Key(
        "line", _style(curve)[0], f"{role}{curve.treatment}{', emulated' if curve.emulated else ''}", _style(curve)[1]
    )


def _style(curve: Curve) -> tuple[str, str]:
    """Colour and dash, so that a curve can be distinguished by either."""
    style = STYLES[curve.layer]
    colour, dash = ROLES.get(curve.role) or (style.colour, style.dash)
    return colour, SECOND_DASH if curve.second else dash


def _drawn(curves: Sequence[Curve]) -> Iterator[Markup]:
    shares, seconds = _shares(curves), _seconds(curves)
    yield from (across(shares), upright(seconds, 0, HEIGHT))
    for one in curves:
        points = [(shares.at(_place(share)), 1 - seconds.at(math.log10(value))) for share, value in one.points]
        yield curve(points, *_style(one), _in_words(one))


def _shares(curves: Sequence[Curve]) -> Axis:
    last = max(_place(curve.points[-1][0]) for curve in curves)
    ticks = ((_place(share), f"{100 * share:.10g} %") for share in TICKS)
    return Axis(-0.02 * last, 1.02 * last, tuple(tick for tick in ticks if tick[0] <= last + 0.01))


def _seconds(curves: Iterable[Curve]) -> Axis:
    """A logarithmic axis with round numbers."""
    decades = [math.log10(seconds) for curve in curves for _, seconds in curve.points]
    room = 0.05 * (max(decades) - min(decades)) or 0.1
    low, high = min(decades) - room, max(decades) + room
    powers = range(math.floor(low), math.ceil(high))
    values = [math.log10(step) + decade for step in (1, 2, 5, 3, 1.5) for decade in powers]
    return Axis(low, high, spaced(((value, _text(10**value)) for value in values), low, high, 8))


def _text(seconds: float) -> str:
    return format_value(seconds, "s").replace(".00", "").replace(".0 ", " ")


def _place(share: float) -> float:
    return -math.log10(1 - share)
