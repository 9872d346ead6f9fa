"""Drawing primitives of all pictures: SVG, made when the report is written.

Horizontal positions are percentages and vertical ones are pixels, so a drawing fits every width, and its text keeps its
size. Colours, and the layout on a telephone, are in style.css. Measured text is always escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

LEFT = 64  # pixels to the left of a drawing, for the names of a vertical axis


@dataclass(frozen=True, slots=True)
class Axis:
    """The mapping of values to positions; a logarithmic axis gets logarithms."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]  # (value, name), rising

    def at(self, value: float) -> float:
        """The position of a value, as a share of the axis."""
        return (value - self.low) / (self.high - self.low)


def element(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """An SVG element; `class_` stands for class, `text_anchor` for text-anchor; an attribute that is None is
    omitted.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{''.join(map(escape, children))}</{name}>")


def percent(share: float) -> str:
    """A horizontal position."""
    return f"{100 * share:.2f}%"


def drawing(id: str, title: str, alternative: str, inside: Iterable[Markup], **attributes: object) -> Markup:
    """A complete drawing, with its text for readers who cannot see it."""
    named = (element("title", title, id=f"{id}-name"), element("desc", alternative, id=f"{id}-about"))
    labels = {"role": "img", "aria_labelledby": f"{id}-name", "aria_describedby": f"{id}-about"}
    return element("svg", *named, *inside, **labels, **attributes)


def mark(kind: str, style: str | None, x: float, y: float) -> Markup:
    """A dot of one of the kinds defined in page.html.j2; names that end in -open are hollow."""
    return element("use", href=f"#mark-{kind}", class_=style, x=percent(x), y=f"{y:g}")


def rule(style: str | None, x: tuple[float, float], y: tuple[float | str, float | str]) -> Markup:
    """A straight line between two horizontal and two vertical positions."""
    return element("line", class_=style, x1=percent(x[0]), x2=percent(x[1]), y1=y[0], y2=y[1])


def text(said: str, x: str, y: str, anchor: str | None = None, style: str | None = None) -> Markup:
    """Text; `anchor`: its "middle" or "end" is at x."""
    return element("text", said, x=x, y=y, text_anchor=anchor, class_=style)


def curve(points: Sequence[tuple[float, float]], style: str, dash: str, title: str = "") -> Markup:
    """A curve through positions given as shares of the drawing; its line width does not change if it is stretched."""
    places = " ".join(f"{1000 * x:.1f},{1000 * y:.1f}" for x, y in points)
    line = element("polyline", points=places, class_=f"curve {style}", stroke_dasharray=dash or None)
    stretched = {"viewBox": "0 0 1000 1000", "preserveAspectRatio": "none", "width": "100%", "height": "100%"}
    return element("svg", *((element("title", title),) if title else ()), line, **stretched)


def across(axis: Axis, foot: str = "100%", *, above: bool = False) -> Markup:
    """The lines of a horizontal axis with their names below `foot`; `above`: also above the drawing."""
    parts: list[Markup] = []
    for value, name in axis.ticks:
        share = axis.at(value)
        anchor = "start" if share < 0.04 else "end" if share > 0.96 else "middle"
        parts += (
            rule("grid", (share, share), (0, foot)),
            element("text", name, x=percent(share), y=foot, dy=16, text_anchor=anchor, class_="tick"),
        )
        if above:
            parts.append(element("text", name, x=percent(share), y=0, dy=-7, text_anchor=anchor, class_="tick"))
    return Markup("").join(parts)


def upright(axis: Axis, top: float, height: float) -> Markup:
    """The lines of a vertical axis from `top` down, with their names to the left."""
    parts: list[Markup] = []
    for value, name in axis.ticks:
        y = round(top + height * (1 - axis.at(value)), 1)
        parts += (
            rule("grid", (0, 1), (y, y)),
            element("text", name, x=-8, y=y, dy=4, text_anchor="end", class_="tick"),
        )
    return Markup("").join(parts)


def spaced(ticks: Iterable[tuple[float, str]], low: float, high: float, most: int) -> tuple[tuple[float, str], ...]:
    """The ticks within an axis that do not overlap, preferring earlier ones; rising. About `most` at most."""
    kept: list[tuple[float, str]] = []
    for value, name in ticks:
        if low <= value <= high and all(abs(value - other) >= (high - low) / most for other, _ in kept):
            kept.append((value, name))
    return tuple(sorted(kept))


def emulation(emulated: Sequence[bool]) -> str:
    """The mark of these values: "emulated", "partly emulated" or ""."""
    if not any(emulated):
        return ""
    return "emulated" if all(emulated) else "partly emulated"
