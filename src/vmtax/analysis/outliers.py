"""Values far from their treatment's other values, with the state of the host at that time. None is ever left out. Pure.

Far means outside Tukey's fences, 1.5 interquartile ranges below or above the quartiles, on logarithms.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Disturbance, Metric, Trial

FENCE = 1.5  # interquartile ranges
FEWEST = 6  # values that a treatment needs before one of them can be called far
Kind = tuple[str, str, str]  # treatment, workload, case: typical values are those of all three together


@dataclass(frozen=True, slots=True)
class Gauge:
    """A quantity that the host reports for the time of a trial."""

    name: str  # for people, too
    of: Callable[[Disturbance], float | None]  # its value, in the unit that GAUGES names; None: not reported
    floor: float  # in that unit: smaller differences from the typical value mean nothing
    both: bool = False  # values below the typical one count, too


@dataclass(frozen=True, slots=True)
class Reading:
    """One gauge during one trial."""

    gauge: str  # its name
    value: float | None  # in the gauge's unit; None: the host does not report it
    typical: float | None  # the median over the treatment's trials of the same workload and case; None as `value`
    stands_out: bool  # whether the value is far from the typical one


@dataclass(frozen=True, slots=True)
class Far:
    """One value outside the fences."""

    metric: Metric  # the one that it is a value of
    value: float  # in the metric's unit
    median: float  # of the treatment's values

    @property
    def decades(self) -> float:
        """The distance in either direction."""
        return abs(math.log10(self.value / self.median))


@dataclass(frozen=True, slots=True)
class Outlier:
    """A trial with one or more values outside the fences."""

    trial: Trial  # the one that has them
    emulated: bool  # whether its treatment is
    values: tuple[Far, ...]  # farthest first
    readings: tuple[Reading, ...]  # in the order of GAUGES; empty if the host was not read

    @property
    def causes(self) -> tuple[str, ...]:
        """The gauges with unusual values; these need not be the cause, and a cause need not show in them."""
        return tuple(reading.gauge for reading in self.readings if reading.stands_out)


@dataclass(frozen=True, slots=True)
class Outliers:
    """All outliers of a run."""

    found: tuple[Outlier, ...]  # farthest first
    values: int  # number of values that were checked
    unreported: tuple[str, ...]  # gauges that the host reports for no trial

    @property
    def host_tells(self) -> bool:
        return len(self.unreported) < len(GAUGES)

    @property
    def explained(self) -> int:
        """How many have an unusual gauge."""
        return sum(bool(outlier.causes) for outlier in self.found)


def _share(name: str) -> Callable[[Disturbance], float | None]:
    """Seconds of something per second."""

    def share(disturbance: Disturbance) -> float | None:
        seconds = getattr(disturbance, name)
        return seconds / disturbance.wall_seconds if seconds is not None and disturbance.wall_seconds > 0 else None

    return share


# In CPUs or as shares of the time, the frequency in hertz, throttles as a number.
GAUGES = (
    Gauge("steal", _share("steal_seconds"), 0.02),
    Gauge("CPU pressure", _share("cpu_pressure_seconds"), 0.02),
    Gauge("disk pressure", _share("io_pressure_seconds"), 0.02),
    Gauge("memory pressure", _share("memory_pressure_seconds"), 0.02),
    Gauge("busy CPUs", _share("busy_seconds"), 0.1),
    Gauge("frequency", lambda d: d.mean_frequency_hz, 2e7, both=True),
    Gauge("throttles", lambda d: d.throttles, 0.5),
)


def outliers(analysis: Analysis) -> Outliers:
    """Every trial with a value outside the fences of its treatment's values."""
    values: dict[tuple[Metric, str], list[tuple[int, float]]] = defaultdict(list)
    trials = analysis.trials
    for index, trial in enumerate(trials):
        for measurement in trial.measurements if trial.status == "ok" else ():
            if measurement.value > 0:
                values[measurement.metric, trial.treatment].append((index, measurement.value))
    judged = {side: found for side, found in values.items() if len(found) >= FEWEST}
    far: dict[int, list[Far]] = defaultdict(list)
    for (metric, _), found in judged.items():
        for index, one in _far(metric, found):
            far[index].append(one)
    gauges = _Gauges(trials)
    rows = [
        Outlier(
            trial := trials[index],
            trial.treatment in analysis.emulated,
            tuple(sorted(mine, key=lambda one: -one.decades)),
            gauges.readings(trial),
        )
        for index, mine in far.items()
    ]
    rows.sort(key=lambda outlier: -outlier.values[0].decades)
    return Outliers(tuple(rows), sum(map(len, judged.values())), gauges.unreported)


def fences(values: Iterable[float]) -> tuple[float, float]:
    """The limits beyond which a value is far from the others. Needs at least two values."""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low - FENCE * (high - low), high + FENCE * (high - low)


def _far(metric: Metric, found: Sequence[tuple[int, float]]) -> Iterator[tuple[int, Far]]:
    low, high = fences(math.log(value) for _, value in found)
    median = statistics.median(value for _, value in found)
    for index, value in found:
        if not low <= math.log(value) <= high:
            yield index, Far(metric, value, median)


class _Gauges:
    """Typical values of each kind of trial, computed when first needed."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.disturbances: dict[Kind, list[Disturbance]] = defaultdict(list)
        reported: set[str] = set()
        for trial in trials:
            if trial.disturbance is not None:
                self.disturbances[_kind(trial)].append(trial.disturbance)
                reported |= {
                    gauge.name
                    for gauge in GAUGES
                    if gauge.name not in reported and gauge.of(trial.disturbance) is not None
                }
        self.unreported = tuple(gauge.name for gauge in GAUGES if gauge.name not in reported)
        self.known: dict[Kind, Mapping[str, list[float]]] = {}

    def readings(self, trial: Trial) -> tuple[Reading, ...]:
        if trial.disturbance is None:
            return ()
        kind = _kind(trial)
        if kind not in self.known:
            self.known[kind] = {
                gauge.name: [value for d in self.disturbances[kind] if (value := gauge.of(d)) is not None]
                for gauge in GAUGES
            }
        return tuple(_reading(gauge, gauge.of(trial.disturbance), self.known[kind][gauge.name]) for gauge in GAUGES)


def _kind(trial: Trial) -> Kind:
    return trial.treatment, trial.workload, trial.case


def _reading(gauge: Gauge, value: float | None, usual: Sequence[float]) -> Reading:
    if value is None:
        return Reading(gauge.name, None, None, False)
    typical = statistics.median(usual)
    more = value - typical
    stands_out = abs(more) > gauge.floor and (more > 0 or gauge.both)
    if stands_out and len(usual) > 1:
        low, high = fences(usual)
        stands_out = not low <= value <= high
    return Reading(gauge.name, value, typical, stands_out)
