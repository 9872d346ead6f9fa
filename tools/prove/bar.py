"""What is shown, what was wanted, what came out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the table."""

    what: str
    wanted: str  # "≤ 6.0 %"
    figure: str  # "4.9 %"
    met: bool


def at_most(what: str, limit: float, figure: float, unit: str = "%") -> Bar:
    """`limit` and `figure` in `unit`; a share is given as a fraction and shown in percent."""
    return Bar(what, f"≤ {_text(limit, unit)}", _text(figure, unit), figure <= limit)


def at_least(what: str, limit: float, figure: float, unit: str = "%") -> Bar:
    return Bar(what, f"≥ {_text(limit, unit)}", _text(figure, unit), figure >= limit)


def above(what: str, limit: float, figure: float, unit: str = "%") -> Bar:
    """For controls, that must fail."""
    return Bar(what, f"> {_text(limit, unit)}", _text(figure, unit), figure > limit)


def _text(number: float, unit: str) -> str:
    return f"{100 * number:.1f} %" if unit == "%" else f"{number:.3g} {unit}".rstrip()
