"""Pictures of rows: dots with their intervals beside their labels or, on a telephone, below them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vmtax.core.units import MINUS, TIMES
from vmtax.report.figures.svg import Axis, across, drawing, element, mark, rule, spaced, text

LINE, MARK, ROOM = 15, 11, 13  # pixels: height of a label's line, distance of a row's dots, space around a row
BASELINE = 11.5  # of a line, below its top edge
PIXELS, MONOSPACE_PIXELS = 6.8, 7.3  # approximate width of a character
TICKS = 6
TWICE = 2.0  # a ratio; an axis that reaches it has factors, and none has both notations
TALL = 8  # with this many rows or more, the scale is also drawn at the top
FACTORS = (  # ratios of times that are readable ticks; the most familiar first
    *(1, 2, 10, 100, 1000, 5, 1.5, 1.2, 1.1, 20, 50, 200, 500, 0.5, 0.1, 0.01, 0.8, 0.9),
    *(1.05, 1.02, 1.01, 0.95, 0.98, 0.99, 0.75, 1.25, 3, 1.005, 0.995, 1.002, 0.998, 1.001, 0.999),
)


@dataclass(frozen=True, slots=True)
class Dot:
    """An estimate as a ratio of times; 1 means no cost."""

    ratio: float
    low: float | None  # both None: no interval, so the dot is drawn hollow
    high: float | None
    mark: str
    style: str
    tip: str  # tooltip

    @property
    def drawn(self) -> str:
        """The shape of the mark: hollow without an interval."""
        return self.mark if self.low is not None else f"{self.mark}-open"


@dataclass(frozen=True, slots=True)
class DotRow:
    """One line of a picture; a heading if it has no dots."""

    label: tuple[str, ...]  # lines
    dots: tuple[Dot, ...] = ()
    value: str = ""  # shown at the right end
    style: str = ""
    small: tuple[str, ...] = ()  # lines of the label on a telephone, if they differ

    def pixels(self, narrow: bool) -> int:
        """Its height; on a telephone the label is above the dots."""
        words = LINE * len(self.small if narrow and self.small else self.label)
        marks = MARK * len(self.dots)
        if not self.dots:
            return words + ROOM // 2
        return words + marks + ROOM if narrow else max(words, marks) + ROOM


def cost_axis(dots: Iterable[Dot], *, also: Sequence[float] = ()) -> Axis:
    """A logarithmic axis of ratios of times that includes 1, every interval and `also`."""
    ends = [0.0, *map(math.log10, also)]
    for dot in dots:
        ends += [math.log10(end) for end in (dot.ratio, dot.low, dot.high) if end]
    room = 0.05 * (max(ends) - min(ends)) or 0.01
    low, high = min(ends) - room, max(ends) + room
    name = as_factor if 10**high >= TWICE else as_percentage
    return Axis(low, high, spaced(((math.log10(f), name(f)) for f in FACTORS), low, high, TICKS))


def as_factor(factor: float) -> str:
    """The name of a tick of an axis that reaches twice the time: "1.2×"."""
    return f"{factor:g}{TIMES}"


def as_percentage(factor: float) -> str:
    """The name of a tick of any other axis: "+5 %", "−10 %"."""
    return f"{100 * (factor - 1):+.3g} %".replace("-", MINUS).replace("+0 %", "0 %")


def picture_of_rows(
    id: str, named: tuple[str, str], rows: Sequence[DotRow], axis: Axis, *, line: float | None = None
) -> Markup:
    """The drawing; `named`: its title and its alternative text, `line`: another ratio, marked by a dotted line."""
    ranked = any(row.value for row in rows)
    character = MONOSPACE_PIXELS if ranked else PIXELS
    words = (line for row in rows if row.dots for line in row.label)
    room = _pixels(words, character), _pixels((row.value for row in rows), character) if ranked else 0
    tops = [0, 0]
    parts: list[Markup] = []
    for row in rows:
        parts.append(_row(row, axis, tops, room))
        tops = [top + row.pixels(narrow) for top, narrow in zip(tops, (False, True), strict=True)]
    tall = len(rows) >= TALL
    lines = [across(axis, above=tall), _upright("free", axis.at(0.0))]
    if line is not None:
        lines.append(_upright("far", axis.at(math.log10(line))))
    size = f"--wide: {tops[0]}px; --narrow: {tops[1]}px; --labels: {room[0]}px; --values: {room[1]}px"
    return drawing(
        id,
        *named,
        (*lines, *parts),
        class_=f"chart rows{' ranked' if ranked else ''}{' tall' if tall else ''}",
        style=size,
    )


def _pixels(words: Iterable[str], character: float) -> int:
    """The width of the longest word, plus a gap."""
    return math.ceil(character * max(map(len, words), default=0)) + 16


def _upright(style: str, share: float) -> Markup:
    return rule(style, (share, share), (0, "100%"))


def _row(row: DotRow, axis: Axis, tops: Sequence[int], room: tuple[int, int]) -> Markup:
    """The row and its label, placed according to the page's width: `tops` for a wide and a narrow one, in pixels.

    room: for the labels, to the left of the drawing, and for the values, to its right
    """
    height, small = row.pixels(False), row.small or row.label
    middle = height / 2
    labels = [_label(row, row.label, middle, room, "label" if small == row.label else "label wide")]
    if small != row.label:
        labels.append(_label(row, small, middle, room, "label small"))
    places = [middle + (number - (len(row.dots) - 1) / 2) * MARK for number in range(len(row.dots))]
    dots = Markup("").join(_dot(dot, axis, y) for dot, y in zip(row.dots, places, strict=True))
    down = LINE * len(small) + MARK * len(row.dots) / 2 + 6 - middle  # closer to its own label than to the next row
    points = element("g", dots, class_="points", style=f"--down: {down:g}px")
    style = f"row {row.style}" if row.dots else f"row heading {row.style}"
    behind = element("rect", class_="behind", width="100%", height=LINE * len(small) + 4)
    tops_told = f"--wide: {tops[0]}px; --narrow: {tops[1]}px"
    return element("g", behind, *labels, *((points,) if row.dots else ()), class_=style.rstrip(), style=tops_told)


def _label(row: DotRow, lines: Sequence[str], middle: float, room: tuple[int, int], style: str) -> Markup:
    """The label's lines, centred on the row; on a telephone they are moved to its top."""
    first = middle - LINE * len(lines) / 2 + BASELINE
    parts = [text(line, f"-{room[0]}", f"{first + LINE * number:g}") for number, line in enumerate(lines)]
    if row.value:
        parts.append(
            element("text", row.value, x="100%", y=f"{first:g}", dx=room[1], text_anchor="end", class_="value")
        )
    return element("g", *parts, class_=style, style=f"--up: {BASELINE + 4 - first:g}px")


def _dot(dot: Dot, axis: Axis, y: float) -> Markup:
    parts = [element("title", dot.tip)]
    if dot.low is not None and dot.high is not None:
        ends = axis.at(math.log10(dot.low)), axis.at(math.log10(dot.high))
        parts.append(rule(f"bar {dot.style}", ends, (y, y)))
    parts.append(mark(dot.drawn, dot.style, axis.at(math.log10(dot.ratio)), y))
    return element("g", *parts)
