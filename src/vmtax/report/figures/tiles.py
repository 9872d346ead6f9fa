"""The interval bars in the tiles: all on one scale, so that they can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from vmtax.report.figures.dots import Dot, cost_axis
from vmtax.report.figures.svg import element, mark, rule

MIDDLE, HEIGHT = 9, 18


def bars(dots: Sequence[Dot | None]) -> list[Markup | None]:
    """One for each dot; None if there is none. The line marks no cost."""
    axis = cost_axis([dot for dot in dots if dot is not None])
    free = axis.at(0.0)

    def bar(dot: Dot | None) -> Markup | None:
        if dot is None:
            return None
        parts = [rule("grid", (0, 1), (MIDDLE, MIDDLE)), rule("free", (free, free), (0, HEIGHT))]
        if dot.low is not None and dot.high is not None:
            ends = axis.at(math.log10(dot.low)), axis.at(math.log10(dot.high))
            parts.append(rule(f"bar {dot.style}", ends, (MIDDLE, MIDDLE)))
        parts.append(mark(dot.drawn, dot.style, axis.at(math.log10(dot.ratio)), MIDDLE))
        return element("svg", *parts, class_="chart strip", height=HEIGHT, aria_hidden="true")

    return [bar(dot) for dot in dots]
