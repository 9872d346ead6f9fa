"""Detect implausible results: faster than what they depend on can be (METHOD.md, guards). Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vmtax.core.layers import LAYERS
from vmtax.core.notices import Notice
from vmtax.core.records import Metric, Treatment
from vmtax.core.units import format_value
from vmtax.design.disk import CacheMode
from vmtax.stats import PairedRatio
from vmtax.workload.fio import Disk

MEMORY = "memory.stream.bytes_per_second"
LARGER = "Repeat with a workloads.disk.size well above the memory of guest and host"
_UNSAFE = " and ".join(mode for mode in CacheMode if mode.ignores_flushes)
# What to do if LARGER does not suffice, by a part of the metric's name; the first match applies.
CURES = {
    "fsync": f"See that flushes are passed on, which disk.cache={_UNSAFE} does not do",
    "write": f"{LARGER}; the pattern randwrite-4k-fsync shows durable writes",
}


@dataclass(frozen=True, slots=True)
class Rates:
    """One metric of one treatment."""

    treatment: Treatment
    numbers: Mapping[int, float]  # round -> value in the metric's unit


def notices(
    metric: Metric, sides: tuple[Rates, Rates], result: PairedRatio | None, memory: float | None
) -> Iterator[Notice]:
    """At most one notice: a disk that is faster through an additional layer, or than memory, was answered by a cache.

    `sides`: baseline and treatment. `memory`: the host's memory.stream in B/s in the same run; None if it was not
    measured. A byte read from a disk is written to memory, and stream counts the reads and writes of all CPUs, so no
    device can be faster.
    """
    if metric.workload != Disk.name:
        return
    baseline, treatment = sides
    cure = next((cure for part, cure in CURES.items() if part in metric.name), LARGER)
    below, above = baseline.treatment, treatment.treatment
    names = f"{above.name} is faster than {below.name} below it"
    if result is not None and below.layer in [layer.name for layer in LAYERS[above.layer].below]:
        if _faster(metric, result.low, result.high):
            yield Notice("cached", f"{names}, so a cache or read-ahead took part", cure)
            return
        if result.low is None and _faster(metric, result.ratio, result.ratio):
            yield Notice("perhaps-cached", f"{names}, but no interval shows it")
            return
    if memory is None or metric.measure != "bytes_per_second":
        return
    for side in (treatment, baseline):
        rate = statistics.median(side.numbers.values()) if side.numbers else 0.0
        if rate > memory:
            yield Notice(
                "cached",
                f"The disk of {side.treatment.name} gives {format_value(rate, 'B/s')}, which is more than the host's"
                f" memory moves ({format_value(memory, 'B/s')}, memory.stream), and no device does that",
                cure,
                treatments=(side.treatment.name,),
            )
            return


def _faster(metric: Metric, low: float | None, high: float | None) -> bool:
    if low is None or high is None:
        return False
    return low > 1 if metric.better == "higher" else high < 1
