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
    "existing": Style("wedge", "contained", "10 3"),
    "clone": Style("star", "vm", "4 2"),
    "vm": Style("circle", "vm", ""),
    "nested": Style("diamond", "nesting", "8 4"),
}
THE = {name: f"the {layer.title}" for name, layer in LAYERS.items()}  # of a layer's plain treatment


SHORT = {name: "nested" if name == "nested" else layer.title for name, layer in LAYERS.items()}  # in narrow columns


def contrast_name(low: str, high: str) -> str:
    """A contrast of two layers, as it stands before an amount: "VM" if the host is the baseline, "nested vs VM"."""
    return SHORT[high] if low == "host" else f"{SHORT[high]} vs {SHORT[low]}"


def cost_name(low: str, high: str) -> str:
    """The same for the head of a column: "VM costs"."""
    return f"{contrast_name(low, high)} costs" if low == "host" else contrast_name(low, high)
