"""R3: shares of one whole add to it."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.claims.figures import PrintedNumber
from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.schema import ClaimTable, PublishedClaim


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Wrong if the rows of a table add to more or less than the whole by more than their rounding."""
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding] | None:
    if table.whole is None:
        return None
    figures = [row.figure for row in table.rows.values()]
    total = PrintedNumber(*(sum(getattr(figure, end) for figure in figures) for end in ("value", "low", "high")))
    exactly = PrintedNumber(*(table.whole.value,) * 3)  # a whole is no measurement
    if total.overlaps(exactly):
        return []
    text = f"the {len(figures)} rows add to {total.value:.6g} {table.unit}, not to {table.whole.text}"
    return [RuleFinding("R3", "wrong", place(table), text)]
