"""Rankings: false claims among equals under every kind of noise, the best kept, the slow one found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tools.prove import noise
from tools.prove.bar import Bar, at_least, at_most
from vmtax import stats

FALSE, EQUAL = 0.065, 0.03


def bars(experiments: int = 2000) -> Iterator[Bar]:
    source = np.random.default_rng(20261123)
    for treatments, rounds in ((6, 8), (6, 12), (24, 8)):
        equal = _logs(source, experiments, rounds, np.full(treatments, EQUAL))
        yield at_most(f"ranking, {treatments} equal, {rounds} rounds: any false claim", FALSE, _any(equal))
    for treatments in (6, 24):
        uneven = np.full(treatments, 0.01)
        uneven[:2] = 0.08
        noisy = _logs(source, experiments, 8, uneven)
        yield at_most(f"ranking, {treatments} equal, two of them much noisier: any false claim", FALSE, _any(noisy))
    stalled = _logs(source, experiments, 12, np.full(6, EQUAL))
    stalled += np.log(2) * (source.random(stalled.shape) < 0.05)
    yield at_most("ranking, 6 equal, 5 % of runs doubled: any false claim", FALSE, _any(stalled))
    for rounds in (8, 12):
        steps = _logs(source, experiments, rounds, np.full(6, EQUAL)) + 0.01 * np.arange(6)
        kept = float(np.mean([0 in stats.rank(logs).top for logs in steps]))
        yield at_least(f"ranking, 6 in steps of 1 %, {rounds} rounds: the best stays on top", 0.95, kept)
    yield from _slow(source, experiments)


def _slow(source: np.random.Generator, experiments: int) -> Iterator[Bar]:
    """One of 24 is 10 % slower."""
    logs = _logs(source, experiments, 6, np.full(24, EQUAL))
    logs[:, :, 7] += np.log(1.1)
    rankings = [stats.rank(one) for one in logs]
    out = float(np.mean([7 not in ranking.top for ranking in rankings]))
    false = float(np.mean([np.delete(ranking.beaten, 7, axis=1).any() for ranking in rankings]))
    yield at_least("ranking, 24 in 6 rounds, one 10 % slower: leaves the top set", 0.90, out)
    yield at_most("ranking, the same: any false claim", FALSE, false)


def _any(experiments: noise.Matrix) -> float:
    """Share of experiments, shape `(experiments, rounds, treatments)`, in which anything is claimed."""
    return float(np.mean([stats.rank(logs).beaten.any() for logs in experiments]))


def _logs(source: np.random.Generator, experiments: int, rounds: int, sds: noise.Matrix) -> noise.Matrix:
    """Each treatment with noise of its own, on rounds that differ by 5 %; shape `(experiments, rounds, treatments)`."""
    shared = source.normal(0, 0.05, (experiments, rounds, 1))
    return source.normal(0, 1, (experiments, rounds, sds.size)) * sds + shared
