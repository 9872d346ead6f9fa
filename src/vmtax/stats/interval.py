"""The Hodges-Lehmann estimate and its exact interval. Pure numbers, no state but two caches.

Everything works on *log ratios*, `D_i = ln(x_B) - ln(x_A)`, one per round, in one dimension: shape `(n,)`.

Sources: Hodges & Lehmann, "Estimates of location based on rank tests", Ann. Math. Stat. 34 (1963); the interval is
Tukey's, as in Hollander, Wolfe & Chicken, "Nonparametric Statistical Methods", 3rd ed., sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

from vmtax.stats.arrays import Floats, Vector, np, npt

EXACT_ROUNDS = 1000  # up to which the signed-rank distribution is computed exactly
ALPHA = 0.05  # of an interval after a number of rounds that was fixed in advance


class TooFewRounds(ValueError):
    """So few differences give no interval at that confidence; the text says how many are needed."""


def log_ratio_interval(differences: Floats, alpha: float = ALPHA) -> tuple[float, float, float]:
    """(estimate, low, high): Hodges-Lehmann with exact signed-rank limits, in units of the input; shape `(n,)`.

    The limits are the k-th smallest and k-th largest Walsh average, with k from `signed_rank_rank`; they include the
    true shift in at least `1 - alpha` of all experiments whose differences are symmetric about it. Raises TooFewRounds
    if `2**(1 - n) > alpha`, ValueError if the input is empty or not finite.
    """
    values = finite(differences)
    averages = _walsh(values)
    bounds = _bounds(averages, values.size, alpha)
    if bounds is None:
        needed = minimum_rounds(alpha)
        raise TooFewRounds(f"an interval at {100 * (1 - alpha):.3g} % needs {needed} rounds or more, not {values.size}")
    return _median(averages), *bounds


def hodges_lehmann(differences: Floats) -> float:
    """Median of the Walsh averages `(D_i + D_j) / 2, i <= j`. Raises ValueError if the input is empty or not finite."""
    return _median(_walsh(finite(differences)))


def interval(differences: Floats, alpha: float = 0.05) -> tuple[float, float] | None:
    """Exact interval of the Hodges-Lehmann estimate at confidence `1 - alpha` or slightly more, in units of the input.

    The k-th smallest and k-th largest Walsh average; None if there are too few differences for an interval. Raises
    ValueError if the input is empty or not finite.
    """
    values = finite(differences)
    return _bounds(_walsh(values), values.size, alpha)


def reduce_iterations(boots: Vector) -> Vector:
    """One number for each boot: `exp(Hodges-Lehmann of ln(value))` over its iterations, in the unit of the values.

    `boots`: shape `(boots, iterations)`; the result has shape `(boots,)`, with NaN for a boot with a value that is
    missing, not finite, or not above 0.
    """
    values = np.where(np.isfinite(boots) & (boots > 0), boots, np.nan)
    if values.shape[1] == 1:
        return values[:, 0].copy()  # unchanged, because exp(log(x)) would round
    logs = np.log(values)
    rows, columns = walsh_indices(values.shape[1])
    with np.errstate(invalid="ignore"):
        reduced: Vector = np.exp(np.median((logs[:, rows] + logs[:, columns]) / 2, axis=1))
    return reduced


@lru_cache(maxsize=1024)
def signed_rank_rank(n: int, alpha: float) -> int | None:
    """k such that the k-th smallest and k-th largest of n(n+1)/2 Walsh averages bound a `1 - alpha` interval.

    The largest k with `2 P(T <= k - 1) <= alpha`, T being the signed-rank statistic of n differences; that is the
    two-sided critical value of printed tables, plus 1. None if even k = 1 is too large: `2**(1 - n) > alpha`. Above
    EXACT_ROUNDS, it is computed by the Cornish-Fisher expansion, which is then right or too small by 1 among hundreds
    of thousands.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, not at {alpha!r}")
    if n > EXACT_ROUNDS:
        z = NormalDist().inv_cdf(alpha / 2)
        mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
        kurtosis = -n * (n + 1) * (2 * n + 1) * (3 * n**2 + 3 * n - 1) / 240 / variance**2
        return math.floor(mean + math.sqrt(variance) * (z + kurtosis * (z**3 - 3 * z) / 24) + 0.5)
    k = int(np.searchsorted(tail_probabilities(n), alpha / 2, side="right"))
    return k or None


def minimum_rounds(alpha: float) -> int:
    """Fewest rounds that give an interval: smallest n with `2**(1 - n) <= alpha`; 6 at 0.05."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, not at {alpha!r}")
    return math.ceil(1 - math.log2(alpha))


def rounds_needed(cv: float, half_width: float) -> int:
    """Rounds until the interval extends about `half_width` (log ratio) to either side: `ceil(2 (1.96 cv / h)^2)`.

    `cv` is the coefficient of variation of one side's runs, as a fraction. From the normal approximation, METHOD.md.
    """
    if not half_width > 0 or not cv >= 0:
        raise ValueError(f"the half-width is above 0 and cv not below, not {half_width!r} and {cv!r}")
    return math.ceil(2 * (1.96 * cv / half_width) ** 2)


@lru_cache(maxsize=32)
def tail_probabilities(n: int) -> Vector:
    """P(T <= t) of the signed-rank statistic of n differences, for t from 0 to n(n+1)//4."""
    return np.cumsum(_signed_rank(n))


def _signed_rank(n: int) -> Vector:
    """P(T = t) for t from 0 to half of n(n+1)/2, the rest being symmetric; shape `(n(n+1)//4 + 1,)`.

    Each rank joins T or not with probability 1/2. Halving keeps every step a count over a power of two: exact in
    float64 to n = 53, and a sum of positive terms (relative error below n * 2**-52) from there on.
    """
    probability = np.zeros(n * (n + 1) // 4 + 1)
    probability[0] = 1.0
    for rank in range(1, n + 1):
        joined = probability[:-rank].copy()
        probability[rank:] += joined
        probability /= 2
    return probability


@lru_cache(maxsize=8)  # n^2 numbers each
def walsh_indices(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices i <= j of all pairs, shape `(n(n+1)/2,)` each."""
    rows, columns = np.triu_indices(n)
    return rows, columns


def finite(values: Floats) -> Vector:
    """The values as an array of shape `(n,)`. Raises ValueError if they are empty, not one-dimensional, or not
    finite.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise ValueError(f"needs one row of finite numbers, at least one; has {str(vector.tolist())[:80]}")
    return vector


def _walsh(differences: Vector) -> Vector:
    """Walsh averages, ascending, shape `(n(n+1)/2,)`."""
    n = differences.size
    averages, place = np.empty(n * (n + 1) // 2), 0
    for first in range(n):  # without indices of all pairs, which would take twice the memory
        np.add(differences[first], differences[first:], out=averages[place : place + n - first])
        place += n - first
    averages /= 2
    averages.sort()
    return averages


def _median(ascending: Vector) -> float:
    middle = ascending.size // 2
    return float(ascending[middle] if ascending.size % 2 else (ascending[middle - 1] + ascending[middle]) / 2)


def _bounds(averages: Vector, n: int, alpha: float) -> tuple[float, float] | None:
    k = signed_rank_rank(n, alpha)
    return None if k is None else (float(averages[k - 1]), float(averages[-k]))
