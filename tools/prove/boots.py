"""Boots are the unit: false positives by boot and pooled, planned iterations, warm-up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tools.prove.bar import Bar
from vmtax import stats

BOOTS, ITERATIONS = 8, 10  # of each side; five boots cannot give a signed-rank interval at 95 %, which takes six
BOOT_SD, ITERATION_SD = 0.01, 0.01
PILOT_BOOTS, PILOT_ITERATIONS = 6, 12  # two treatments in three rounds


def bars(experiments: int = 2000) -> Iterator[Bar]:
    random = np.random.default_rng(20130620)
    design = f"{BOOTS} boots × {ITERATIONS} iterations, boot sd {BOOT_SD:.0%}, iteration sd {ITERATION_SD:.0%}"
    differences = _boots(random, experiments, BOOTS) - _boots(random, experiments, BOOTS)
    by_boot = np.log(stats.reduce_iterations(np.exp(differences.reshape(-1, ITERATIONS)))).reshape(-1, BOOTS)
    yield _at_most(f"A/A by boot, {design}: false positives", _excluding_zero(by_boot), 0.065)
    pooled = _excluding_zero(differences.reshape(experiments, -1))
    yield Bar("control, iterations pooled as replicates", "> 20 %", f"{pooled:.1%}", pooled > 0.20)
    yield from _planned(random, experiments)
    white = random.normal(0, 0.01, (experiments, PILOT_BOOTS, PILOT_ITERATIONS))
    step = 0.05 * (np.arange(PILOT_ITERATIONS) < 3)
    pilot = f"{PILOT_BOOTS} pilot boots × {PILOT_ITERATIONS}"
    yield _at_most(f"warm-up found in white noise, {pilot}", np.mean([_warm_up(logs) != 0 for logs in white]), 0.05)
    yield _at_least(f"5 % of warm-up over 3 iterations found, {pilot}", [_warm_up(x + step) == 3 for x in white], 0.95)
    slope = np.linspace(0, 0.1, PILOT_ITERATIONS)
    yield _at_least("10 % of drift has no steady state", [_warm_up(logs + slope) is None for logs in white], 0.95)


def _boots(random: np.random.Generator, experiments: int, boots: int) -> stats.Vector:
    """Logs, shape (experiments, boots, ITERATIONS)."""
    between = random.normal(0, BOOT_SD, (experiments, boots, 1))
    return between + random.normal(0, ITERATION_SD, (experiments, boots, ITERATIONS))


def _excluding_zero(rows: stats.Vector) -> float:
    """The share of rows whose interval does not hold 0."""
    bounds = [stats.interval(row) for row in rows]
    return float(np.mean([bound is not None and not bound[0] <= 0 <= bound[1] for bound in bounds]))


def _planned(random: np.random.Generator, experiments: int) -> Iterator[Bar]:
    """What the interval's width loses by iterations planned from a pilot, against the best number there is."""
    boot_seconds, iteration_seconds, within = 10.0, 1.0, 0.02
    between = random.normal(0, BOOT_SD, (experiments, PILOT_BOOTS, 1))
    pilots = np.exp(between + random.normal(0, within, (experiments, PILOT_BOOTS, PILOT_ITERATIONS)))
    planned = [
        stats.iterations_per_boot(stats.variance_components(boots), iteration_seconds, boot_seconds) for boots in pilots
    ]
    price = {r: (boot_seconds + r * iteration_seconds) * (BOOT_SD**2 + within**2 / r) for r in range(1, 21)}
    loss = float(np.mean([np.sqrt(price[r] / min(price.values())) - 1 for r in planned]))
    yield _at_most("planned iterations: mean loss of width against the best number", loss, 0.10)


def _warm_up(logs: stats.Vector) -> int | None:
    return stats.steady_state(np.exp(logs).tolist()).warm_up


def _at_most(what: str, share: float, limit: float) -> Bar:
    return Bar(what, f"<= {limit:.1%}", f"{share:.1%}", bool(share <= limit))


def _at_least(what: str, outcomes: list[bool], limit: float) -> Bar:
    share = float(np.mean(outcomes))
    return Bar(what, f">= {limit:.1%}", f"{share:.1%}", share >= limit)
