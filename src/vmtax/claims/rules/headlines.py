"""R11: a headline stands for its rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from vmtax.claims.figures import is_rounded
from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.schema import ClaimTable, Headline, PublishedClaim
from vmtax.claims.words import ABOUT, fits, printed_text, text_of
from vmtax.core.units import count_of


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Doubtful if one number stands for unlike rows: as their largest or smallest, or as their mean. Wrong if it is
    near none of these.
    """
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding] | None:
    if not table.headlines:
        return None
    return [found for headline in table.headlines if (found := _finding(table, headline)) is not None]


def _finding(table: ClaimTable, headline: Headline) -> RuleFinding | None:
    exact = [table.recomputed(pair.of, pair.base, headline.word).stated for pair in headline.over]
    if all(is_rounded(headline.printed, one) for one in exact) or (
        len(exact) == 1 and fits(headline.printed, exact[0], "about")
    ):
        return None
    values = [one.value for one in exact]
    ends = dict.fromkeys(text_of(end, headline.word) for end in (min(values), max(values)))
    rows = f"its {count_of(len(values), 'row')}, {' to '.join(ends)}"
    kinds = {
        f"the largest of {rows}": max(values),
        f"the smallest of {rows}": min(values),
        f"the mean of {rows}": statistics.mean(values),
        f"the median of {rows}": statistics.median(values),
    }
    if min(values) > 0:
        kinds[f"the geometric mean of {rows}"] = statistics.geometric_mean(values)
    printed = headline.printed.value
    kind, nearest = min(kinds.items(), key=lambda entry: abs(entry[1] - printed))
    said = f"the headline {printed_text(headline.printed, headline.word)}"
    if abs(nearest - printed) > max(ABOUT * abs(printed), headline.printed.unit):
        return RuleFinding("R11", "wrong", place(table), f"{said} is near nothing of {rows}")
    return RuleFinding("R11", "doubtful", place(table), f"{said} is {kind}")
