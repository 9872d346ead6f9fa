"""What layers are called, and how figures draw them."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.layers import LAYERS


@dataclass(frozen=True, slots=True)
class Style:
    """How a figure draws what belongs to a layer."""

    mark: str  # as figures/svg.py knows it
    colour: str  # class of page/style.css
    dash: str  # of a line, as SVG takes it; empty: solid


STYLES = {
    "host": Style("square", "host", "2 4"),
    "container": Style("triangle", "contained", "6 2 2 2"),
    "vm": Style("circle", "vm", ""),
    "nested": Style("diamond", "nesting", "8 4"),
}
THE = {name: f"the {layer.title}" for name, layer in LAYERS.items()}  # of a layer's plain treatment


def is_nesting(low: str, high: str) -> bool:
    """Whether a contrast of these layers is what a second level of guests adds."""
    return (low, high) == ("vm", "nested")


def cost_name(low: str, high: str) -> str:
    """The name of a contrast of two layers, for the head of a column: "VM costs"."""
    if is_nesting(low, high):
        return "nesting adds"
    return f"{LAYERS[high].title} costs" if low == "host" else f"{LAYERS[high].title} against {LAYERS[low].title}"
