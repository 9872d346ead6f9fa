"""What the pictures share in which the reader chooses what is shown; plotly draws them.

A string "var(--name)" stands for a colour of style.css: page.js puts in the theme's own.

Plotly reads a subset of HTML in every label: whatever was measured or named by somebody goes through `escape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape as html_escape

from vmtax.core.records import Better, Json


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


# Colours and markers of a factor's levels, so that neither alone has to distinguish them.
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


def times_dearer(better: Better, overhead: float) -> float:
    """An overhead as a multiple of the reference's cost: 50 % of a rate lost and 100 % more time are both 2."""
    return 1 / (1 - overhead) if better == "higher" else 1 + overhead


def round_off(value: float) -> float:
    """To six digits: more are not seen, and a page of pictures holds tens of thousands of them."""
    return float(f"{value:.6g}")
