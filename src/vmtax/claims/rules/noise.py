"""R9: a difference is larger than the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtax.claims.finding import RuleFinding, compared, place
from vmtax.claims.schema import ClaimRow, ClaimTable, PublishedClaim
from vmtax.claims.words import text_of

ALPHA = 0.05  # of Welch's test
DEPTHS = ("host", "container", "vm", "nested")  # what stands on what: nothing is faster than what is below it


@dataclass(frozen=True, slots=True)
class RunSpread:
    """A mean and its uncertainty."""

    mean: float
    sd: float  # of single runs
    n: int  # number of runs


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Doubtful if Welch's test does not tell two samples apart, if a standard deviation is larger than its figure, or
    if something is faster than what it runs on: the noise, or a cache, is at least as large.
    """
    spreads = [(table, name, row) for table in claim.tables for name, row in table.rows.items() if spread_of(row)]
    layered = [found for found in compared(claim) if _depth(found[0], found[1]) > _depth(found[0], found[2]) >= 0]
    has_sd = [(table, name, row) for table in claim.tables for name, row in table.rows.items() if row.sd]
    if not (spreads or layered or has_sd):
        return None
    return [*_wide(has_sd), *_alike(claim), *_faster(layered)]


def spread_of(row: ClaimRow) -> RunSpread | None:
    """From its runs, or from its standard deviation and their number."""
    if len(row.runs) > 1:
        values = [run.value for run in row.runs]
        return RunSpread(statistics.mean(values), statistics.stdev(values), len(values))
    if row.sd is not None and row.n is not None and row.n > 1:
        return RunSpread(row.figure.value, row.sd.value, row.n)
    return None


def welch_p(one: RunSpread, two: RunSpread) -> float:
    """The two-sided p-value of Welch's test that the means differ (B. L. Welch, Biometrika 1947)."""
    from scipy.special import stdtr  # scipy.stats takes a second to load

    shares = [each.sd**2 / each.n for each in (one, two)]
    if not sum(shares):
        return 1.0 if one.mean == two.mean else 0.0
    t = abs(one.mean - two.mean) / math.sqrt(sum(shares))
    freedom = sum(shares) ** 2 / sum(share**2 / (each.n - 1) for share, each in zip(shares, (one, two), strict=True))
    return float(2 * stdtr(freedom, -t))


def _wide(rows: Sequence[tuple[ClaimTable, str, ClaimRow]]) -> Iterator[RuleFinding]:
    for table, name, row in rows:
        if row.sd is not None and row.sd.value > abs(row.figure.value):
            text = f"the standard deviation, {row.sd.text}, is larger than the figure, {row.figure.value:.4g}"
            yield RuleFinding("R9", "doubtful", place(table, name), text)


def _alike(claim: PublishedClaim) -> Iterator[RuleFinding]:
    for table, of, base in compared(claim):
        one, two = spread_of(table.rows[of]), spread_of(table.rows[base])
        if one is None or two is None:
            continue
        p = welch_p(one, two)
        if p > ALPHA:
            text = f"{one.n} and {two.n} runs do not tell the two apart: Welch's test, p = {p:.2g}"
            yield RuleFinding("R9", "doubtful", place(table, of, base), text)


def _faster(layered: Sequence[tuple[ClaimTable, str, str]]) -> Iterator[RuleFinding]:
    for table, of, base in layered:
        if not table.has_ratio(of, base):
            continue
        faster = table.recomputed(of, base, "gain").stated
        if faster.low > 0:
            text = (
                f"{of} is {text_of(faster.value, 'gain')} faster than {base}, which it runs on: noise or a cache is at"
                " least as large"
            )
            yield RuleFinding("R9", "doubtful", place(table, of, base), text)


def _depth(table: ClaimTable, row: str) -> int:
    """How many layers are below; -1 if it is not known."""
    layer = table.rows[row].layer
    return DEPTHS.index(layer) if layer else -1
