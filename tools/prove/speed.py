"""Speed: ratios, intervals and rankings of up to a million measurements, each size in a process of its own."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from tools.prove.bar import Bar, at_most
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment, Measurement, Metric, Treatment, Trial

METRICS, ROUNDS, ITERATIONS = 10, 50, 10
SIZES = (2, 20, 200)  # treatments: 10^4, 10^5, 10^6 measurements
SECONDS, GIB = 10.0, 1.0
RECORDS = 8  # times what making the records takes, which is about SECONDS for the largest size on a quiet machine


def bars() -> Iterator[Bar]:
    for treatments in SIZES:
        with ProcessPoolExecutor(max_workers=1) as pool:
            making, seconds, peak = pool.submit(analysed, treatments).result()
        count = treatments * METRICS * ROUNDS * ITERATIONS
        allowed = max(SECONDS, RECORDS * making)  # on a machine whose CPUs others share, all takes longer
        yield at_most(f"{count:,} measurements: ratios, intervals, ranking", allowed, seconds, "s of CPU")
        yield at_most(f"{count:,} measurements: peak memory, data included", GIB, peak, "GiB")


def analysed(treatments: int) -> tuple[float, float, float]:
    """(CPU seconds of making the records and of their analysis, GiB that the process needed at most for both)."""
    clock = time.process_time()
    records = experiment(treatments)
    making = time.process_time() - clock
    clock = time.process_time()
    analysis = Analysis(records)
    found, ranked = analysis.comparisons, analysis.rankings
    seconds = time.process_time() - clock
    assert len(found) == METRICS * (treatments - 1)
    assert len(ranked) == (METRICS if treatments > 2 else 0)
    return making, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def experiment(treatments: int) -> Experiment:
    """Treatments of one layer that differ by up to 20 %, in boots that differ by 1 %."""
    source = np.random.default_rng(20261124)
    metrics = [Metric(f"spin.short.m{number}", "1/s", "higher") for number in range(METRICS)]
    names = [f"vm disk.cache=level{number}" for number in range(treatments)]
    effects = source.uniform(0, 0.2, treatments)
    trials = []
    for round in range(1, ROUNDS + 1):
        for position, number in enumerate(source.permutation(treatments), start=1):
            logs = source.normal(effects[number], 0.02, (ITERATIONS, METRICS)) + source.normal(0, 0.01, METRICS)
            trials += [
                Trial(
                    *(round, position, names[number], "spin", "short", iteration, "ok", 0.0, 1.0),
                    measurements=tuple(map(Measurement, metrics, np.exp(row).tolist())),
                )
                for iteration, row in enumerate(logs, start=1)
            ]
    plan = {"rounds": {"min": ROUNDS, "max": ROUNDS}, "precision": 0.02, "primary": [metrics[0].name]}
    return Experiment(
        *("speed", "speed", "local", "", 0.0, 1.0, "complete", plan, {}),
        treatments=tuple(Treatment(name, "vm", {"disk.cache": name}) for name in names),
        boots=(),
        trials=tuple(trials),
    )
