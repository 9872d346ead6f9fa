"""Machines that are never quiet: log run times of experiments, shape `(experiments, slots)`, slots in order of time.

They are the rows of the method's design table: what a real host does while nothing about the treatments differs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Matrix]

RUN = 0.01  # sd of one run, where something else is the point
KEEP, STEP = 0.98, 0.005  # of the walk: AR(1), so its sd is 2.5 %


def independent(source: np.random.Generator, experiments: int, slots: int, sd: float = 0.03) -> Matrix:
    return source.normal(0, sd, (experiments, slots))


def walk(source: np.random.Generator, experiments: int, slots: int) -> Matrix:
    """A machine whose speed wanders: AR(1)."""
    steps = source.normal(0, STEP, (experiments, slots))
    steps[:, 0] = source.normal(0, STEP / np.sqrt(1 - KEEP**2), experiments)
    for slot in range(1, slots):
        steps[:, slot] += KEEP * steps[:, slot - 1]
    return steps + independent(source, experiments, slots, RUN)


def drift(source: np.random.Generator, experiments: int, slots: int) -> Matrix:
    """10 % slower from the first run to the last."""
    return independent(source, experiments, slots) + np.linspace(0, np.log(1.1), slots)


def first_run_penalty(source: np.random.Generator, experiments: int, slots: int) -> Matrix:
    """The first of every two runs is 1 % slower, on a machine that wanders."""
    return walk(source, experiments, slots) + 0.01 * (np.arange(slots) % 2 == 0)


def period_2(source: np.random.Generator, experiments: int, slots: int) -> Matrix:
    return independent(source, experiments, slots, RUN) + 0.02 * (np.arange(slots) % 2 == 0)


def period_4(source: np.random.Generator, experiments: int, slots: int) -> Matrix:
    return independent(source, experiments, slots, RUN) + 0.02 * np.isin(np.arange(slots) % 4, (0, 3))


def walk_with_outliers(source: np.random.Generator, experiments: int, slots: int) -> Matrix:
    """5 % of the runs take twice as long."""
    doubled = source.random((experiments, slots)) < 0.05
    return walk(source, experiments, slots) + np.log(2) * doubled


ROWS: dict[str, Noise] = {
    "independent 3 % noise": independent,
    "AR(1) walk": walk,
    "10 % linear drift": drift,
    "walk + 1 % first-run penalty": first_run_penalty,
    "period 2": period_2,
    "period 4": period_4,
}


def random_order(source: np.random.Generator, times: Matrix) -> Matrix:
    """Log ratios of B to A where the order within each pair of slots is drawn; shape `(experiments, pairs)`."""
    pairs = times.reshape(len(times), -1, 2)
    return (pairs[:, :, 1] - pairs[:, :, 0]) * source.choice([-1.0, 1.0], pairs.shape[:2])


def always_a_first(times: Matrix) -> Matrix:
    """ABAB…"""
    return times[:, 1::2] - times[:, ::2]


def blocks(times: Matrix) -> Matrix:
    """AAA…BBB."""
    half = times.shape[1] // 2
    return times[:, half:] - times[:, :half]
