"""Ratios of two figures of the same disk in the same boot: the gain from queue depth, the loss of the first write.
Pure.

Whether one disk gains more than another is the interaction of a factor with the queue depth: each treatment's gain is
compared with that of its layer's first treatment, round by round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.comparisons import Numbers, Overhead, as_overhead
from vmtax.analysis.rankings import FEWEST
from vmtax.core.records import Treatment
from vmtax.design.topology import groups, guest_count
from vmtax.stats.arrays import np


@dataclass(frozen=True, slots=True)
class Pair:
    """Names of two metrics of one boot, both better when higher."""

    words: str  # for people
    upper: str  # name of the metric that is divided
    lower: str  # name of the metric that it is divided by


PAIRS = (
    *(
        Pair(f"queue depth 32 against 1, 4 KiB random {words}", f"disk.{case}-qd32.iops", f"disk.{case}-qd1.iops")
        for words, case in (("reads", "randread-4k"), ("writes", "randwrite-4k"))
    ),
    *(
        Pair(f"first write against rewrite{words}", f"disk.{case}.iops", f"disk.{case}.rewrite_iops")
        for words, case in (("", "first-write-64k"), (", 4 KiB", "first-write-4k"))
    ),
)


@dataclass(frozen=True, slots=True)
class Gain:
    """The ratio of two figures of the same disk in the same boot."""

    pair: Pair
    treatment: str  # name of the treatment
    layer: str
    side: str  # `side` of the treatment
    ratio: float  # upper / lower: exp of the Hodges-Lehmann estimate of its logarithm over rounds
    low: float | None  # lower end of the ratio's interval; None: too few rounds
    high: float | None  # upper end of the ratio's interval
    rounds: int  # rounds in which the boot has both figures
    first: str | None  # name of the treatment whose ratio this one is compared with; None: this is that treatment, the
    # first of its layer
    less: Overhead | None  # how much smaller this ratio is than that of `first`, as a fraction, over the rounds that
    # both have; None: there is no such round, or `first` is None
    count: int = 1  # machines that work at once in the treatment


def gains(treatments: Sequence[Treatment], numbers: Numbers, alpha: float) -> tuple[Gain, ...]:
    """Pair by pair, for every layer of at least three treatments with the same number of machines; in their order."""
    by_name = {(metric.name, treatment): rounds for (metric, treatment), rounds in numbers.items()}
    fields = groups(treatments)
    return tuple(
        gain
        for pair in PAIRS
        for members in fields.values()
        if len(members) >= FEWEST
        for gain in _field(pair, members, by_name, alpha)
    )


def _field(
    pair: Pair, members: list[Treatment], by_name: Mapping[tuple[str, str], Mapping[int, float]], alpha: float
) -> Iterator[Gain]:
    ratios: dict[str, dict[int, float]] = {}
    for treatment in members:
        upper, lower = (by_name.get((name, treatment.name), {}) for name in (pair.upper, pair.lower))
        logs = {number: math.log(upper[number] / lower[number]) for number in upper.keys() & lower.keys()}
        if logs:
            ratios[treatment.name] = logs
    first = next(iter(ratios), None)
    for treatment in members:
        own = ratios.get(treatment.name)
        if own is None or first is None:
            continue
        less = None
        if treatment.name != first:
            shared = {number: own[number] - ratios[first][number] for number in own.keys() & ratios[first].keys()}
            less = as_overhead("higher", *_interval(shared, alpha)) if shared else None
        yield Gain(
            pair,
            treatment.name,
            treatment.layer,
            treatment.side,
            *_interval(own, alpha),
            len(own),
            None if treatment.name == first else first,
            less,
            guest_count(treatment),
        )


def _interval(logs: Mapping[int, float], alpha: float) -> tuple[float, float | None, float | None]:
    """The ratio, with its limits if there are enough rounds."""
    values = np.array([logs[number] for number in sorted(logs)])
    try:
        estimate, low, high = stats.log_ratio_interval(values, alpha)
    except stats.TooFewRounds:
        return math.exp(stats.hodges_lehmann(values)), None, None
    return math.exp(estimate), math.exp(low), math.exp(high)
