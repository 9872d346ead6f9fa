"""One host that was measured several times: the mean of its runs, with an error that includes what the host changes by
itself from run to run. How much that is, runs of all hosts tell together: each host against its own mean.

The variance from run to run is what the levels of runs vary beyond the errors of their own rounds; degrees of freedom
are Satterthwaite's (Biometrics Bulletin 2, 1946). Pure numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.stats.fleet import HostEstimate

FEWEST_FREEDOM = 6  # of a variance from run to run: with less, intervals that use it are too narrow by simulation


@dataclass(frozen=True, slots=True)
class RunDrift:
    """How much one host differs from run to run."""

    variance: float  # of its level, beyond the errors of rounds, in log²; 0: none is seen
    scatter: float  # of its level as it is found, in log²
    freedom: int  # degrees of freedom: runs, less one for each group


def run_drift(groups: Sequence[Sequence[HostEstimate]]) -> RunDrift | None:
    """Each group has the runs of one host between which nothing was changed; None: too few have several."""
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    if freedom < FEWEST_FREEDOM:
        return None
    scatter = sum(_squares([run.log for run in group]) for group in several) / freedom
    own = sum((1 - 1 / len(group)) * sum(run.error**2 for run in group) for group in several) / freedom
    return RunDrift(max(0.0, scatter - own), scatter, freedom)


def repeated(runs: Sequence[HostEstimate], drift: RunDrift | None = None) -> HostEstimate:
    """The mean of one host's runs, one at least. `drift`: of hosts like it; None: its error is of the rounds alone."""
    count = len(runs)
    mean = math.fsum(run.log for run in runs) / count
    parts = [((run.error / count) ** 2, run.freedom) for run in runs]
    variance = math.fsum(part for part, _ in parts)
    if drift is not None and drift.variance > 0:
        variance += drift.variance / count
        parts.append((drift.scatter / count, drift.freedom))
    if not variance > 0:
        return HostEstimate(mean, 0.0, min(run.freedom for run in runs))
    known = 1 / sum((part / variance) ** 2 / freedom for part, freedom in parts)
    return HostEstimate(mean, math.sqrt(variance), max(1, math.floor(known + 1e-9)))


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
