"""Rankings: false claims among equals, the best kept, the slow one found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tools.prove import noise
from tools.prove.bar import Bar, at_least, at_most
from vmtax import stats


def bars(experiments: int = 2000) -> Iterator[Bar]:
    source = np.random.default_rng(20261123)
    for rounds in (8, 12):
        rankings = [stats.rank(logs) for logs in _rounds(source, experiments, rounds, np.zeros(6))]
        false = float(np.mean([ranking.beaten.any() for ranking in rankings]))
        method = rankings[0].method
        yield at_most(f"ranking, 6 equal, {rounds} rounds, {method}: any false claim", 0.065, false)
    for rounds in (8, 12):
        steps = 0.01 * np.arange(6)
        rankings = [stats.rank(logs) for logs in _rounds(source, experiments, rounds, steps)]
        kept = float(np.mean([0 in ranking.top for ranking in rankings]))
        yield at_least(f"ranking, 6 in steps of 1 %, {rounds} rounds: the best stays on top", 0.95, kept)
    slow = np.zeros(24)
    slow[7] = np.log(1.1)
    rankings = [stats.rank(logs) for logs in _rounds(source, experiments, 6, slow)]
    yield at_least("ranking, 24 in 6 rounds, one 10 % slower: leaves the top set", 0.90, _share_out(rankings, 7))
    false = float(np.mean([np.delete(ranking.beaten, 7, axis=1).any() for ranking in rankings]))
    yield at_most("ranking, the same: any false claim", 0.065, false)


def _rounds(source: np.random.Generator, experiments: int, rounds: int, effects: noise.Matrix) -> noise.Matrix:
    """Logs of shape `(experiments, rounds, treatments)`: 3 % noise on rounds that differ by 5 %."""
    shape = (experiments, rounds, effects.size)
    return source.normal(0, 0.03, shape) + source.normal(0, 0.05, (experiments, rounds, 1)) + effects


def _share_out(rankings: list[stats.Ranking], treatment: int) -> float:
    return float(np.mean([treatment not in ranking.top for ranking in rankings]))
