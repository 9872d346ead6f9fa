"""Which of many tests show something, with the share of false claims among the claims limited. Pure numbers.

Sources: Benjamini & Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57 (1995); Benjamini &
Bogomolov, "Selective inference on multiple families of hypotheses", J. R. Stat. Soc. B 76 (2014).
"""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.stats.arrays import Floats, np


def discoveries(p_values: Floats, rate: float) -> tuple[bool, ...]:
    """Whether each of these p-values, shape `(n,)`, is a discovery at the false discovery rate `rate`, 0 to 1.

    If nothing is there to discover, anything is claimed in at most that share of calls.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not values.size:
        return ()
    rising = np.sort(values)
    within = np.flatnonzero(rising <= rate * np.arange(1, values.size + 1) / values.size)
    limit = rising[within[-1]] if within.size else -1.0
    return tuple(bool(claim) for claim in values <= limit)


def family_discoveries(families: Sequence[Floats], rate: float) -> tuple[tuple[bool, ...], ...]:
    """The discoveries in several families of p-values, each of shape `(n,)` with `n` of its own, such as all costs of
    one host. The share of false ones is limited among the families with a discovery, and on average within these.

    A family has one if its Simes p-value is a discovery among those of all families.
    """
    known = [index for index, each in enumerate(families) if len(each)]
    chosen = discoveries([_simes(families[index]) for index in known], rate)
    within = rate * sum(chosen) / max(1, len(known))
    selected = {index for index, claim in zip(known, chosen, strict=True) if claim}
    return tuple(
        discoveries(each, within) if index in selected else (False,) * len(each) for index, each in enumerate(families)
    )


def _simes(p_values: Floats) -> float:
    """The p-value of the hypothesis that a whole family has nothing to discover."""
    rising = np.sort(np.asarray(p_values, dtype=np.float64))
    return float((rising * rising.size / np.arange(1, rising.size + 1)).min())
