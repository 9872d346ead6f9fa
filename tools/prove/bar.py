"""One promise and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the table that is printed."""

    what: str  # what was simulated
    wanted: str  # "<= 6.5 %"
    figure: str  # "4.3 %"
    met: bool
