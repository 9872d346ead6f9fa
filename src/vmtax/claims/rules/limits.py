"""R8: nothing is faster than what it goes through; facts/links.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vmtax.claims.figures import PrintedNumber
from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.known import links
from vmtax.claims.schema import ClaimTable, PublishedClaim, Through
from vmtax.core.units import format_value

_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_RATE = re.compile(r"([kKMGT]?i?)(B|bytes?|bits?|b)(?:/s|ps|/sec)")
_COUNTS = ("1/s", "/s", "iops", "io/s", "ops/s")


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Doubtful if a row moves more bytes per second than its device or link carries: then a cache was measured."""
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding] | None:
    size = _bytes_of_one(table)
    if table.through is None or size is None:
        return None
    return list(_findings(table, table.through, size))


def _findings(table: ClaimTable, through: Through, size: float) -> Iterator[RuleFinding]:
    link = links()[through.link]
    most = link.bytes_per_second * through.count
    for name, row in table.rows.items():
        figure: PrintedNumber = row.figure
        if figure.low * size > most:
            count = f"{through.count} \N{MULTIPLICATION SIGN} " if through.count > 1 else ""
            text = (
                f"{format_value(figure.value * size, 'B/s')} is more than {count}{link.name} can carry,"
                f" {format_value(most, 'B/s')}: this is a cache"
            )
            yield RuleFinding("R8", "doubtful", place(table, name), text)


def _bytes_of_one(table: ClaimTable) -> float | None:
    """Bytes per second of a figure of 1; None: the unit is no rate of bytes, and there is no size of an operation."""
    if table.unit.casefold() in _COUNTS:
        return float(table.block) if table.block else None
    found = _RATE.fullmatch(table.unit.strip())
    if found is None:
        return None
    factor = {**_PREFIXES, **_BINARY}.get(found[1].casefold())
    return None if factor is None else factor / (8 if found[2] in ("b", "bit", "bits") else 1)
