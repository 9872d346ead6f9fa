"""Several machines that do the same work at the same time: their total, and how evenly they share it. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vmtax.core.layers import LAYERS
from vmtax.core.records import Boot, Comparison, Experiment, Metric, Treatment, Trial
from vmtax.design.guest import COUNT, OVERCOMMIT
from vmtax.design.iterations import RATES, Case, Schedule
from vmtax.design.topology import Worked, machines_at_once, overlap

TAIL = "p99_seconds"
# Names of a trial's readings.
STEAL, SOFT_IRQ, BEYOND = "clock.steal_seconds", "clock.soft_irq", "memory.beyond_bytes"


@dataclass(frozen=True, slots=True)
class Each:
    """The results of one of several machines; medians over rounds."""

    value: float  # in the metric's unit
    tail: float | None  # seconds within which 99 of 100 operations finished; None: not measured
    steal: float | None  # CPUs that it wanted and did not get, on average; None: not counted by its kernel
    soft_irq: float | None  # CPUs used by its kernel's soft interrupts, on average; None: not read
    beyond: float | None  # bytes of its hypervisor beyond the guest's memory; None: not read

    def lacking(self, emulated: bool) -> float | None:
        """Its `steal`; None also if it is emulated and reports none, because TCG has no clock for it."""
        return None if emulated and not self.steal else self.steal


@dataclass(frozen=True, slots=True)
class AtOnce:
    """One figure of one treatment with several machines: a rate or, at a fixed rate, the latency of 99 of 100."""

    treatment: Treatment
    metric: Metric
    each: Mapping[str, Each]  # by machine
    together: float  # median over rounds of the machines' sum; for latencies, of the worst machine
    alone: float | None  # of the treatment with one machine and otherwise equal levels; None: not measured
    # Jain's index of rates, median over rounds; 1 is even, 1/n means that one machine has everything
    fairness: float | None
    overlap: float  # the smallest share of the time that counts in which all machines worked
    host_cpus: float | None  # busy CPUs of the host under test, on average; None: not read

    @property
    def share_of_ideal(self) -> float | None:
        """The total as a share of the sum of the machines' rates alone; for latencies, alone as a share of together.

        None without `alone`.
        """
        if self.alone is None:
            return None
        if self.metric.better == "lower":
            return self.alone / self.together
        return self.together / (self.alone * len(self.each))

    def total(self, emulated: bool) -> Each:
        """All machines together: sums of what is known of them; the worst tail, because the percentile of all cannot
        be computed from theirs.
        """
        every = self.each.values()
        return Each(
            self.together,
            max((each.tail for each in every if each.tail is not None), default=None),
            _sum(each.lacking(emulated) for each in every),
            _sum(each.soft_irq for each in every),
            _sum(each.beyond for each in every),
        )


@dataclass(frozen=True, slots=True)
class LastReady:
    """When the last of several guests that were started at the same time was ready; medians over rounds."""

    treatment: Treatment
    count: int  # guests that were started
    first: float  # seconds from its launch until the first was ready
    last: float  # the same of the last
    alone: float | None  # of a guest that is started alone

    @property
    def share_of_ideal(self) -> float | None:
        """The time of one alone as a share of theirs; None without `alone`."""
        return None if self.alone is None else self.alone / self.last


@dataclass(frozen=True, slots=True)
class Scaling:
    """The total rates of one layer's machines, as multiples of one machine's."""

    layer: str  # its name
    times: Mapping[int, float]  # number of machines -> multiple, of one machine 1; rising numbers
    emulated: bool  # whether any of its treatments is


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def against_host(
    comparisons: Iterable[Comparison], treatments: Iterable[Treatment]
) -> Mapping[tuple[Metric, str], Comparison]:
    """(metric, treatment) -> its comparison with the host, of those that have rounds."""
    layers = {treatment.name: treatment.layer for treatment in treatments}
    return {
        (one.metric, one.treatment): one
        for one in comparisons
        if one.rounds and layers[one.baseline] == "host" != layers[one.treatment]
    }


def fairness(rates: Sequence[float]) -> float:
    """(sum x)² / (n · sum x²), between 1/n and 1 (Jain, Chiu and Hawe 1984, DEC-TR-301); 1 if all are 0."""
    most = max(rates)
    if most <= 0:
        return 1.0
    shares = [rate / most for rate in rates]  # so that no square overflows or underflows
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def at_once(experiment: Experiment, schedules: Mapping[Case, Schedule]) -> tuple[AtOnce, ...]:
    """The first figure of every case of every treatment with several machines, in the order of treatments and cases.

    If one machine failed, the execution counts for none: the others had more of the host.

    schedules: for a run that planned its iterations; its warm-up does not count
    """
    several = _several(experiment)
    if not several:
        return ()
    rates = _rates(
        trial
        for trial in experiment.trials
        if (planned := schedules.get((trial.workload, trial.case))) is None or planned.counts(trial.iteration)
    )
    return tuple(
        _of(treatment, metric, whole, _alone(treatment, metric, experiment.treatments, rates))
        for treatment in several
        for metric, executions in _first_of_cases(rates.get(treatment.name, {}))
        if (whole := {at: done for at, done in executions.items() if len(done) == machines_at_once(treatment)})
    )


def scaling(rates: Sequence[AtOnce], emulated: Collection[str]) -> list[Scaling]:
    """For each layer, the first configurations that differ only in the number of machines; `rates`: of one metric."""
    lines = []
    for layer in LAYERS:
        here = [rate for rate in rates if rate.treatment.layer == layer and rate.alone]
        alike = [rate for rate in here if _others(rate) == _others(here[0])]
        times = {1: 1.0, **{len(rate.each): rate.together / rate.alone for rate in alike if rate.alone}}
        if alike:
            is_emulated = any(rate.treatment.name in emulated for rate in alike)
            lines.append(Scaling(layer, dict(sorted(times.items())), is_emulated))
    return lines


def _others(rate: AtOnce) -> dict[str, str]:
    side = {"side": rate.treatment.side}
    return side | {factor: level for factor, level in rate.treatment.levels.items() if factor != COUNT.name}


def last_ready(experiment: Experiment) -> tuple[LastReady, ...]:
    """One for each treatment with several guests, in their order; not for nested guests on emulated KVM, which boot in
    turn.
    """
    # Without machines that only carry others
    measured = {(trial.treatment, trial.machine) for trial in experiment.trials}
    boots: dict[str, dict[int, dict[str, Boot]]] = defaultdict(lambda: defaultdict(dict))
    in_turn = {boot.treatment for boot in experiment.boots if boot.emulated and boot.path.count("/") > 1}
    for boot in experiment.boots:
        if (boot.treatment, boot.path) in measured and boot.treatment not in in_turn:
            boots[boot.treatment][boot.round][boot.path] = boot
    found = []
    for treatment in _several(experiment):
        rounds = [list(each.values()) for each in boots.get(treatment.name, {}).values()]
        whole = [[boot.ready_seconds for boot in each] for each in rounds if len(each) == machines_at_once(treatment)]
        if whole:
            alone = [
                boot.ready_seconds
                for other in _single(treatment, experiment.treatments)
                for each in boots.get(other.name, {}).values()
                for boot in each.values()
            ]
            first, last = (statistics.median(map(end, whole)) for end in (min, max))
            found.append(LastReady(treatment, len(whole[0]), first, last, statistics.median(alone) if alone else None))
    return tuple(found)


def _several(experiment: Experiment) -> list[Treatment]:
    """The treatments with several machines, without their A/A."""
    return [t for t in experiment.treatments if t.repeats is None and machines_at_once(t) not in (None, 1)]


@dataclass(slots=True)
class _Execution:
    """One execution of a case on all machines of a treatment."""

    values: dict[str, float] = field(default_factory=dict)  # of one metric, by machine
    trials: dict[str, Trial] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)


_Executions = dict[tuple[int, int], _Execution]  # by round and iteration
_Rates = dict[str, dict[Metric, _Executions]]  # by treatment


def _rates(trials: Iterable[Trial]) -> _Rates:
    rates: _Rates = defaultdict(lambda: defaultdict(lambda: defaultdict(_Execution)))
    for trial in trials:
        found = trial.measurements if trial.status == "ok" else ()
        are_rates = [measurement for measurement in found if measurement.metric.unit in RATES]
        for measurement in are_rates or found:
            if are_rates or measurement.metric.measure == TAIL:
                execution = rates[trial.treatment][measurement.metric][trial.round, trial.iteration]
                execution.values[trial.machine], execution.trials[trial.machine] = measurement.value, trial
    return rates


def _first_of_cases(rates: Mapping[Metric, _Executions]) -> Iterator[tuple[Metric, _Executions]]:
    """Operations per second; bytes per second that express the same are left out."""
    cases = set()
    for metric, executions in rates.items():
        if (metric.workload, metric.case) not in cases:
            cases.add((metric.workload, metric.case))
            yield metric, executions


def _of(treatment: Treatment, metric: Metric, whole: _Executions, alone: float | None) -> AtOnce:
    """`whole`: the executions in which every machine has a result."""

    is_rate = metric.better == "higher"

    def over_rounds(read: Callable[[_Execution], float | None]) -> float | None:
        return median_over_rounds({at: value for at, done in whole.items() if (value := read(done)) is not None})

    def of_machine(name: str) -> Each:
        value = over_rounds(lambda done: done.values[name])
        return Each(
            value or 0.0,
            over_rounds(lambda done: _tail(done.trials[name])),
            over_rounds(lambda done: cpus(done.trials[name], STEAL)),
            over_rounds(lambda done: cpus(done.trials[name], SOFT_IRQ)),
            over_rounds(lambda done: done.trials[name].readings.get(name, {}).get(BEYOND)),
        )

    return AtOnce(
        treatment,
        metric,
        {name: of_machine(name) for name in sorted(next(iter(whole.values())).values)},
        over_rounds(lambda done: (math.fsum if is_rate else max)(done.values.values())) or 0.0,
        alone,
        over_rounds(lambda done: fairness(list(done.values.values()))) if is_rate else None,
        min(overlap(map(Worked.of, done.trials.values())) for done in whole.values()),
        over_rounds(lambda done: _busy(next(iter(done.trials.values())))),
    )


def _tail(trial: Trial) -> float | None:
    return next((each.value for each in trial.measurements if each.metric.measure == TAIL), None)


def cpus(trial: Trial, reading: str) -> float | None:
    """A reading of core-seconds as a number of CPUs, on average."""
    seconds = trial.readings.get(trial.machine, {}).get(reading)
    return None if seconds is None or trial.wall_seconds <= 0 else seconds / trial.wall_seconds


def _busy(trial: Trial) -> float | None:
    found = trial.disturbance
    return found.busy_seconds / found.wall_seconds if found and found.wall_seconds > 0 else None


def median_over_rounds(values: Mapping[tuple[int, int], float]) -> float | None:
    """The median over rounds of each round's median, because the boot is the unit; None if there is no value."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for (number, _), value in values.items():
        rounds[number].append(value)
    return statistics.median(map(statistics.median, rounds.values())) if rounds else None


def _alone(treatment: Treatment, metric: Metric, others: Iterable[Treatment], rates: _Rates) -> float | None:
    """The same rate for one machine with otherwise equal levels."""
    for other in _single(treatment, others):
        executions = rates.get(other.name, {}).get(metric)
        if executions:
            return median_over_rounds({at: next(iter(done.values.values())) for at, done in executions.items()})
    return None


def _single(treatment: Treatment, others: Iterable[Treatment]) -> Iterator[Treatment]:
    for other in others:
        if (other.layer, other.side, other.repeats) != (treatment.layer, treatment.side, None):
            continue
        # The treatment with a single set of processes on the host does not name the factor.
        differing = {name for name in treatment.levels if treatment.levels[name] != other.levels.get(name)}
        if machines_at_once(other) == 1 and differing - {OVERCOMMIT.name} == {COUNT.name}:
            yield other
