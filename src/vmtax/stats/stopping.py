"""Stopping rules that may be applied at every look without invalidating the interval.

Sources: Jennison & Turnbull, "Repeated confidence intervals for group sequential clinical trials", Controlled Clinical
Trials 5 (1984); the recursion is that of Armitage, McPherson & Rowe, J. R. Stat. Soc. A 132 (1969). The precision
rule's alpha is simulated (`make prove` shows it).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from vmtax.stats.arrays import Floats, np
from vmtax.stats.interval import ALPHA, finite, hodges_lehmann, interval, minimum_rounds

PRECISION_ALPHA = 0.035  # for the intervals of a run that stops when they are narrow
MOST = 60  # rounds
LOOKS = (8, 12, 18, 27, 40, 60)
_NODES = 96  # fewest of the quadrature; alpha is then right to 1e-10 if looks are not close together
_NODES_PER_STEP = 8  # for close looks: per standard deviation between two looks


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a rule after some rounds, in log ratio."""

    stop: bool  # the run may end
    estimate: float  # Hodges-Lehmann
    low: float | None  # of the interval; None if there are too few rounds for one
    high: float | None


@dataclass(frozen=True, slots=True)
class PrecisionRule:
    """Stop when the interval is narrow. Only its width decides, not its position.

    With `alpha` 0.035 at every look, an A/A excludes "no difference" in at most about 5 % of all runs.
    """

    half_width: float  # in log ratio: ln(1.02) for 2 %
    alpha: float = PRECISION_ALPHA  # of the interval at each look
    first: int = 10  # pairs at the first look
    every: int = 2  # pairs between looks
    most: int = MOST  # pairs after which it always stops

    def __post_init__(self) -> None:
        if not self.half_width > 0:
            raise ValueError(f"half_width is above 0, in log ratio, not {self.half_width!r}")
        if self.first < minimum_rounds(self.alpha):
            raise ValueError(f"first is at least {minimum_rounds(self.alpha)} at alpha {self.alpha}, not {self.first}")
        if self.most < self.first:
            raise ValueError(f"most is not below first ({self.first}), but is {self.most}")
        if self.every < 1:
            raise ValueError(f"every is at least 1, not {self.every}")

    def looks_at(self, pairs: int) -> bool:
        """Whether it may stop at this number of pairs."""
        return pairs >= self.most or (pairs >= self.first and (pairs - self.first) % self.every == 0)

    def settled(self, low: float, high: float) -> bool:
        """Whether an interval, in log ratio, is narrow enough."""
        width = high - low  # zero if the metric's steps are too coarse to show a difference
        return 0 < width / 2 <= self.half_width

    def look(self, differences: Floats) -> Look:
        """The decision after these pairs; shape `(n,)`, log ratios. Raises ValueError if the input is empty or not
        finite.
        """
        values = finite(differences)
        bounds = interval(values, self.alpha)
        settled = bounds is not None and self.settled(*bounds) and self.looks_at(values.size)
        return Look(settled or values.size >= self.most, hodges_lehmann(values), *(bounds or (None, None)))


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """Stop when it is decided on which side of a margin the ratio is, by repeated confidence intervals.

    All intervals together include the true value in at least `1 - alpha` of all runs, so that any reason to stop at a
    look, or to continue, is allowed.
    """

    looks: tuple[int, ...] = LOOKS  # numbers of pairs
    alpha: float = ALPHA  # for all looks together
    margin: float = 0.0  # log ratio: ln(1.03) asks whether times are worse by more than 3 %, ln(0.97) asks it of rates

    def __post_init__(self) -> None:
        if not self.looks or list(self.looks) != sorted({look for look in self.looks if look > 0}):
            raise ValueError(f"looks are rising numbers of pairs, not {self.looks!r}")
        needed = minimum_rounds(self.look_alpha)
        if self.looks[0] < needed:
            raise ValueError(f"the first look is at {needed} pairs or more at alpha {self.alpha}, not {self.looks[0]}")

    @property
    def look_alpha(self) -> float:
        """The alpha of the interval at each look; 0.0131 for the default."""
        return look_alpha(self.looks, self.alpha)

    def looks_at(self, pairs: int) -> bool:
        """Whether it may stop at this number of pairs."""
        return pairs in self.looks

    def settled(self, low: float, high: float) -> bool:
        """Whether an interval, in log ratio, answers the question."""
        return low > self.margin or high < self.margin

    def look(self, differences: Floats) -> Look:
        """The decision after these pairs; shape `(n,)`, log ratios. Raises ValueError if the input is empty or not
        finite.

        Between two looks, interval, estimate and answer are those of the last look.
        """
        values = finite(differences)
        passed = [look for look in self.looks if look <= values.size]
        if not passed:
            return Look(False, hodges_lehmann(values), None, None)
        seen = values[: passed[-1]]
        low, high = interval(seen, self.look_alpha) or (-math.inf, math.inf)
        return Look(self.settled(low, high) or passed[-1] == self.looks[-1], hodges_lehmann(seen), low, high)


@lru_cache(maxsize=64)
def look_alpha(looks: Sequence[int], alpha: float) -> float:
    """The two-sided alpha of each look, the same for all, such that all together have `alpha`.

    From the joint normal distribution of Z at the looks, corr(Z_i, Z_j) = sqrt(n_i / n_j) for n_i <= n_j. `looks` is a
    tuple.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, not at {alpha!r}")
    low, high = 0.0, 12.0
    for _ in range(60):
        z = (low + high) / 2
        low, high = (z, high) if _ever_beyond(looks, z) > alpha else (low, z)
    return math.erfc(high / math.sqrt(2))


def _ever_beyond(looks: Sequence[int], z: float) -> float:
    """P(|Z| > z at any look) if there is no difference.

    The sum S_n of unit normal increments is followed from look to look: the density of S at a look, for paths that have
    stayed within z sqrt(n) so far, is the previous one convolved with the increment's normal density.
    """
    steps = (z * math.sqrt(now / (now - before)) for before, now in itertools.pairwise(looks))
    nodes, weights = np.polynomial.legendre.leggauss(max(_NODES, math.ceil(_NODES_PER_STEP * max(steps, default=0.0))))
    bound = z * math.sqrt(looks[0])
    points = bound * nodes
    mass = bound * weights * _normal(points, looks[0])
    for before, now in itertools.pairwise(looks):
        bound = z * math.sqrt(now)
        here = bound * nodes
        mass = bound * weights * (_normal(here[:, None] - points[None, :], now - before) @ mass)
        points = here
    return 1 - float(mass.sum())


def _normal(x: np.ndarray, variance: float) -> np.ndarray:
    density: np.ndarray = np.exp(-(x**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    return density
