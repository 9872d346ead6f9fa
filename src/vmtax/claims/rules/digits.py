"""R5: what the printed digits carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.claims.figures import PrintedNumber, is_cut_off
from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.schema import ClaimTable, Derived, PublishedClaim
from vmtax.claims.words import WORDS, text_of

WIDE = 1.2  # ends of a ratio's interval: from this on, it has not even one sure digit
RELATIVE = ("share", "loss", "gain", "more", "less")


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Doubtful if the digits of two figures leave their ratio open, or the direction of a difference; wrong if a table
    rounds some numbers and cuts off others.
    """
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding] | None:
    printed = [(one, one.printed) for one in table.derived if one.printed is not None]
    if not printed:
        return None
    by_word = [[pair for pair in printed if pair[0].word == word and pair[0].says == "exactly"] for word in WORDS]
    return [
        *(found for one, _ in printed for found in _wide(table, one)),
        *(found for some in by_word for found in _mixed(table, some)),
    ]


def _wide(table: ClaimTable, one: Derived) -> Iterator[RuleFinding]:
    exact = table.recomputed(one.of, one.base, one.word, one.scale).stated
    open_ratio = one.word in ("times", "share") and exact.low > 0 and exact.high / exact.low >= WIDE
    open_sign = one.word in RELATIVE and one.word != "share" and exact.low < 0 < exact.high
    if open_ratio or open_sign:
        ends = (text_of(end, one.word, table.unit) for end in (exact.low, exact.high))
        text = f"the printed digits of the two figures allow {' to '.join(ends)}"
        yield RuleFinding("R5", "doubtful", place(table, one.of, one.base), text)


def _mixed(table: ClaimTable, printed: Sequence[tuple[Derived, PrintedNumber]]) -> Iterator[RuleFinding]:
    """Numbers of one kind, computed from the printed figures: one cut off, another rounded up."""
    cut, rounded = "", ""
    for one, figure in printed:
        exact = table.recomputed(one.of, one.base, one.word, one.scale).stated.value
        point = PrintedNumber(exact, exact, exact)
        is_near = figure.low <= exact <= figure.high
        if is_cut_off(figure, point) and not is_near:
            cut = cut or f"{figure.text} is {exact:.4g} cut off"
        elif is_near and not is_cut_off(figure, point) and exact != figure.value:
            rounded = rounded or f"{figure.text} is {exact:.4g} rounded"
    if cut and rounded:
        yield RuleFinding("R5", "wrong", place(table), f"{cut}, but {rounded}")
