"""R1: a printed comparison is recomputed on both bases."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.schema import ClaimTable, Derived, PublishedClaim
from vmtax.claims.words import Recomputed, fits, printed_text, recomputed, text_of


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Wrong if a printed number follows from the two figures neither as it is stated nor, then, from their printed
    means.
    """
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding] | None:
    printed = [one for one in table.derived if one.printed is not None]
    return [found for one in printed if (found := wrong(table, one)) is not None] if printed else None


def wrong(table: ClaimTable, one: Derived) -> RuleFinding | None:
    """What is wrong with a printed comparison; None: nothing, or nothing is printed."""
    printed = one.printed
    if printed is None:
        return None
    exact = table.recomputed(one.of, one.base, one.word, one.scale)
    if fits(printed, exact.stated, one.says) or fits(printed, _of_printed_means(table, one).stated, one.says):
        return None
    said = printed_text(printed, one.word, table.unit)
    about = "" if one.says == "exactly" else f"{one.says} "
    right = text_of(exact.stated.value, one.word, table.unit)
    text = f"printed {about}{said}, but the figures give {right}"
    if exact.other is not None and one.says == "exactly" and fits(printed, exact.other, one.says):
        text = f"printed {said} has {one.of} as its base; of {one.base} it is {right}"
    elif exact.other is not None and one.word != "times":
        text = f"{text}, and {text_of(exact.other.value, one.word, table.unit)} with {one.of} as the base"
    return RuleFinding("R1", "wrong", place(table, one.of, one.base), text)


def _of_printed_means(table: ClaimTable, one: Derived) -> Recomputed:
    """From the means as they are printed, where runs are known; they may be wrong, which R2 finds."""
    figures = [table.rows[row].printed or table.rows[row].figure for row in (one.of, one.base or one.of)]
    scale = one.scale.value if one.scale else 1
    return recomputed(one.word, *figures, is_time=table.is_time, scale=scale)
