"""Compare one treatment with its baseline: ratio, interval, mean, tail, stalls, carry-over."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from vmtax.stats.arrays import Floats, Matrix, Vector, np, npt
from vmtax.stats.interval import ALPHA, hodges_lehmann, interval

STALL = 1.5  # times the median: a slower run counts as stalled
STALLS_P = 0.05  # Fisher's test is conservative if stalls are rare
CARRY_OVER_P = 0.01  # every comparison is tested, so false alarms must be rare
_LARGEST = 700.0  # of a log ratio; beyond this, exp overflows
PERMUTATIONS = 999  # of the carry-over test: p-values have steps of 0.001
AT_ONCE = 270_000  # of the orders' numbers that are tried at once: all of them take 80 MB for 10,000 rounds
FEW = 300  # rounds: of more, only the orders of the last two numbers of rounds are kept
P95_ROUNDS = 200  # a percentile p needs 10/(1 - p) samples (METHOD.md, "Boots are the unit")


@dataclass(frozen=True, slots=True)
class Stalls:
    """Runs slower than 1.5 times their treatment's median time; for a rate, below its median / 1.5."""

    baseline: float  # share of the baseline's runs
    treatment: float
    p: float  # Fisher's exact test of the two counts; 1 if neither side stalled

    @property
    def differ(self) -> bool:
        """Whether one side is shown to stall more often."""
        return self.p < STALLS_P


@dataclass(frozen=True, slots=True)
class CarryOver:
    """Whether it matters which of the two ran first."""

    estimate: float  # mean(D | baseline first) - mean(D | treatment first), in log ratio
    p: float  # by permuting the orders, which were random: exact

    @property
    def matters(self) -> bool:
        """Whether the order is shown to matter."""
        return self.p < CARRY_OVER_P


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """A ratio of treatment to baseline over rounds; dimensionless."""

    ratio: float  # exp(Hodges-Lehmann of the log ratios)
    # Exact interval of the ratio; None if there are too few rounds, or steps too coarse to show chance
    low: float | None
    high: float | None
    pairs: int  # rounds that were used
    mean_ratio: float  # exp(mean of the log ratios): also affected by stalls, unlike the median
    p95_ratio: float  # of the slow tails: 95th percentiles of times, 5th percentiles of rates
    stalls: Stalls
    carry_over: CarryOver | None  # None if the orders are unknown or were all the same
    coarse: bool = False  # all ratios are exactly equal: the metric's resolution is too coarse to show chance


def paired_ratio(
    baseline: Floats,
    treatment: Floats,
    confidence: float = 1 - ALPHA,
    *,
    better: Literal["higher", "lower"] = "lower",
    baseline_first: Sequence[bool] | None = None,
) -> PairedRatio:
    """Compare two rows whose i-th elements are from the same round; each of shape `(n,)`, above 0, in one unit.

    `better`: which direction is an improvement; this determines what is slow. `baseline_first`: for each round, whether
    the baseline ran before the treatment. Raises ValueError for values that have no logarithm, for rows of unequal
    length and for empty ones; with too few rounds the result has no interval.
    """
    before, after = _positive("baseline", baseline), _positive("treatment", treatment)
    if before.size != after.size:
        raise ValueError(
            f"baseline and treatment have one value for each round, not {before.size} and {after.size}: "
            "leave out the rounds in which one is missing"
        )
    if baseline_first is not None and len(baseline_first) != before.size:
        raise ValueError(f"baseline_first has one entry for each of {before.size} rounds, not {len(baseline_first)}")
    if better not in ("higher", "lower"):
        raise ValueError(f"better is higher or lower, not {better!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, such as 0.95, not at {confidence!r}")
    alpha = 1 - confidence
    differences = np.log(after) - np.log(before)
    if np.abs(differences).max() > _LARGEST:
        raise ValueError(f"the ratios go to 1e{np.abs(differences).max() / math.log(10):.0f}: no number holds them")
    bounds = interval(differences, alpha)
    coarse = bounds is not None and bounds[0] == bounds[1]
    low, high = (None, None) if bounds is None or coarse else map(math.exp, bounds)
    slow = 0.95 if better == "lower" else 0.05
    rising = np.sort(before), np.sort(after)
    return PairedRatio(
        ratio=math.exp(hodges_lehmann(differences)),
        low=low,
        high=high,
        pairs=before.size,
        mean_ratio=math.exp(differences.mean()),
        p95_ratio=_quantile(rising[1], slow) / _quantile(rising[0], slow),
        stalls=_stalls(*rising, better),
        carry_over=_carry_over(differences, baseline_first),
        coarse=coarse,
    )


def _positive(what: str, values: Floats) -> Vector:
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or not row.size:
        raise ValueError(f"{what} needs one row of values, at least one; its shape is {row.shape}")
    wrong = ~(np.isfinite(row) & (row > 0))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"{what}[{place}] is {row[place]}: a ratio needs finite values above 0")
    return row


def _quantile(rising: Vector, share: float) -> float:
    """As np.quantile, to the last bit and in a tenth of its time; `rising`: the values in ascending order."""
    place = share * (rising.size - 1)
    below = int(place)
    weight = place - below
    low, high = float(rising[below]), float(rising[min(below + 1, rising.size - 1)])
    return low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)


def _stalls(before: Vector, after: Vector, better: str) -> Stalls:
    counts = [int(_stalled(row, better).sum()) for row in (before, after)]
    n = before.size
    if not any(counts):
        return Stalls(0.0, 0.0, 1.0)
    from scipy.stats import fisher_exact  # here, because importing it takes most of a second

    p = fisher_exact([[counts[0], n - counts[0]], [counts[1], n - counts[1]]])[1]
    return Stalls(counts[0] / n, counts[1] / n, float(p))


def _stalled(rising: Vector, better: str) -> npt.NDArray[np.bool_]:
    middle = rising.size // 2
    median = float(rising[middle] if rising.size % 2 else (rising[middle - 1] + rising[middle]) / 2)
    stalled: npt.NDArray[np.bool_] = rising > STALL * median if better == "lower" else rising < median / STALL
    return stalled


def _carry_over(differences: Vector, baseline_first: Sequence[bool] | None) -> CarryOver | None:
    if baseline_first is None:
        return None
    first = np.asarray(baseline_first, dtype=bool)
    firsts, n = int(first.sum()), differences.size
    if min(firsts, n - firsts) < 2:
        return None
    observed = float(differences[first].mean() - differences[~first].mean())
    parts = np.array_split(_orders(n), 1 + PERMUTATIONS * n // AT_ONCE)
    drawn = np.concatenate([_carried(differences[orders], firsts) for orders in parts])
    # Some tolerance, so that the observed order counts despite rounding when it is drawn again.
    as_large = np.abs(drawn) >= abs(observed) * (1 - 1e-12)
    return CarryOver(observed, float((1 + as_large.sum()) / (1 + PERMUTATIONS)))


def _carried(orders: Matrix, firsts: int) -> Vector:
    carried: Vector = orders[:, :firsts].mean(axis=1) - orders[:, firsts:].mean(axis=1)
    return carried


def _orders(n: int) -> npt.NDArray[np.unsignedinteger]:
    """Random orders of n, shape `(PERMUTATIONS, n)`; always the same, so that an analysis is reproducible."""
    return _few_orders(n) if n <= FEW else _many_orders(n)


def _draw_orders(n: int) -> npt.NDArray[np.unsignedinteger]:
    orders = np.tile(np.arange(n, dtype=np.min_scalar_type(n)), (PERMUTATIONS, 1))
    return np.random.default_rng(n).permuted(orders, axis=1, out=orders)


# Most comparisons of a run have the same number of rounds, or one of a few.
_few_orders, _many_orders = lru_cache(maxsize=64)(_draw_orders), lru_cache(maxsize=2)(_draw_orders)
