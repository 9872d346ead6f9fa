"""What all pictures share. A string "var(--name)" stands for a colour of style.css: page.js puts in the theme's own.

Plotly reads a subset of HTML in every label: whatever was measured or named by somebody goes through `escape`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as html_escape

from vmtax.result import Json
from vmtax.units import MINUS


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure and what is said about it."""

    id: str
    title: str
    caption: str
    alternative: str  # for a reader who does not see it
    figure: Json  # plotly: data and layout


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
