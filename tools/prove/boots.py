"""Boots are the unit: false positives by boot and pooled, planned iterations, warm-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.prove.bar import Bar, above, at_least, at_most
from vmtax import stats

BOOTS, ITERATIONS = 8, 10  # of each side; five boots cannot give a signed-rank interval at 95 %, which takes six
BOOT_SD, ITERATION_SD = 0.01, 0.01
PILOT_BOOTS, PILOT_ITERATIONS = 6, 12  # two treatments in three rounds


def bars(experiments: int = 2000) -> Iterator[Bar]:
    random = np.random.default_rng(20130620)
    design = f"{BOOTS} boots × {ITERATIONS} iterations, boot sd {BOOT_SD:.0%}, iteration sd {ITERATION_SD:.0%}"
    sides = [_boots(random, experiments, BOOTS) for _ in range(2)]
    before, after = (stats.reduce_iterations(np.exp(side.reshape(-1, ITERATIONS))).reshape(-1, BOOTS) for side in sides)
    yield at_most(f"A/A by boot, {design}", 0.065, _excluding_zero(np.log(after) - np.log(before)))
    pooled = _excluding_zero((sides[1] - sides[0]).reshape(experiments, -1))
    yield above("control: the same, iterations pooled as replicates", 0.20, pooled)
    yield at_most("planned iterations: mean loss of width against the best number", 0.10, _loss(random, experiments))
    white = random.normal(0, 0.01, (experiments, PILOT_BOOTS, PILOT_ITERATIONS))
    step, slope = 0.05 * (np.arange(PILOT_ITERATIONS) < 3), np.linspace(0, 0.1, PILOT_ITERATIONS)
    pilot = f"{PILOT_BOOTS} pilot boots × {PILOT_ITERATIONS}"
    yield at_most(f"warm-up found in white noise, {pilot}", 0.05, _share(white, lambda found: found != 0))
    for boots, iterations in ((1, 12), (3, 12), (3, 30), (2, 40)):
        other = random.normal(0, 0.01, (experiments // 5, boots, iterations))
        name = f"warm-up found in white noise, {boots} pilot boots × {iterations}"
        yield at_most(name, 0.05, _share(other, lambda found: found != 0))
    skewed = random.gamma(2, 0.01, white.shape) + 0.5 * (random.random(white.shape) < 0.03)
    yield at_most(f"warm-up found in skewed noise with stalls, {pilot}", 0.07, _share(skewed, lambda found: found != 0))
    yield at_least("5 % of warm-up over 3 iterations found", 0.95, _share(white + step, lambda found: found == 3))
    yield at_least("10 % of drift has no steady state", 0.95, _share(white + slope, lambda found: found is None))


def _boots(random: np.random.Generator, experiments: int, boots: int) -> stats.Vector:
    """Logs, shape (experiments, boots, ITERATIONS)."""
    between = random.normal(0, BOOT_SD, (experiments, boots, 1))
    return between + random.normal(0, ITERATION_SD, (experiments, boots, ITERATIONS))


def _excluding_zero(rows: stats.Vector) -> float:
    """The share of rows whose interval does not hold 0."""
    bounds = [stats.interval(row) for row in rows]
    return float(np.mean([bound is not None and not bound[0] <= 0 <= bound[1] for bound in bounds]))


def _loss(random: np.random.Generator, experiments: int) -> float:
    """What the width of an interval loses by iterations planned from a pilot, against the best number there is."""
    boot_seconds, iteration_seconds, within = 10.0, 1.0, 0.02
    between = random.normal(0, BOOT_SD, (experiments, PILOT_BOOTS, 1))
    pilots = np.exp(between + random.normal(0, within, (experiments, PILOT_BOOTS, PILOT_ITERATIONS)))
    planned = [
        stats.iterations_per_boot(stats.variance_components(boots), iteration_seconds, boot_seconds) for boots in pilots
    ]
    price = {r: (boot_seconds + r * iteration_seconds) * (BOOT_SD**2 + within**2 / r) for r in range(1, 21)}
    return float(np.mean([np.sqrt(price[r] / min(price.values())) - 1 for r in planned]))


def _share(pilots: stats.Vector, wanted: Callable[[int | None], bool]) -> float:
    """Of the pilots, logs of shape (boots, iterations) each, whose warm-up is as wanted."""
    return float(np.mean([wanted(stats.steady_state(np.exp(logs)).warm_up) for logs in pilots]))
