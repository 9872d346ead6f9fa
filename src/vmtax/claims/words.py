"""What a printed comparison means: how it follows from two figures, on the base that is stated and on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from vmtax.claims.figures import PrintedNumber, computed, is_cut_off, is_rounded

Word = Literal["share", "loss", "gain", "more", "less", "times", "difference", "scaled"]
Says = Literal["exactly", "about", "at most", "at least"]

WORDS: tuple[Word, ...] = get_args(Word)
ABOUT = 0.1  # share of a figure by which "about" may be off
UNITS: Mapping[Word, str] = {
    **dict.fromkeys(("share", "loss", "gain", "more", "less"), " %"),
    "times": "\N{MULTIPLICATION SIGN}",
}
_Function = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A comparison, recomputed from its two figures."""

    stated: PrintedNumber  # with the base that is stated
    other: PrintedNumber | None  # with the other figure as the base; None: the word has no base


def recomputed(word: Word, of: PrintedNumber, base: PrintedNumber, *, is_time: bool, scale: float) -> Recomputed:
    """`is_time`: less is better, so that the speed is the inverse of the figure.

    share, loss and gain are about the speed; more and less about the figure itself; `scaled` is the figure times
    `scale`, whatever the base.
    """
    if word == "scaled":
        return Recomputed(computed(lambda value: value * scale, of), None)
    function, sign = _function(word, is_time), 1 if word in ("share", "times") else -1
    stated = computed(function, of, base)
    if word == "difference":
        return Recomputed(stated, None)
    # Exchanging the two figures also changes the sign of a loss, a gain, more and less; the claim does not.
    return Recomputed(stated, computed(lambda one, two: sign * function(two, one), of, base))


def _function(word: Word, is_time: bool) -> _Function:
    def speed(of: float, base: float) -> float:
        return base / of if is_time else of / base

    functions: dict[Word, _Function] = {
        "share": lambda of, base: 100 * speed(of, base),
        "loss": lambda of, base: 100 * (1 - speed(of, base)),
        "gain": lambda of, base: 100 * (speed(of, base) - 1),
        "more": lambda of, base: 100 * (of / base - 1),
        "less": lambda of, base: 100 * (1 - of / base),
        "times": lambda of, base: of / base,
        "difference": lambda of, base: of - base,
    }
    return functions[word]


def fits(printed: PrintedNumber, exact: PrintedNumber, says: Says) -> bool:
    """Whether what is printed says what was recomputed. Digits may be rounded or cut off."""
    size = abs(printed.value)
    if says == "at most":
        return min(abs(exact.low), abs(exact.high)) <= size + printed.unit / 2
    if says == "at least":
        return max(abs(exact.low), abs(exact.high)) >= size - printed.unit / 2
    near = says == "about" and abs(exact.value - printed.value) <= ABOUT * size
    return near or is_rounded(printed, exact) or is_cut_off(printed, exact)


def text_of(value: float, word: Word, unit: str = "") -> str:
    """A comparison for people, with four significant digits: "19.84 %", "2.5×"."""
    digits = f"{value:.4g}" if abs(value) >= 1 or not value else f"{value:.3g}"
    shown = f"{float(digits):,.10g}".replace("-", "\N{MINUS SIGN}")
    own = UNITS.get(word, f" {unit}" if unit else "")
    return f"{shown}{own}"


def printed_text(printed: PrintedNumber, word: Word, unit: str = "") -> str:
    """A printed number with its unit."""
    return f"{printed.text}{UNITS.get(word, f' {unit}' if unit else '')}".replace("-", "\N{MINUS SIGN}")
