"""What a rule finds in a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from vmtax.claims.schema import ClaimTable, PublishedClaim

Verdict = Literal["wrong", "doubtful", "right"]


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """One thing that is wrong or doubtful."""

    rule: str  # its number: R1 to R13
    verdict: Verdict  # wrong: it contradicts its own figures; doubtful: more is claimed than they carry
    where: str  # the table and the rows
    text: str  # what is printed, and what would be right


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: a pure function of a claim, which knows no answers."""

    number: str  # R1 to R13
    name: str  # what it looks at, in few words
    check: Callable[[PublishedClaim], Sequence[RuleFinding] | None]  # None: the claim has nothing that it could look at


def place(table: ClaimTable, of: str = "", base: str | None = None) -> str:
    """Where in a claim: "sysbench CPU: KVM against host"."""
    rows = f"{of} against {base}" if base else of
    return ": ".join(part for part in (table.title, rows) if part)


def over_tables(
    claim: PublishedClaim, check: Callable[[ClaimTable], Sequence[RuleFinding] | None]
) -> tuple[RuleFinding, ...] | None:
    """The findings of all tables; None if no table has anything to look at."""
    found = [one for one in map(check, claim.tables) if one is not None]
    return tuple(finding for one in found for finding in one) if found else None


def compared(claim: PublishedClaim) -> Iterator[tuple[ClaimTable, str, str]]:
    """(table, of, base) of every pair of rows that is compared, each once."""
    for table in claim.tables:
        pairs = [(one.of, one.base) for one in table.derived]
        pairs += [(pair.of, pair.base) for headline in table.headlines for pair in headline.over]
        for of, base in dict.fromkeys(pairs):
            if base is not None:
                yield table, of, base
