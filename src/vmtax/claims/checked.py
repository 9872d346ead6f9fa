"""A claim, checked by all rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.claims.figures import PrintedNumber
from vmtax.claims.finding import RuleFinding, Verdict
from vmtax.claims.rules import RULES, bases
from vmtax.claims.schema import ClaimTable, Derived, PublishedClaim
from vmtax.claims.words import Recomputed


@dataclass(frozen=True, slots=True)
class CheckedNumber:
    """A printed comparison beside its recomputation."""

    table: ClaimTable
    derived: Derived
    printed: PrintedNumber
    recomputed: Recomputed
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Checked:
    """What the rules find in a claim."""

    claim: PublishedClaim
    findings: tuple[RuleFinding, ...]  # wrong ones first, each in the order of the rules
    silent: tuple[str, ...]  # numbers of the rules that had nothing to look at

    @property
    def verdict(self) -> Verdict:
        """The worst of its findings."""
        return next((finding.verdict for finding in self.findings), "right")

    @property
    def numbers(self) -> tuple[CheckedNumber, ...]:
        """Every printed comparison."""
        return tuple(self._numbers())

    def _numbers(self) -> Iterator[CheckedNumber]:
        for table in self.claim.tables:
            for one in table.derived:
                if one.printed is not None:
                    exact = table.recomputed(one.of, one.base, one.word, one.scale)
                    yield CheckedNumber(table, one, one.printed, exact, "wrong" if bases.wrong(table, one) else "right")


def checked(claim: PublishedClaim) -> Checked:
    """Apply every rule."""
    outcomes = [(rule.number, rule.check(claim)) for rule in RULES]
    found = [finding for _, findings in outcomes for finding in findings or ()]
    ordered = sorted(found, key=lambda finding: finding.verdict != "wrong")
    return Checked(claim, tuple(ordered), tuple(number for number, findings in outcomes if findings is None))
