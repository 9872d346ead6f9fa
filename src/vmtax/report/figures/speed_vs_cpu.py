"""Pareto pictures: operations per second against host CPU time per operation, marked by a selectable factor."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from vmtax.analysis.speed_vs_cpu import PointFigure, SpeedPoint, Tradeoff
from vmtax.core.units import format_value
from vmtax.design.stopping import count
from vmtax.design.topology import varying, with_count
from vmtax.report.figures.base import that_fit
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
from vmtax.report.picture import Key, Panel, PictureChoice
from vmtax.report.wording.treatment_labels import NOTHING

HEIGHT = 340
ACROSS, UP = 6, 8  # ticks of the axes at most
FEW_DECADES = 0.4  # an axis shorter than this, a factor of 2.5, has ticks at equal steps
HOST = "host, without a guest"
LEAST_REACH = 0.15  # decades by which the host may extend an axis
ROOM_FOR_HOST = 0.14  # share of the vertical axis for the words about a distant host
NO_INTERVAL = Key("circle-open", "muted", "hollow: no interval")
FRONT = Key("line", "muted", "no other guest beats these in both")
OTHERS = "other levels"  # for a factor with more levels than there are styles
# Colours and marks of a factor's levels, so that they can be distinguished by either.
LEVELS = tuple(
    (f"level-{number}", kind)
    for number, kind in enumerate(("circle", "diamond", "triangle", "square", "wedge", "star"), start=1)
)


def tradeoff_picture(found: Sequence[Tradeoff], shares: Mapping[str, float]) -> PictureChoice | None:
    """All cases in one picture with selects, by layer and side; None if there are none.

    `shares`: what each factor explains; the marks first show the strongest one.
    """
    if not found:
        return None
    factors = list(dict.fromkeys(name for one in found for name in varying([point.treatment for point in one.points])))
    factors.sort(key=lambda name: -shares.get(name, 0.0))
    kept = that_fit([_part(place, one, factors or [""])] for place, one in enumerate(found))
    few = f" Of {len(found)} cases, these are the first {len(kept)}." if len(kept) < len(found) else ""
    cases = ("case", tuple(part.title for (part,) in kept))
    return PictureChoice(
        id="tradeoff",
        title="Speed against what it costs the host",
        caption="Up is faster, left costs the host less CPU time. The line joins the guests that no other beats in"
        f" both, by the estimates; where intervals overlap, the order may be chance.{few}",
        selects=(cases, ("marks show", tuple(factors))) if factors else (cases,),
        parts=tuple(part for (part,) in kept),
    )


def _part(place: int, one: Tradeoff, factors: Sequence[str]) -> Panel:
    title = f"{one.name}, {with_count(one.layer, one.count)} {one.side}".rstrip()
    marked = emulation([point.emulated for point in one.points])
    best = ", ".join(point.treatment.name for point in one.points if point.best)
    alternative = (
        f"Operations per second against host CPU time for each operation{f', {marked}' if marked else ''}. No guest is"
        f" both faster and costs the host less than: {best}."
    )
    named = f"{title}{f' ({marked})' if marked else ''}"
    drawn = drawing(
        *(f"tradeoff-{place}", named, alternative, _drawn(one, factors)), class_="chart curves tradeoff", height=HEIGHT
    )
    return Panel((place,), title, {number: _legend(one, factor) for number, factor in enumerate(factors)}, drawn)


def _styled(one: Tradeoff, factor: str) -> Iterator[tuple[str, tuple[str, str], list[SpeedPoint]]]:
    """(name, colour and mark, points) of each level of a factor, as far as the styles go; the rest shares the last."""
    by_level: dict[str, list[SpeedPoint]] = {}
    for point in one.points:
        by_level.setdefault(point.treatment.levels.get(factor, ""), []).append(point)
    levels = list(by_level.items())
    kept = levels if len(levels) <= len(LEVELS) else levels[: len(LEVELS) - 1]
    for (level, points), style in zip(kept, LEVELS, strict=False):
        yield f"{factor}={level or NOTHING}" if factor else "guests", style, points
    if rest := [point for _, points in levels[len(kept) :] for point in points]:
        yield OTHERS, LEVELS[-1], rest


def _legend(one: Tradeoff, factor: str) -> tuple[Key, ...]:
    keys = []
    for name, (colour, kind), points in _styled(one, factor):
        marked = emulation([point.emulated for point in points])
        shape = kind if any(point.sure for point in points) else f"{kind}-open"
        keys.append(Key(shape, colour, f"{name}{f', {marked}' if marked else ''}"))
    if one.host and _near(one.host, one.points):
        keys.append(Key(_shape("square", one.host), "host", f"{HOST}{', emulated' if one.host.emulated else ''}"))
    if any(not point.sure for point in one.points):
        keys.append(NO_INTERVAL)
    return (*keys, FRONT)


def _drawn(one: Tradeoff, factors: Sequence[str]) -> Iterator[Markup]:
    """What stays the same, and the marks by each factor, of which one is shown."""
    host = one.host if one.host and _near(one.host, one.points) else None
    shown = [*one.points, *([host] if host else [])]
    far = one.host is not None and host is None
    prices = scale_of([point.price for point in shown], "s", ACROSS)
    speeds = scale_of([point.speed for point in shown], "1/s", UP, above=ROOM_FOR_HOST if far else 0.0)
    marked = emulation([point.emulated for point in one.points])
    yield from (across(prices), upright(speeds, 0, HEIGHT))
    yield text("operations", f"-{LEFT}", "-12", style="panel")
    yield text(
        f"host CPU time per operation{f', {marked}' if marked else ''}", "100%", str(HEIGHT + 36), "end", "panel"
    )
    if one.host and far:
        yield from _beyond(one.host, one.points)
    steps = [(prices.at(x), 1 - speeds.at(y)) for x, y in _front(one.points)]
    yield curve(steps, FRONT.style, FRONT.dash)
    places = {point.treatment.name: _place(point, prices, speeds) for point in shown}
    yield element("g", *(_bars(point, prices, speeds) for point in shown), class_="intervals")
    if host:
        yield mark(_shape("square", host), "host", *places[host.treatment.name])
    for number, factor in enumerate(factors):
        levels = (
            element("g", *(mark(_shape(kind, p), None, *places[p.treatment.name]) for p in points), class_=colour)
            for _, (colour, kind), points in _styled(one, factor)
        )
        yield element("g", *levels, data_second=number)
    yield element("g", *(_target(point, *places[point.treatment.name]) for point in shown), class_="targets")


def _place(point: SpeedPoint, prices: Axis, speeds: Axis) -> tuple[float, float]:
    """Where a point is: a share across, and pixels down."""
    across, up = prices.at(math.log10(point.price.value)), speeds.at(math.log10(point.speed.value))
    return across, round(HEIGHT * (1 - up), 1)


def _bars(point: SpeedPoint, prices: Axis, speeds: Axis) -> Markup:
    """The intervals of a point; nothing where there is none."""
    x, y = _place(point, prices, speeds)
    bars = []
    if point.price.low is not None and point.price.high is not None:
        bars.append(
            rule(None, (prices.at(math.log10(point.price.low)), prices.at(math.log10(point.price.high))), (y, y))
        )
    if point.speed.low is not None and point.speed.high is not None:
        ends = (HEIGHT * (1 - speeds.at(math.log10(end))) for end in (point.speed.high, point.speed.low))
        top, foot = (round(end, 1) for end in ends)
        bars.append(rule(None, (x, x), (top, foot)))
    return Markup("").join(bars)


def _target(point: SpeedPoint, x: float, y: float) -> Markup:
    """What can be pointed at; nothing of it is seen."""
    return element("circle", element("title", ", ".join(_tip(point))), cx=percent(x), cy=f"{y:g}", r=9)


def _shape(kind: str, point: SpeedPoint) -> str:
    return kind if point.sure else f"{kind}-open"


def _near(host: SpeedPoint, points: Sequence[SpeedPoint]) -> bool:
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


def _beyond(host: SpeedPoint, points: Sequence[SpeedPoint]) -> Iterator[Markup]:
    """Text about where a distant host would be."""
    cheaper = host.price.value < min(point.price.value for point in points)
    dearer = host.price.value > max(point.price.value for point in points)
    doubt = ", emulated" if host.emulated else ""
    x, anchor = ("100%", "end") if dearer else ("0", None)
    yield text(f"{'← ' if cheaper else ''}{HOST}{doubt}{' →' if dearer else ''}", x, "14", anchor, "tick")
    yield text(
        f"{format_value(host.speed.value, '1/s')}, {format_value(host.price.value, 's')} each", x, "29", anchor, "tick"
    )


def _front(points: Sequence[SpeedPoint]) -> list[tuple[float, float]]:
    """The line through the Pareto set, in decades: stepped, because there is no choice between two of its points."""
    best = sorted((point.price.value, point.speed.value) for point in points if point.best)
    line = [best[0]]
    for (_, speed), after in itertools.pairwise(best):
        line += ((after[0], speed), after)
    return [(math.log10(price), math.log10(speed)) for price, speed in line]


def _tip(point: SpeedPoint) -> Iterator[str]:
    yield f"{point.treatment.name}{' (emulated)' if point.emulated else ''}: {_amount(point.speed, '1/s')}"
    yield f"{_amount(point.price, 's')} of host CPU each"
    yield f"{count(point.speed.rounds)}{'; none is both faster and cheaper' if point.best else ''}"


def _amount(found: PointFigure, unit: str) -> str:
    ends = (
        ""
        if found.low is None or found.high is None
        else (f" [{format_value(found.low, unit)} to {format_value(found.high, unit)}]")
    )
    return f"{format_value(found.value, unit)}{ends}"


def scale_of(found: Sequence[PointFigure], unit: str, most: int, above: float = 0.0) -> Axis:
    """Logarithmic, with round ticks, covering all values and intervals; `above`: additional space, as a share."""
    decades = [math.log10(end) for one in found for end in (one.value, one.low, one.high) if end]
    room = 0.06 * (max(decades) - min(decades)) or 0.05
    low, high = min(decades) - room, max(decades) + room
    high += above * (high - low)
    ticks = ((math.log10(value), _round_number(value, unit)) for value in _round_numbers(low, high, most))
    return Axis(low, high, spaced(ticks, low, high, most))


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    """Ticks of an axis from 10**low to 10**high, preferred ones first."""
    if high - low > FEW_DECADES:
        decades = range(math.floor(low), math.ceil(high))
        return [step * 10.0**decade for step in (1, 2, 5, 3, 1.5, 7, 4) for decade in decades]
    least = 10**high - 10 ** (high - (high - low) / most)  # the distance of two ticks where they are closest
    decade = 10.0 ** math.floor(math.log10(least))
    step = next(times * decade for times in (1, 2, 5, 10) if times * decade >= least)
    return [number * step for number in range(math.ceil(10**low / step), math.floor(10**high / step) + 1)]


def _round_number(value: float, unit: str) -> str:
    return re.sub(r"\.0+(?= )|(?<=\.\d)0+(?= )", "", format_value(value, unit))
