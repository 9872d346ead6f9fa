"""Scores of several parts under many sets of weights: who would win with other weights. Pure numbers.

Parts are logs of shape `(rounds, treatments, parts)`, higher is better; weights have shape `(sets, parts)`.
"""

from __future__ import annotations

import itertools
from typing import Literal

from vmtax.stats.arrays import Matrix, np
from vmtax.stats.interval import walsh_indices

Mean = Literal["arithmetic", "geometric"]

MOST_CORNERS = 256  # sets of weights halved and doubled; with more than 8 parts, this many are drawn at random
MOST_BLOCKS = 12  # of rounds; the number of averages grows with the square of it
_CHUNK = 4_000_000  # numbers in memory at once


def weight_corners(weights: Matrix, most: int = MOST_CORNERS, seed: int = 0) -> Matrix:
    """Every weight halved or doubled, in all combinations; shape `(sets, parts)`. If there are more than `most`, a
    fixed sample.
    """
    if 2 ** min(weights.size, 60) <= most:
        factors = np.array(list(itertools.product((0.5, 2.0), repeat=weights.size)))
    else:
        factors = np.random.default_rng(seed).choice([0.5, 2.0], (most, weights.size))
    return factors * weights


def drawn_weights(weights: Matrix, sets: int, seed: int = 0) -> Matrix:
    """Weights from the Dirichlet distribution around the given ones; shape `(sets, parts)`, each row sums to 1.

    Its parameters are the weights scaled to a mean of 1: for equal weights, every set is equally likely.
    """
    return np.random.default_rng(seed).dirichlet(weights / weights.mean(), sets)


def weighted_places(parts: Matrix, weights: Matrix, mean: Mean) -> Matrix:
    """Hodges-Lehmann estimates of the round-centred log scores, by which `rank` sorts; shape `(sets, treatments)`.

    More than MOST_BLOCKS rounds are first averaged into MOST_BLOCKS blocks of adjacent ones, which changes little.
    """
    shares = weights / weights.sum(axis=1, keepdims=True)
    rounds, treatments, _ = parts.shape
    blocks = min(rounds, MOST_BLOCKS)
    rows, columns = walsh_indices(blocks)
    step = max(1, _CHUNK // (treatments * max(rows.size, rounds)))
    found = []
    for start in range(0, len(shares), step):
        scores = weighted(parts, shares[start : start + step], mean)  # (sets, rounds, treatments)
        scores -= scores.mean(axis=2, keepdims=True)
        blocked = np.stack([block.mean(axis=1) for block in np.array_split(scores, blocks, axis=1)], axis=1)
        found.append(np.median((blocked[:, rows] + blocked[:, columns]) / 2, axis=1))
    return np.concatenate(found)


def weighted(parts: Matrix, shares: Matrix, mean: Mean) -> Matrix:
    """Log of the weighted mean of the parts; shape `(sets, rounds, treatments)`. Each row of `shares` sums to 1."""
    if mean == "geometric":
        return np.moveaxis(parts @ shares.T, -1, 0)
    largest = parts.max(axis=-1)  # subtracted first, so that no exp overflows
    return np.moveaxis(np.log(np.exp(parts - largest[..., None]) @ shares.T) + largest[..., None], -1, 0)
