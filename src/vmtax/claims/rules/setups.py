"""R6: what is compared has a like set-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.claims.finding import RuleFinding, compared
from vmtax.claims.schema import PublishedClaim


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Doubtful if two set-ups that are compared differ in something that both state, other than one thing that is
    varied on purpose. Without any comparison of rows, all are compared with the first.
    """
    if len(claim.setup) < 2:
        return None
    pairs = [(table.setup_of(of), table.setup_of(base)) for table, of, base in compared(claim)]
    if not pairs:
        first, *others = claim.setup
        pairs = [(other, first) for other in others]
    known = [(of, base) for of, base in dict.fromkeys(pairs) if {of, base} <= claim.setup.keys() and of != base]
    return [
        RuleFinding("R6", "doubtful", f"{of} against {base}", f"unlike: {text}")
        for of, base in known
        if (text := _unlike(claim.setup[of], claim.setup[base], claim.varied))
    ]


def _unlike(of: Mapping[str, str], base: Mapping[str, str], varied: Sequence[str]) -> str:
    """What both state and state differently: "memory 24 GB and 32 GB"; empty if there is nothing."""
    different = [name for name in of if name in base and of[name] != base[name]]
    on_purpose = [name for name in different if name in varied]
    shown = [name for name in different if name not in on_purpose or len(on_purpose) > 1]
    return ", ".join(f"{name} {of[name]} and {base[name]}" for name in shown)
