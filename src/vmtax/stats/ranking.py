"""Many treatments at once: which are beaten, with one error rate over all claims.

Sources: Westfall & Young, "Resampling-based multiple testing" (1993), step-down max-T; Holm, Scand. J. Stat. 6 (1979).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from vmtax.stats.interval import ALPHA, Vector, tail_probabilities, walsh_indices

Matrix = npt.NDArray[np.float64]
Pairs = npt.NDArray[np.bool_]
Method = Literal["signed-rank + Holm", "permutation"]

PERMUTATIONS = 1999
_CHUNK = 4_000_000  # numbers held at once


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Treatments in order, and which of them are beaten; one error rate over all claims. Numbered by their column."""

    order: tuple[int, ...]  # best first, by the mean of round-centred logs
    relative: Vector  # exp(that mean minus the best's); shape (treatments,)
    beaten: npt.NDArray[np.bool_]  # [i, j]: i is claimed to be better than j; shape (treatments, treatments)
    method: Method
    rounds: int  # complete ones, in which every treatment has a value
    alpha: float

    @property
    def top(self) -> tuple[int, ...]:
        """The top set: every treatment that no other is shown to beat, best first."""
        lost = set(np.flatnonzero(self.beaten.any(axis=0)).tolist())
        return tuple(number for number in self.order if number not in lost)


def ranking_rounds(treatments: int, alpha: float = ALPHA) -> int:
    """Rounds before signed ranks with Holm's correction can beat anything: `1 + ceil(log2(m / alpha))` for m pairs."""
    pairs = treatments * (treatments - 1) // 2
    return 1 + math.ceil(math.log2(pairs / alpha)) if pairs else 1


def rank(
    logs: Matrix,
    better: Literal["higher", "lower"] = "lower",
    alpha: float = ALPHA,
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Ranking:
    """Rank treatments by logs of shape `(rounds, treatments)`, one number for each boot; NaN where there is none.

    Rounds in which any treatment is missing are left out. Where there are rounds enough the claims rest on signed ranks
    of pairs with Holm's correction, else on permutations within rounds: under no difference the labels within a round
    are exchangeable, whatever the noise. The chance of any false claim is `alpha` either way. Raises ValueError for
    fewer than two treatments, for infinite values, and where no round is complete.
    """
    values = np.asarray(logs, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or np.isinf(values).any():
        raise ValueError(f"needs finite logs of shape (rounds, treatments), two treatments or more; has {values.shape}")
    complete = values[~np.isnan(values).any(axis=1)]
    rounds, treatments = complete.shape
    if not rounds:
        raise ValueError(f"none of {len(values)} rounds has a value of every treatment")
    costs = complete if better == "lower" else -complete
    centred = costs - costs.mean(axis=1, keepdims=True)
    means = centred.mean(axis=0)
    order = np.argsort(means, kind="stable")
    method: Method = "signed-rank + Holm" if rounds >= ranking_rounds(treatments, alpha) else "permutation"
    if method == "permutation":
        separated = _step_down(centred[:, order], alpha, permutations, seed)
    else:
        separated = _holm(centred[:, order], alpha)
    beaten = np.zeros((treatments, treatments), dtype=bool)
    beaten[np.ix_(order, order)] = separated
    relative = np.exp((means - means[order[0]]) * (1 if better == "lower" else -1))
    return Ranking(tuple(map(int, order)), relative, beaten, method, rounds, alpha)


def _step_down(centred: Matrix, alpha: float, permutations: int, seed: int) -> Pairs:
    """Claims [i, j], i < j, of columns in rising order of their means; shape `(t, t)`.

    The statistic of a pair is its difference of means over the residual deviation of rounds x treatments. Pairs that
    are not claimed yet lie in windows of neighbours: the largest statistic among them is the widest window's range.
    """
    rounds, treatments = centred.shape
    claimed = np.zeros((treatments, treatments), dtype=bool)
    degrees = (rounds - 1) * (treatments - 1)
    if rounds < 2 or not centred.any():
        return claimed
    total = float((centred**2).sum())
    observed = centred.mean(axis=0)
    drawn = _permuted_means(centred, permutations, seed)
    scale = np.sqrt(np.maximum(total - rounds * (drawn**2).sum(axis=1), 0) / degrees)
    own = math.sqrt(max(total - rounds * float((observed**2).sum()), 0.0) / degrees)
    differences = np.triu(observed[None, :] - observed[:, None], 1)
    while True:
        windows = _windows(claimed)
        if not windows:
            return claimed
        widest = np.max([np.ptp(drawn[:, low:high], axis=1) for low, high in windows], axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.where(scale > 0, widest / scale, np.where(widest > 0, np.inf, 0.0))
        # The observed arrangement is one of the permutations.
        limit = np.sort(statistic)[::-1][min(int(alpha * (1 + permutations)) - 1, permutations - 1)]
        more = differences > limit * own
        more |= claimed
        if (more == claimed).all():
            return claimed
        claimed = more


def _windows(claimed: Pairs) -> list[tuple[int, int]]:
    """Longest runs [low, high) of columns of which no pair is claimed; of two or more columns."""
    treatments = len(claimed)
    found: list[tuple[int, int]] = []
    reach = 0
    for low in range(treatments):
        beyond = np.flatnonzero(claimed[low])
        high = int(beyond[0]) if beyond.size else treatments
        if high > reach and high - low > 1:
            found.append((low, high))
        reach = max(reach, high)
    return found


def _permuted_means(centred: Matrix, permutations: int, seed: int) -> Matrix:
    """Column means after shuffling each row by itself, shape `(permutations, treatments)`."""
    rounds, treatments = centred.shape
    sums = np.zeros((permutations, treatments))
    for number, indices in enumerate(_shuffles(rounds, treatments, permutations, seed)):
        sums += centred[number][indices]
    means: Matrix = sums / rounds
    return means


@lru_cache(maxsize=4)
def _shuffles(rounds: int, treatments: int, permutations: int, seed: int) -> npt.NDArray[np.int32]:
    """Shape `(rounds, permutations, treatments)`; kept, because every metric of a run takes the same."""
    source = np.random.default_rng(seed)
    columns = np.arange(treatments, dtype=np.int32)
    shuffled: npt.NDArray[np.int32] = source.permuted(
        np.broadcast_to(columns, (rounds, permutations, treatments)), axis=2
    )
    return shuffled


def _holm(centred: Matrix, alpha: float) -> Pairs:
    """Claims [i, j], where the signed-rank test of i against j survives Holm's correction over all pairs."""
    treatments = centred.shape[1]
    first, second = np.triu_indices(treatments, 1)
    p, sign = _signed_rank_tests(centred, first, second)
    order = np.argsort(p, kind="stable")
    fails = p[order] > alpha / np.arange(p.size, 0, -1)
    kept = order[: int(np.argmax(fails)) if fails.any() else p.size]
    claimed = np.zeros((treatments, treatments), dtype=bool)
    less = sign[kept] > 0
    claimed[np.where(less, first[kept], second[kept]), np.where(less, second[kept], first[kept])] = True
    return claimed


def _signed_rank_tests(
    centred: Matrix, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp]
) -> tuple[Vector, npt.NDArray[np.int_]]:
    """(two-sided p, sign of `second - first`) of each pair of columns; exact, and of one mind with the intervals.

    The statistic is the number of Walsh averages on the rarer side of 0; those at 0 count on both sides.
    """
    rounds = len(centred)
    rows, columns = walsh_indices(rounds)
    tail = tail_probabilities(rounds)
    chunk = max(1, _CHUNK // rows.size)
    p, sign = np.empty(first.size), np.empty(first.size, dtype=int)
    for start in range(0, first.size, chunk):
        part = slice(start, start + chunk)
        differences = (centred[:, second[part]] - centred[:, first[part]]).T
        doubled = differences[:, rows] + differences[:, columns]
        positive, negative = (doubled >= 0).sum(axis=1), (doubled <= 0).sum(axis=1)
        rarer = np.minimum(positive, negative)
        p[part] = np.minimum(2 * tail[np.minimum(rarer, tail.size - 1)], 1.0)
        sign[part] = np.sign(positive - negative)
    return p, sign
