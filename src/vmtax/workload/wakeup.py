"""Wake-up latency: stress-ng's cyclic sleeps under SCHED_FIFO, and measures how late it wakes up.

Like `cyclictest --default-system`, it leaves /dev/cpu_dma_latency alone: idle states stay allowed, and waking from them
counts. Forbidding them would change the host, and is impossible from inside a guest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload import stress_ng
from vmtax.workload.base import Command, Measure, Parameters
from vmtax.workload.output import BadOutput, only, within
from vmtax.workload.site import Site

STRESSOR = "cyclic"
NANOSECONDS = 10**9
MINIMUM_TAIL = 10  # samples beyond a percentile; with fewer, it is not reported (METHOD.md)
MEAN = Metric("wakeup.mean_seconds", "s", "lower")
PERCENTILES = {"p50": "50.00", "p99": "99.00", "p999": "99.90"}  # the share as stress-ng prints it
METRICS = {name: Metric(f"wakeup.{name}_seconds", "s", "lower") for name in PERCENTILES}


class WakeupParameters(Parameters):
    seconds: float = Field(3.0, ge=1, le=600, description="run length, in seconds")
    interval_microseconds: int = Field(
        1000,
        ge=100,
        le=1_000_000,
        description="length of each sleep, in microseconds; longer sleeps reach deeper idle states",
    )
    percentiles: tuple[Literal["p50", "p99", "p999"], ...] = Field(
        ("p50", "p99"),
        min_length=1,
        description="percentiles to report; 10 wake-ups must lie beyond each: p99 needs 1,000, p999 10,000",
    )


class Wakeup(Command[WakeupParameters]):
    """Runs one instance: two would also measure how the scheduler lets them interfere."""

    name = "wakeup"
    describe = "wake-up latency: how late a high-priority thread runs after a sleep, mean and percentiles (stress-ng)"
    tool = "stress-ng"
    title = "Wake-up"
    packages = (stress_ng.PACKAGE,)
    repeats_at_once = True
    doubts = stress_ng.DOUBTS
    headline = METRICS["p50"].name
    measures: ClassVar = {
        MEAN.name: Measure(
            "mean time from the end of a sleep until the thread runs", "mean latency", "mean wake-up latency"
        ),
        METRICS["p50"].name: Measure(
            "half of the wake-ups took at most this long, from the end of the sleep until the thread runs",
            "p50 latency",
            "median wake-up latency",
        ),
        METRICS["p99"].name: Measure(
            "99 of 100 wake-ups took at most this long", "p99 latency", "99th percentile of wake-up latency"
        ),
        METRICS["p999"].name: Measure(
            "999 of 1,000 wake-ups took at most this long", "p999 latency", "99.9th percentile of wake-up latency"
        ),
    }
    parameters_type = WakeupParameters

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return (*(METRICS[name] for name in PERCENTILES if name in self.parameters.percentiles), MEAN)

    def command(self, site: Site, case: str) -> Sequence[str]:
        sleep = 1000 * self.parameters.interval_microseconds
        samples = int(self.parameters.seconds * NANOSECONDS / sleep) + 1
        how = ("--cyclic-policy", "fifo", "--cyclic-prio", "1", "--cyclic-sleep", str(sleep))
        return stress_ng.command(STRESSOR, 1, self.parameters.seconds, *how, "--cyclic-samples", str(samples))

    def seconds(self, case: str) -> float:
        return self.parameters.seconds

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        stress_ng.passed(STRESSOR, output)
        mean = only(r"cyclic: +mean: ([0-9.]+) ns", output)
        bounds = re.search(r"cyclic: +min: (\d{1,15}) ns, max: (\d{1,15}) ns", output)
        if mean is not None and bounds is not None:
            within("cyclic's mean", float(mean[1]), float(bounds[1]), float(bounds[2]), " ns")
        if mean is None or float(mean[1]) <= 0:
            raise BadOutput("stress-ng prints no 'mean: N ns' for cyclic, which takes the right to SCHED_FIFO")
        reached = dict(self.latencies(case, output))
        found = [
            Measurement(METRICS[name], reached[share])
            for name in self.parameters.percentiles
            if (share := _share(PERCENTILES[name])) in reached
        ]
        return (*found, Measurement(MEAN, float(mean[1]) * stress_ng.NANOSECOND))

    def operations(self, case: str, output: str) -> float | None:
        return _samples(output)

    def own_seconds(self, case: str, output: str) -> float | None:
        return stress_ng.own_seconds(STRESSOR, output)

    def latencies(self, case: str, output: str) -> tuple[tuple[float, float], ...]:
        return tuple(_supported(output))


def _supported(output: str) -> Iterator[tuple[float, float]]:
    """(share, seconds) of each percentile that enough samples lie beyond. Raises BadOutput."""
    most = 1 - MINIMUM_TAIL / _samples(output)
    for share, nanoseconds in re.findall(r"cyclic: +(\d\d?\.\d\d)%: +(\d{1,15}) ns", output):
        if _share(share) <= round(most, 6):
            yield _share(share), int(nanoseconds) * stress_ng.NANOSECOND


def _share(percent: str) -> float:
    return round(float(percent) / 100, 6)


def _samples(output: str) -> float:
    match = only(r"cyclic: sched SCHED_FIFO: \d+ ns delay, (\d{1,15}) samples", output)
    if match is None or int(match[1]) == 0:
        raise BadOutput("stress-ng prints no 'N samples' for cyclic under SCHED_FIFO")
    return float(match[1])
