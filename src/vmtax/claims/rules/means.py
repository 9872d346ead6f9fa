"""R2: the mean or median of printed runs against the printed one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from vmtax.claims.figures import PrintedNumber, is_cut_off, is_rounded, mean
from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.schema import ClaimRow, ClaimTable, PublishedClaim


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Wrong if a printed mean is neither the mean nor the median of the printed runs."""
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding] | None:
    rows = [(name, row, row.printed) for name, row in table.rows.items() if row.printed is not None]
    return [found for name, row, printed in rows for found in _findings(table, name, row, printed)] if rows else None


def _findings(table: ClaimTable, name: str, row: ClaimRow, printed: PrintedNumber) -> Iterator[RuleFinding]:
    average, middle = mean(row.runs), _median(row.runs)
    if any(is_rounded(printed, exact) or is_cut_off(printed, exact) for exact in (average, middle)):
        return
    same = [number for number, run in enumerate(row.runs, 1) if run.value == printed.value]
    alone = f", and {printed.text} is run {same[0]} alone" if same else ""
    text = (
        f"printed {printed.text}, but the mean of the {len(row.runs)} runs is {average.value:.6g} and their median"
        f" {middle.value:.6g}{alone}"
    )
    yield RuleFinding("R2", "wrong", place(table, name), text)


def _median(runs: Sequence[PrintedNumber]) -> PrintedNumber:
    return PrintedNumber(*(statistics.median(getattr(run, end) for run in runs) for end in ("value", "low", "high")))
