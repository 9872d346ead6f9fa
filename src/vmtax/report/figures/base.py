"""Common parts of the pictures in which the reader chooses what is shown; plotly draws them.

A string "var(--name)" stands for a colour in style.css: page.js inserts the theme's own.

Plotly reads a subset of HTML in every label: all measured or user-given text goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape as html_escape

from vmtax.core.records import Better, Json


@dataclass(frozen=True, slots=True)
class Choice:
    """Figures of which one is drawn; the reader chooses which one."""

    id: str
    title: str
    caption: str
    alternative: str
    selects: tuple[tuple[str, tuple[str, ...]], ...]  # (label, options) of each select
    figures: Mapping[tuple[int, ...], Json]  # index of the option in each select -> figure; all zeros is shown first

    @property
    def figure(self) -> Json:
        """The figure that is shown first."""
        return next(iter(self.figures.values()))

    @property
    def drawing(self) -> Json:
        """The data for page.js."""
        return {"choices": {"|".join(map(str, key)): figure for key, figure in self.figures.items()}}


# Colours and markers of a factor's levels, so that they can be distinguished by either.
LEVEL_STYLES = (
    ("var(--level-1)", "circle"),
    ("var(--level-2)", "diamond"),
    ("var(--level-3)", "triangle-up"),
    ("var(--level-4)", "square"),
    ("var(--level-5)", "cross"),
    ("var(--level-6)", "star"),
)
FONT: Json = {"family": "system-ui, sans-serif", "size": 13, "color": "var(--text)"}
AXIS: Json = {"gridcolor": "var(--rule)", "linecolor": "var(--rule)", "zeroline": False, "fixedrange": True}


def escape(text: str) -> str:
    """Escape `text` for plotly, which does not know the entity for a quotation mark, and does not need it."""
    return html_escape(text, quote=False)


def frame(height: int) -> Json:
    """The part of the layout that all figures share."""
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


def times_dearer(better: Better, overhead: float) -> float:
    """An overhead as a multiple of the reference's cost: 50 % of a rate lost and 100 % more time are both 2."""
    return 1 / (1 - overhead) if better == "higher" else 1 + overhead


def round_off(value: float) -> float:
    """Round to six digits: more would be invisible, and a page contains tens of thousands of numbers."""
    return float(f"{value:.6g}")
