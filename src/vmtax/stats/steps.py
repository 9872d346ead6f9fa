"""A figure from run to run: where it changed, how far it can have changed since, and its trend. Pure numbers.

The unit is the run: its level (`sessions.level`), a logarithm, in the order of time. What changes by itself from run to
run is estimated from the runs themselves, so a step is a change that is large compared with that. The two sides of a
step are compared by Student's t with their pooled deviation, at every place where a step can be, with Bonferroni's
correction for the places; then each part on its own (binary segmentation: Scott & Knott, Biometrics 30, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.stats.arrays import Floats, Vector, np
from vmtax.stats.interval import ALPHA

FEWEST_RUNS = 4  # of which one is new: three show how much the figure changes by itself


@dataclass(frozen=True, slots=True)
class LevelStep:
    """A place where the level of the runs changes."""

    place: int  # index of the first run after it, at least 1
    shift: float  # mean level after it - mean level before it, between the neighbouring steps
    p: float  # p-value, corrected for all places where it can be


@dataclass(frozen=True, slots=True)
class RunTrend:
    """A straight line through the levels."""

    slope: float  # change of the level per unit of time
    low: float  # of the 95 % interval of the slope
    high: float


def largest_step(logs: Floats) -> LevelStep | None:
    """The most probable step in levels of runs, shape `(n,)`; None: fewer than FEWEST_RUNS, or all are equal."""
    if (splits := _splits(_finite(logs))) is None:
        return None
    shifts, errors = splits
    from scipy.special import stdtr

    with np.errstate(divide="ignore"):
        sizes = np.where(errors > 0, np.abs(shifts) / errors, np.where(shifts != 0, np.inf, 0.0))
    best = int(sizes.argmax())
    p = 2 * float(stdtr(len(shifts) - 1, -sizes[best])) * len(shifts)
    return LevelStep(best + 1, float(shifts[best]), min(1.0, p))


def steps(logs: Floats, alpha: float = ALPHA) -> tuple[LevelStep, ...]:
    """All steps with a p-value of `alpha` or less, in the order of time. With a single look, runs that do not change
    have one in at most that share of cases.
    """
    values = _finite(logs)
    p_values = {step.place: step.p for step in _within(values, 0, alpha)}
    ends = [0, *sorted(p_values), len(values)]
    return tuple(
        LevelStep(place, float(values[place:after].mean() - values[before:place].mean()), p_values[place])
        for before, place, after in zip(ends, ends[1:], ends[2:], strict=False)
    )


def _within(values: Vector, first: int, alpha: float) -> Iterator[LevelStep]:
    """Steps in a part that begins at index `first`, with their indices in the whole."""
    step = largest_step(values)
    if step is None or step.p > alpha:
        return
    yield LevelStep(first + step.place, step.shift, step.p)
    yield from _within(values[: step.place], first, alpha)
    yield from _within(values[step.place :], first + step.place, alpha)


def most_change(logs: Floats, alpha: float = ALPHA) -> float | None:
    """How far the level can have changed in one step anywhere among these runs, in log, above 0.

    The largest of the bounds of the shift at each place. That of the true place is among them, so if there is one step,
    it is smaller in at least `1 - alpha` of cases. None for fewer than FEWEST_RUNS, and if all are equal.
    """
    if (splits := _splits(_finite(logs))) is None:
        return None
    shifts, errors = splits
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(shifts) - 1, 1 - alpha))
    return float((np.abs(shifts) + quantile * errors).max())


def trend(times: Floats, logs: Floats, alpha: float = ALPHA) -> RunTrend | None:
    """Least squares through `logs` at `times`, both of shape `(n,)`; None for fewer than FEWEST_RUNS, and if all are of
    one time.
    """
    values, moments = _finite(logs), _finite(times)
    count = len(values)
    centred = moments - moments.mean() if count else moments
    spread = float((centred**2).sum())
    if count < FEWEST_RUNS or not spread > 0:
        return None
    from scipy.special import stdtrit

    slope = float((centred * values).sum()) / spread
    left = values - values.mean() - slope * centred
    error = math.sqrt(float((left**2).sum()) / (count - 2) / spread)
    width = float(stdtrit(count - 2, 1 - alpha / 2)) * error
    return RunTrend(slope, slope - width, slope + width)


def _splits(values: Vector) -> tuple[Vector, Vector] | None:
    """(shift, its standard error) for each place of a step, shape `(n - 1,)`; the deviation is pooled over both
    sides. None: fewer than FEWEST_RUNS, or all are equal.
    """
    count = len(values)
    if count < FEWEST_RUNS:
        return None
    before = np.arange(1, count)
    after = count - before
    centred = values - values[0]
    sums, squares = np.cumsum(centred)[:-1], np.cumsum(centred**2)[:-1]
    total, total_squares = centred.sum(), (centred**2).sum()
    inside = (squares - sums**2 / before) + (total_squares - squares - (total - sums) ** 2 / after)
    pooled = np.maximum(inside, 0.0) / (count - 2)
    errors = np.sqrt(pooled * (1 / before + 1 / after))
    return ((total - sums) / after - sums / before, errors) if errors.max() > 0 else None


def _finite(numbers: Floats) -> Vector:
    values = np.asarray(numbers, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("levels of runs and their times are finite, in one dimension")
    return values
