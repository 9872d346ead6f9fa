"""Divide variance into parts between and within boots, and choose the number of iterations of a boot. Pure numbers.

Sources: Searle, Casella & McCulloch, "Variance Components" (1992), section 3.6, for the unbalanced one-way analysis of
variance; Kalibera & Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, for the number of iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.stats.arrays import np

MOST_ITERATIONS = 20  # of a boot, even if boots hardly differ


@dataclass(frozen=True, slots=True)
class VarianceComponents:
    """Variances of the logarithm; their roots are approximately coefficients of variation."""

    between: float  # variance between boots (T_boot^2), without the contribution of iterations; at least 0
    within: float  # variance between the iterations of a boot (T_iter^2)
    boots: int  # number of boots
    iterations: int  # number of iterations in all boots together

    @property
    def share_between(self) -> float:
        """The share of one iteration's variance that is between boots, 0 to 1; 0 if nothing varies."""
        total = self.between + self.within
        return self.between / total if total else 0.0


def variance_components(boots: Sequence[Sequence[float]]) -> VarianceComponents:
    """One-way random effects of boots on the logs of their iterations, estimated by analysis of variance.

    `boots`: for each boot its iterations, above 0, in one unit; their numbers may differ. A negative estimate of the
    variance between boots becomes 0. Raises ValueError for values that have no logarithm, for fewer than two boots, and
    if no boot has two iterations.
    """
    logs = [np.asarray(boot, dtype=np.float64) for boot in boots]
    if any(((row <= 0) | ~np.isfinite(row)).any() for row in logs):
        raise ValueError("every iteration needs a finite value above 0: leave out the boots that have others")
    logs = [np.log(row) for row in logs if row.size]
    sizes = np.array([row.size for row in logs])
    count, total = len(logs), int(sizes.sum())
    if count < 2 or total == count:
        raise ValueError(
            f"variance components take two boots or more, one of them with two iterations or more;"
            f" has {count} with {total} iterations"
        )
    means = np.array([row.mean() for row in logs])
    within = sum(float(((row - row.mean()) ** 2).sum()) for row in logs) / (total - count)
    grand = float(sizes @ means) / total
    between_square = float(sizes @ (means - grand) ** 2) / (count - 1)
    typical_size = (total - float(sizes @ sizes) / total) / (count - 1)
    return VarianceComponents(max(0.0, (between_square - within) / typical_size), within, count, total)


def iterations_per_boot(
    components: VarianceComponents, iteration_seconds: float, boot_seconds: float, most: int = MOST_ITERATIONS
) -> int:
    """The number of iterations of a boot that gives the narrowest interval for a given time; from 1 to `most`.

    A boot of r iterations costs `boot_seconds + r iteration_seconds`, and its mean has the variance `between + within /
    r`. Their product, which is the variance achieved in a given total time, is smallest at `r = sqrt(boot_seconds /
    iteration_seconds * within / between)`; among whole numbers, at the smallest r with `r (r + 1)` of at least that
    squared. The minimum is flat. `boot_seconds`: start, settling and warm-up, everything that a boot costs once. Raises
    ValueError for times that are not above 0, or negative for the boot.
    """
    if not (iteration_seconds > 0 and boot_seconds >= 0 and most >= 1):
        raise ValueError(
            f"iteration_seconds is above 0, boot_seconds at least 0 and most at least 1, not {iteration_seconds!r},"
            f" {boot_seconds!r} and {most!r}"
        )
    if not components.within or not boot_seconds:
        return 1
    if not components.between:
        return most
    squared = boot_seconds / iteration_seconds * components.within / components.between
    return max(1, min(most, math.ceil((math.sqrt(1 + 4 * squared) - 1) / 2))) if math.isfinite(squared) else most
