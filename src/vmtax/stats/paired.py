"""The change of one host between two runs: the difference of two estimates, each with the error of its own rounds.

What a host changes by itself from one run to the next is in neither error, unless the estimates are means of several
runs (repeats.py). Over several hosts it is part of the variance between them, so the interval of their mean (fleet.py)
includes it. Sources: Welch, Biometrika 34 (1947); Satterthwaite, Biometrics Bulletin 2 (1946). Pure numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vmtax.stats.fleet import HostEstimate
from vmtax.stats.interval import ALPHA


@dataclass(frozen=True, slots=True)
class PairedChange:
    """After less before, in log."""

    log: float
    error: float  # standard error of it, from the errors of both sides
    freedom: int  # degrees of freedom of the error
    low: float | None  # of its interval; None: both errors are 0, which only coarse figures have
    high: float | None


def paired(before: HostEstimate, after: HostEstimate, alpha: float = ALPHA) -> PairedChange:
    """Raises ValueError for an estimate or an error that is not finite, and for a side with less than two rounds."""
    numbers = (before.log, after.log, before.error, after.error)
    if not all(map(math.isfinite, numbers)) or min(before.freedom, after.freedom) < 1:
        raise ValueError("each side needs a finite estimate of two rounds or more")
    log, error = after.log - before.log, math.hypot(before.error, after.error)
    if not error > 0:
        return PairedChange(log, 0.0, min(before.freedom, after.freedom), None, None)
    parts = sum((side.error / error) ** 4 / side.freedom for side in (before, after))
    freedom = max(1, math.floor(1 / parts + 1e-9))
    from scipy.special import stdtrit

    width = float(stdtrit(freedom, 1 - alpha / 2)) * error
    return PairedChange(log, error, freedom, log - width, log + width)
