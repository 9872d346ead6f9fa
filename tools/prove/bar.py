"""One promise and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure, the figure that is wanted, and whether it is met."""

    what: str
    wanted: str  # "<= 6.5 %"
    figure: str  # "5.1 %"
    met: bool
