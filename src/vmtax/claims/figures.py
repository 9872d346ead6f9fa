"""Printed figures: a value, and how far the last printed digit leaves it open."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_LONGEST = 30  # characters
_MOST = 1e18  # of a size; nothing that is measured is larger


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A value, and the interval that its printed digits leave open."""

    value: float
    low: float  # the smallest value that is printed like this
    high: float  # the largest one
    text: str = ""  # as printed; empty: computed

    @property
    def unit(self) -> float:
        """One unit of the last printed digit."""
        return self.high - self.low

    def overlaps(self, other: PrintedNumber) -> bool:
        """Whether both can be the same value."""
        slack = 1e-9 * max(abs(self.value), abs(other.value))  # of binary fractions
        return self.low <= other.high + slack and other.low <= self.high + slack


def parsed(text: str) -> PrintedNumber:
    """A printed number. Raises ValueError for anything else."""
    shown = text.strip().replace("\N{MINUS SIGN}", "-")
    if _GROUPED.fullmatch(shown) and len(shown) <= _LONGEST:
        raise ValueError(
            f"must be a number with a point for decimals and nothing between thousands: {shown.replace(',', '')}, not"
            f" {text}"
        )
    if not _NUMBER.fullmatch(shown) or len(shown) > _LONGEST:
        raise ValueError("must be a number as printed, such as 4.14 or 29e3, without its unit")
    number = Decimal(shown)
    if abs(number) > Decimal(_MOST):
        raise ValueError(f"must be at most {_MOST:g}")
    exponent = number.as_tuple().exponent
    half = Decimal(5).scaleb(int(exponent) - 1)
    return PrintedNumber(float(number), float(number - half), float(number + half), text.strip())


def computed(function: Callable[..., float], *figures: PrintedNumber) -> PrintedNumber:
    """A function of figures, monotonic in each, and its interval: the values at the corners."""
    corners: list[tuple[float, ...]] = [()]
    for figure in figures:
        corners = [(*corner, end) for corner in corners for end in (figure.low, figure.high)]
    values = [function(*corner) for corner in corners]
    return PrintedNumber(function(*(figure.value for figure in figures)), min(values), max(values))


def mean(figures: Sequence[PrintedNumber]) -> PrintedNumber:
    """The arithmetic mean."""
    count = len(figures)
    return PrintedNumber(*(sum(getattr(figure, end) for figure in figures) / count for end in ("value", "low", "high")))


def is_rounded(printed: PrintedNumber, exact: PrintedNumber) -> bool:
    """Whether `printed` can be `exact`, rounded."""
    return printed.overlaps(exact)


def is_cut_off(printed: PrintedNumber, exact: PrintedNumber) -> bool:
    """Whether `printed` can be `exact` with its further digits cut off."""
    same_sign = printed.value * exact.value >= 0
    slack = 1e-9 * abs(exact.value)
    return same_sign and -slack <= abs(exact.value) - abs(printed.value) < printed.unit - slack
