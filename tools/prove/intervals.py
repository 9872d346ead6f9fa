"""Intervals: false positives under every kind of noise, limits against brute force, stalls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tools.prove import noise
from tools.prove.bar import Bar, above, at_most
from vmtax import stats

PAIRS = 30
BRUTE = range(6, 21)


def bars(experiments: int = 2000) -> Iterator[Bar]:
    source = np.random.default_rng(20261121)
    for name, row in noise.ROWS.items():
        times = row(source, experiments, 2 * PAIRS)
        share = false_positives(noise.random_order(source, times))
        yield at_most(f"A/A, {name}: false positives", 0.06, share)
    walk = noise.walk(source, experiments, 2 * PAIRS)
    yield above("control: AAA…BBB on the AR(1) walk", 0.40, false_positives(noise.blocks(walk)))
    penalty = noise.first_run_penalty(source, experiments, 2 * PAIRS)
    yield above("control: ABAB under a first-run penalty", 0.50, false_positives(noise.always_a_first(penalty)))
    worst = max(abs(a - b) for n in BRUTE for a, b in zip(limits(n), brute_force(n), strict=True))
    yield Bar(f"limits against brute force, n = {BRUTE[0]}…{BRUTE[-1]}", "≤ 1e-12", f"{worst:.1e}", worst <= 1e-12)
    yield from stalls(source)


def false_positives(differences: noise.Matrix) -> float:
    """Share of rows, shape `(experiments, pairs)`, whose interval excludes 0."""
    bounds = np.array([stats.interval(row) for row in differences])
    return float(((bounds[:, 0] > 0) | (bounds[:, 1] < 0)).mean())


def sample(n: int) -> noise.Matrix:
    return np.random.default_rng(n).normal(0.01, 0.03, n)


def limits(n: int) -> tuple[float, float]:
    return stats.log_ratio_interval(sample(n))[1:]


def brute_force(n: int, alpha: float = 0.05) -> tuple[float, float]:
    """The shifts between which the exact test, by all 2^n signs of the ranks, does not refuse.

    Its p-value changes only where a Walsh average is passed, so it is asked between each two neighbours.
    """
    values = sample(n)
    rows, columns = np.triu_indices(n)
    averages = np.sort((values[rows] + values[columns]) / 2)
    sums = np.zeros(1, dtype=np.int32)
    for rank in range(1, n + 1):
        sums = np.concatenate([sums, sums + rank])  # of the ranks with a plus sign: every one of 2^n
    kept = []
    for low, high in itertools.pairwise(averages):
        moved = values - (low + high) / 2
        seen = int((np.abs(moved).argsort().argsort() + 1)[moved > 0].sum())
        p = 2 * min((sums <= seen).mean(), (sums >= seen).mean())
        if p > alpha:
            kept.append((low, high))
    return float(kept[0][0]), float(kept[-1][1])


def stalls(source: np.random.Generator) -> Iterator[Bar]:
    """The second treatment alone stalls in every fifth run."""
    before = np.exp(noise.independent(source, 1, 60, 0.01)[0])
    after = np.exp(noise.independent(source, 1, 60, 0.01)[0]) * np.where(source.random(60) < 0.2, 4.0, 1.0)
    found = stats.paired_ratio(before, after)
    apart = abs(np.log(found.mean_ratio / found.ratio))
    told = found.stalls.differ
    yield Bar(
        "stalls planted in B only: mean ≠ HL, and flagged",
        "mean, HL differ; flagged",
        f"mean {found.mean_ratio:.2f}, HL {found.ratio:.2f}; p = {found.stalls.p:.0e}",
        bool(apart > 0.05 and told and found.stalls.treatment > found.stalls.baseline),
    )
