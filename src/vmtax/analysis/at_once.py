"""Several machines that do the same work at the same time: what they reach together, and how evenly. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmtax.core.records import Experiment, Metric, Treatment, Trial
from vmtax.design.guest import GuestSettings
from vmtax.design.iterations import RATES, Case, Schedule
from vmtax.design.topology import Worked, machines_at_once, overlap

COUNT = GuestSettings.factors()["count"].name  # the factor in which a treatment differs from its machine alone


@dataclass(frozen=True, slots=True)
class AtOnce:
    """One rate of one treatment with several machines."""

    treatment: Treatment
    metric: Metric
    each: Mapping[str, float]  # machine path -> its median over rounds, in the metric's unit
    together: float  # median over rounds of the sum of all machines
    alone: float | None  # of the treatment with one machine and otherwise equal levels; None: not measured
    fairness: float  # Jain's index: median over rounds; 1 is even, 1/n is one machine that has all
    overlap: float  # the smallest share of what counts in which all machines worked

    @property
    def share_of_ideal(self) -> float | None:
        """The total as a share of what as many machines reach alone, one at a time; None without `alone`."""
        return None if self.alone is None else self.together / (self.alone * len(self.each))


def fairness(rates: Sequence[float]) -> float:
    """(sum x)² / (n · sum x²), between 1/n and 1 (Jain, Chiu and Hawe 1984, DEC-TR-301); 1 where all are 0."""
    most = max(rates)
    if most <= 0:
        return 1.0
    shares = [rate / most for rate in rates]  # so that no square is too small or too large for a number
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def at_once(experiment: Experiment, schedules: Mapping[Case, Schedule]) -> tuple[AtOnce, ...]:
    """The first rate of every case of every treatment with several machines, in the order of treatments and cases.

    What one of them failed to do counts for none: the others had more of the host.

    schedules: of a run that planned its iterations; its warm-up does not count
    """
    several = {t.name: t for t in experiment.treatments if t.repeats is None and machines_at_once(t) not in (None, 1)}
    if not several:
        return ()
    rates = _rates(
        trial
        for trial in experiment.trials
        if (planned := schedules.get((trial.workload, trial.case))) is None or planned.counts(trial.iteration)
    )
    return tuple(
        _of(treatment, metric, whole, _alone(treatment, metric, experiment.treatments, rates))
        for treatment in several.values()
        for metric, executions in _first_of_cases(rates.get(treatment.name, {}))
        if (whole := {at: done for at, done in executions.items() if len(done) == machines_at_once(treatment)})
    )


_Execution = dict[str, tuple[float, Worked]]  # machine path -> value, and when it worked
_Figure = tuple[Metric, dict[tuple[int, int], _Execution]]
_Rates = dict[str, dict[Metric, dict[tuple[int, int], _Execution]]]  # treatment -> metric -> (round, iteration)


def _rates(trials: Iterable[Trial]) -> _Rates:
    rates: _Rates = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for trial in trials:
        for measurement in trial.measurements if trial.status == "ok" else ():
            if measurement.metric.unit in RATES:
                executions = rates[trial.treatment][measurement.metric]
                executions[trial.round, trial.iteration][trial.machine] = (measurement.value, Worked.of(trial))
    return rates


def _first_of_cases(rates: Mapping[Metric, dict[tuple[int, int], _Execution]]) -> Iterator[_Figure]:
    """Operations a second; what of bytes a second is the same again is left out."""
    cases = set()
    for metric, executions in rates.items():
        if (metric.workload, metric.case) not in cases:
            cases.add((metric.workload, metric.case))
            yield metric, executions


def _of(
    treatment: Treatment, metric: Metric, whole: Mapping[tuple[int, int], _Execution], alone: float | None
) -> AtOnce:
    """`whole`: the executions that have a result of every machine."""
    values = [[value for value, _ in done.values()] for done in whole.values()]
    each: dict[str, list[float]] = defaultdict(list)
    for done in whole.values():
        for machine, (value, _) in done.items():
            each[machine].append(value)
    return AtOnce(
        treatment,
        metric,
        {machine: statistics.median(found) for machine, found in sorted(each.items())},
        _by_round(whole, [math.fsum(found) for found in values]),
        alone,
        _by_round(whole, [fairness(found) for found in values]),
        min(overlap(worked for _, worked in done.values()) for done in whole.values()),
    )


def _by_round(places: Iterable[tuple[int, int]], values: Iterable[float]) -> float:
    """The median over rounds of each round's median: a boot is the unit."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for (number, _), value in zip(places, values, strict=True):
        rounds[number].append(value)
    return statistics.median(map(statistics.median, rounds.values()))


def _alone(treatment: Treatment, metric: Metric, others: Iterable[Treatment], rates: _Rates) -> float | None:
    """The same rate of one machine with otherwise equal levels."""
    for other in _single(treatment, others):
        executions = rates.get(other.name, {}).get(metric)
        if executions:
            return _by_round(executions, [next(iter(done.values()))[0] for done in executions.values()])
    return None


def _single(treatment: Treatment, others: Iterable[Treatment]) -> Iterator[Treatment]:
    for other in others:
        if (other.layer, other.side, other.repeats) != (treatment.layer, treatment.side, None):
            continue
        differing = {name for name in treatment.levels if treatment.levels[name] != other.levels.get(name)}
        if machines_at_once(other) == 1 and differing == {COUNT}:
            yield other
