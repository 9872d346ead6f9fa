"""R13: how often, how and where it was measured, and in which unit, is stated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.claims.finding import RuleFinding
from vmtax.claims.schema import Lacks, PublishedClaim

MEANINGS: Mapping[Lacks, str] = {
    "n": "how often it was measured",
    "method": "how it was measured",
    "source": "where the figures come from",
    "unit": "the unit of its figures",
}


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Doubtful if the source lacks one of these, or measured once: nothing then says how far a second run would be."""
    if not claim.lacks and claim.n is None:
        return None
    found = [RuleFinding("R13", "doubtful", "", f"does not say {MEANINGS[one]}") for one in claim.lacks]
    if claim.n == 1:
        found.append(
            RuleFinding("R13", "doubtful", "", "was measured once: nothing says how far a second run would be")
        )
    return found
