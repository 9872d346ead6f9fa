"""What all pictures share. A string "var(--name)" stands for a colour of style.css: page.js puts in the theme's own.

Plotly reads a subset of HTML in every label: whatever was measured or named by somebody goes through `escape`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape as html_escape

from vmtax.core.records import Better, Json
from vmtax.core.units import MINUS


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure and what is said about it."""

    id: str
    title: str
    caption: str
    alternative: str  # for a reader who does not see it
    figure: Json  # plotly: data and layout; "narrow", where there is any: what replaces parts of both on a telephone

    @property
    def drawing(self) -> Json:
        """What page.js draws."""
        return self.figure


@dataclass(frozen=True, slots=True)
class Choice:
    """Figures of which one is drawn; the reader chooses which."""

    id: str
    title: str
    caption: str
    alternative: str
    selects: tuple[tuple[str, tuple[str, ...]], ...]  # (what is chosen, its options)
    figures: Mapping[tuple[int, ...], Json]  # number of the option in each select -> figure; the first of all is shown

    @property
    def figure(self) -> Json:
        """The one that is shown at first."""
        return next(iter(self.figures.values()))

    @property
    def drawing(self) -> Json:
        """What page.js draws."""
        return {"choices": {"|".join(map(str, key)): figure for key, figure in self.figures.items()}}


@dataclass(frozen=True, slots=True)
class LayerStyle:
    """Colour, marker and dash of a layer, so that none of them alone must tell it from the others."""

    colour: str
    symbol: str
    dash: str


LAYER_STYLES = {
    "host": LayerStyle("var(--host)", "square-open", "dot"),
    "vm": LayerStyle("var(--vm)", "circle", "solid"),
    "nested": LayerStyle("var(--nesting)", "diamond", "dash"),
}

# Colours and markers of a factor's levels, neither of which alone must tell them apart.
LEVEL_STYLES = (
    ("var(--level-1)", "circle"),
    ("var(--level-2)", "diamond"),
    ("var(--level-3)", "triangle-up"),
    ("var(--level-4)", "square"),
    ("var(--level-5)", "cross"),
    ("var(--level-6)", "star"),
)
MONOSPACE = "ui-monospace, SF Mono, Menlo, Consolas, Liberation Mono, monospace"

FONT: Json = {"family": "system-ui, sans-serif", "size": 13, "color": "var(--text)"}
AXIS: Json = {"gridcolor": "var(--rule)", "linecolor": "var(--rule)", "zeroline": False, "fixedrange": True}


def escape(text: str) -> str:
    """`text` as plotly is to show it. It knows no entity for a quotation mark, and needs none."""
    return html_escape(text, quote=False)


def frame(height: int) -> Json:
    """The part of the layout that is the same everywhere."""
    return {
        "height": height,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 48},
        "font": FONT,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--muted)", "activecolor": "var(--text)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": "var(--paper)", "bordercolor": "var(--rule)", "font": FONT},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"},
    }


def apart(fractions: Iterable[float], gap: float) -> list[float]:
    """Those of some ticks of a logarithmic axis of 1 + fraction that stand `gap` decades apart; 0 always stays."""
    kept: list[float] = []
    for tick in sorted(fractions, key=abs):
        if all(abs(math.log10(1 + tick) - math.log10(1 + other)) >= gap for other in kept):
            kept.append(tick)
    return sorted(kept)


def percent_tick(fraction: float) -> str:
    """A fraction above or below the reference: "-5 %", from tenfold on "10x", with real signs."""
    return f"{1 + fraction:g}×" if fraction >= 9 else f"{100 * fraction:g} %".replace("-", MINUS)


def emulation(emulated: Sequence[bool]) -> str:
    """ "emulated", "partly emulated" or "" of some points."""
    if not any(emulated):
        return ""
    return "emulated" if all(emulated) else "partly emulated"


# Overheads that make a readable tick where an axis is logarithmic in how many times dearer something is; those that
# people think in come first, the others where there is room between them.
_LOST = (
    *(0.0, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, -1.0, -3.0, -9.0, -29.0, -99.0),
    *(0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.85, 0.95, -0.5, -0.25, -0.1, -0.05, -0.02, -0.01),
)
_ADDED = (
    *(0.0, 1.0, 3.0, 9.0, 29.0, 99.0, 299.0, 999.0, -0.5, -0.75, -0.9, -0.97, -0.99),
    *(0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 2.0, 6.0, 19.0, -0.25, -0.1, -0.05, -0.02, -0.01),
)


def times_dearer(better: Better, overhead: float) -> float:
    """An overhead as a multiple of the reference's cost: 50 % of a rate lost and 100 % more time are both 2."""
    return 1 / (1 - overhead) if better == "higher" else 1 + overhead


def dearness_axis(better: Better, low: float, high: float, ticks: int) -> Json:
    """A logarithmic axis of `times_dearer` between two decades, with at most about so many ticks, told as overheads."""
    places = {tick: math.log10(times_dearer(better, tick)) for tick in (_LOST if better == "higher" else _ADDED)}
    gap = (high - low) / ticks
    kept: list[float] = []
    for tick in places:
        if low <= places[tick] <= high and all(abs(places[tick] - places[other]) >= gap for other in kept):
            kept.append(tick)
    return {
        "type": "log",
        "tickangle": 0,
        "range": [low, high],
        "tickvals": [round_off(times_dearer(better, tick)) for tick in sorted(kept)],
        "ticktext": [_dearness_tick(better, tick) for tick in sorted(kept)],
        "minorloglabels": "none",
    }


def _dearness_tick(better: Better, overhead: float) -> str:
    if better == "higher" and overhead <= -1:
        return f"{1 - overhead:g}× better"
    return percent_tick(overhead)


def round_off(value: float) -> float:
    """To six digits: more are not seen, and a page of pictures holds tens of thousands of them."""
    return float(f"{value:.6g}")
