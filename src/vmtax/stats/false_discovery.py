"""Which of many tests show something, with the share of false claims among the claims limited. Pure numbers.

Source: Benjamini & Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57 (1995).
"""

from __future__ import annotations

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
