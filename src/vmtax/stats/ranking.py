"""Compare many treatments at once: which ones are beaten, with one error rate over all claims.

Sources: Westfall & Young, "Resampling-based multiple testing" (1993), step-down max-T; sign changes of whole rounds as
in Fisher's randomisation test of pairs; the clipped statistic is Huber's psi (1964), an odd function.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from vmtax.stats.arrays import Matrix, Small, Vector, np, npt
from vmtax.stats.interval import ALPHA, hodges_lehmann

FLIPS = 999  # random sign changes, if there are more; with the observed signs, p has steps of 0.001
CLIP = 2.0  # of a difference, in medians of all differences' sizes: a single stall must not outweigh ten rounds
PASSES = 8  # over incomplete rounds; each at least halves the remaining error
_CHUNK = 4_000_000  # numbers in memory at once
_ROUNDING = 1e-5  # relative error of sums in single precision


@dataclass(frozen=True, slots=True, eq=False)
class RankedTreatments:
    """Treatments in order, and which of them are beaten, with one error rate over all claims. Numbered by their
    column.
    """

    order: tuple[int, ...]  # best first, by the Hodges-Lehmann estimates of round-centred logs
    relative: Vector  # exp(that estimate minus the best's); shape (treatments,)
    beaten: npt.NDArray[np.bool_]  # [i, j]: i is claimed to be better than j; shape (treatments, treatments)
    rounds: int  # with values of at least two treatments
    alpha: float

    @property
    def top(self) -> tuple[int, ...]:
        """The top set: every treatment that no other is shown to beat, best first."""
        lost = set(np.flatnonzero(self.beaten.any(axis=0)).tolist())
        return tuple(number for number in self.order if number not in lost)


def rank(
    logs: Matrix,
    better: Literal["higher", "lower"] = "lower",
    alpha: float = ALPHA,
    *,
    flips: int = FLIPS,
    seed: int = 0,
) -> RankedTreatments:
    """Rank treatments by logs of shape `(rounds, treatments)`, one number for each boot; NaN for missing values.

    A pair is compared in the rounds that have both; a treatment that is sometimes missing does not affect the others.
    If two treatments do not differ, then, because their order within a round is random, their difference is as likely
    positive as negative, however noisy each of them is. So the observed differences are compared with the same
    differences under sign changes of whole rounds, the largest of all pairs with the largest. The probability of any
    false claim is at most `alpha`; nothing can be claimed with fewer than `minimum_rounds(alpha)` rounds. Raises
    ValueError for fewer than two treatments, for infinite values, and if a treatment shares no round with any other.
    """
    values = np.asarray(logs, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or np.isinf(values).any():
        raise ValueError(f"needs finite logs of shape (rounds, treatments), two treatments or more; has {values.shape}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha lies between 0 and 1, not at {alpha!r}")
    if better not in ("higher", "lower"):
        raise ValueError(f"better is higher or lower, not {better!r}")
    shared = values[(~np.isnan(values)).sum(axis=1) >= 2]
    rounds, treatments = shared.shape
    alone = np.isnan(shared).all(axis=0)
    if alone.any():
        raise ValueError(f"treatment {int(np.argmax(alone))} has no value in a round in which another has one")
    sign = 1 if better == "lower" else -1
    costs = sign * shared
    places = _places(costs)
    order = np.argsort(places, kind="stable")
    beaten = np.zeros((treatments, treatments), dtype=bool)
    first, second = np.triu_indices(treatments, 1)
    # If one of a pair is missing, the round carries no information about the pair, whatever its sign.
    worse = _step_down(np.nan_to_num(costs[:, second] - costs[:, first]), alpha, _signs(rounds, flips, seed))
    for winner, loser, claims in ((first, second, worse > 0), (second, first, worse < 0)):
        beaten[winner[claims], loser[claims]] = True
    return RankedTreatments(tuple(map(int, order)), np.exp(sign * (places - places[order[0]])), beaten, rounds, alpha)


def _places(costs: Matrix) -> Vector:
    """Hodges-Lehmann estimates of each column relative to the rounds' levels; shape (treatments,).

    In a round that lacks some treatments, the mean of the others is biased: it is corrected by their estimates,
    iteratively.
    """
    places = np.zeros(costs.shape[1])
    for _ in range(PASSES if np.isnan(costs).any() else 1):
        centred = costs - np.nanmean(costs - places, axis=1, keepdims=True)
        places = np.array([hodges_lehmann(column[~np.isnan(column)]) for column in centred.T])
    return places


def _step_down(differences: Matrix, alpha: float, signs: Small) -> npt.NDArray[np.int_]:
    """For each pair, a column of `differences` of shape `(rounds, pairs)`: 1 or -1 if a sign is claimed, else 0."""
    pairs = differences.shape[1]
    claimed = np.zeros(pairs, dtype=bool)
    sizes = np.abs(differences[differences != 0])
    typical = float(np.median(sizes)) if sizes.size else 0.0
    clipped = np.clip(differences / typical, -CLIP, CLIP) if typical > 0 else differences
    observed = clipped.sum(axis=0)
    allowed = math.floor(
        alpha * len(signs) * (1 + 1e-9)
    )  # arrangements with a sum that is as large, including the observed one
    while allowed >= 1 and not claimed.all():
        largest = np.sort(_largest(clipped[:, ~claimed].astype(np.float32), signs))[::-1]
        limit = float(largest[allowed]) if allowed < len(largest) else -1.0
        more = claimed | (np.abs(observed) > limit * (1 + _ROUNDING))
        if (more == claimed).all():
            break
        claimed = more
    return np.where(claimed, np.sign(observed), 0).astype(int)


def _largest(clipped: Small, signs: Small) -> Small:
    """The largest absolute sum over all pairs, for each arrangement of signs; shape `(arrangements,)`."""
    step = max(1, _CHUNK // clipped.shape[1])
    return np.concatenate(
        [np.abs(signs[start : start + step] @ clipped).max(axis=1) for start in range(0, len(signs), step)]
    )


@lru_cache(maxsize=4)
def _signs(rounds: int, flips: int, seed: int) -> Small:
    """Arrangements of signs, the observed one first, shape `(arrangements, rounds)`; all if they are few.

    Changing all signs at once gives the same absolute sums, so the first round keeps its sign.
    """
    if 2 ** min(rounds - 1, 60) <= flips + 1:
        every = itertools.product((1.0, -1.0), repeat=rounds - 1)
        return np.array([(1.0, *rest) for rest in every], dtype=np.float32)
    drawn = np.random.default_rng(seed).choice([-1.0, 1.0], (flips, rounds))
    return np.vstack([np.ones(rounds), drawn]).astype(np.float32)
