"""How often a workload is run in each boot: the pilot's boots, and the schedules that follow from them. Pure.

Schedules are not stored: they are recalculated from the pilot's trials, so a resumed run and every report get the same
ones.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmtax import stats
from vmtax.core.records import Boot, Experiment, Measurement, Metric, Trial
from vmtax.workload.words import compared, roles

PILOT_ROUNDS = 3
PILOT_ITERATIONS = 12  # of each case in each boot of the pilot: enough to detect a warm-up of several, and drift
OPENING_SECONDS = 2.0  # of a boot besides booting: settling and dropping caches; also on the host
LEAST_SECONDS = 1e-3  # of an iteration: no command is faster

VOID = "it does not count, because"  # begins the error of a machine that worked while another one failed

RATES = ("1/s", "B/s", "bit/s")  # units of metrics that are added up over machines

Iterations = int | Literal["auto"]  # in a plan
Case = tuple[str, str]  # workload, case


@dataclass(frozen=True, slots=True)
class Schedule:
    """The iterations that the pilot planned for one case of a workload; they are the same in all boots."""

    metric: Metric  # by which it was planned: a primary one if the case has any, else its first
    warm_up: int  # number of iterations at the beginning of every boot, including the pilot's, that do not count
    iterations: int  # number of iterations that count, in each boot after the pilot
    steady: bool  # whether the values settled; if not, there is no warm-up, and the first iterations of each boot are
    # compared
    reason: str  # how the warm-up was determined, or why it could not be
    components: Mapping[str, stats.VarianceComponents]  # treatment name -> components of its pilot boots

    @property
    def runs(self) -> int:
        """Iterations in each boot after the pilot."""
        return self.warm_up + self.iterations

    def counts(self, iteration: int) -> bool:
        """Whether that iteration of a boot counts. Without a steady state, the same iterations count in all boots."""
        return self.warm_up < iteration and (self.steady or iteration <= self.runs)


def together(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """One trial for each iteration: if several machines worked at the same time, their combined result.

    Rates are added up; other metrics get the median of the machines that have them, which all machines do that do the
    same work. The trial is ok if it is ok on all machines. If they repeated it, because one of them was lost the first
    time, only the last attempt counts.
    """
    first: dict[tuple[object, ...], Trial] = {}
    more: dict[tuple[object, ...], dict[str, Trial]] = {}  # machine -> its trial; only where there are several trials
    for number, trial in enumerate(trials):
        # Runs of earlier versions do not name the machine, and had only one.
        alone = (number,) if not trial.machine else ()
        key = (trial.round, trial.treatment, trial.workload, trial.case, trial.iteration, *alone)
        one = first.setdefault(key, trial)
        if one is not trial:
            more.setdefault(key, {one.machine: one})[trial.machine] = trial
    groups = {key: [*group.values()] for key, group in more.items()}
    combined = {key: group[0] if len(group) == 1 else _together(group) for key, group in groups.items()}
    return tuple(combined.get(key, trial) for key, trial in first.items())


def _together(trials: Sequence[Trial]) -> Trial:
    failed = [trial for trial in trials if trial.status != "ok"]
    if failed:
        return next((trial for trial in failed if not (trial.error or "").startswith(VOID)), failed[0])
    values: dict[Metric, list[float]] = defaultdict(list)
    for trial in trials:
        for measurement in trial.measurements:
            values[measurement.metric].append(measurement.value)
    return replace(
        trials[0],
        wall_seconds=max(trial.wall_seconds for trial in trials),
        measurements=tuple(
            Measurement(metric, math.fsum(found) if metric.unit in RATES else statistics.median(found))
            for metric, found in values.items()
            if len(found) * roles(trials[0].workload) == len(trials)
        ),
        warnings=tuple(dict.fromkeys(warning for trial in trials for warning in trial.warnings)),
        latencies=(),
        machine="",
    )


def schedules(trials: Iterable[Trial], boots: Iterable[Boot], primary: Collection[str]) -> dict[Case, Schedule]:
    """The schedules from the pilot's rounds, for each case with a result there; other rounds are ignored."""
    pilot = together(trial for trial in trials if trial.round <= PILOT_ROUNDS and trial.workload != "boot")
    opening = _opening_seconds(pilot, boots)
    cases: dict[Case, list[Trial]] = defaultdict(list)
    for trial in pilot:
        if trial.status == "ok" and trial.measurements and compared(trial.workload):
            cases[trial.workload, trial.case].append(trial)
    return {case: _schedule(found, opening, primary) for case, found in cases.items()}


def of(experiment: Experiment) -> dict[Case, Schedule]:
    """The schedules of a stored experiment; empty if its plan sets the number of iterations."""
    if experiment.plan.get("iterations") != "auto":
        return {}
    return schedules(experiment.trials, experiment.boots, experiment.plan["primary"])


def counted(trials: Sequence[Trial], planned: Mapping[Case, Schedule]) -> tuple[Trial, ...]:
    """One trial for each iteration that is no warm-up; failures are kept, because they explain what is missing.

    Everything that is compared, ranked or summarized is calculated from these trials.
    """
    return tuple(
        trial
        for trial in together(trial for trial in trials if compared(trial.workload))
        if trial.status != "ok"
        or (schedule := planned.get((trial.workload, trial.case))) is None
        or schedule.counts(trial.iteration)
    )


def runs(wanted: Iterations, planned: Mapping[Case, Schedule], case: Case, round: int) -> int:
    """How often a case is run in a boot of that round. A case without any result in the pilot is run once."""
    if wanted != "auto":
        return wanted
    if round <= PILOT_ROUNDS:
        return PILOT_ITERATIONS
    return planned[case].runs if case in planned else 1


def sentence(planned: Mapping[Case, Schedule]) -> str:
    """The schedules in one line."""
    parts = []
    for case, schedule in planned.items():
        warm_up = f" after {schedule.warm_up} of warm-up" if schedule.warm_up else ""
        parts.append(f"{name_of(case)} {schedule.iterations}{warm_up}{'' if schedule.steady else ', no steady state'}")
    return f"the pilot is over; iterations in each boot from now on: {'; '.join(parts) or 'one, for nothing worked'}"


def name_of(case: Case) -> str:
    """The case in words: "disk randread-4k-qd1", "chess"."""
    return " ".join(filter(None, case))


def pilot_excess(trials: Iterable[Trial], planned: Mapping[Case, Schedule]) -> float:
    """Seconds by which a round of the pilot is longer than later ones."""
    rest = {case: 1 - schedule.runs / PILOT_ITERATIONS for case, schedule in planned.items()}
    pilot = together(trial for trial in trials if trial.round <= PILOT_ROUNDS)
    return sum(trial.wall_seconds * rest.get((trial.workload, trial.case), 0.0) for trial in pilot) / PILOT_ROUNDS


def _schedule(trials: Sequence[Trial], opening: Mapping[str, float], primary: Collection[str]) -> Schedule:
    """`trials`: of one case, all with results. `opening`: other seconds of a boot, by treatment."""
    metric = _metric(trials, primary)
    boots = _values(trials, metric)
    whole = [values for by_round in boots.values() for values in by_round.values() if len(values) == PILOT_ITERATIONS]
    missing = "warm-up was not looked for: no boot of the pilot has a value of every iteration"
    steady = stats.steady_state(whole) if whole else stats.Steady(0, missing)
    warm_up = steady.warm_up or 0
    components = {
        name: stats.variance_components(series)
        for name, by_round in boots.items()
        if _tells_variance(series := [values[warm_up:] for values in by_round.values()])
    }
    seconds = {
        name: max(LEAST_SECONDS, statistics.median(t.wall_seconds for t in trials if t.treatment == name))
        for name in components
    }
    return Schedule(
        metric=metric,
        warm_up=warm_up,
        iterations=_iterations(components, seconds, opening, warm_up),
        steady=steady.warm_up is not None,
        reason=steady.reason,
        components=components,
    )


def _metric(trials: Sequence[Trial], primary: Collection[str]) -> Metric:
    known = dict.fromkeys(measurement.metric for trial in trials for measurement in trial.measurements)
    return next((metric for metric in known if metric.name in primary), next(iter(known)))


def _values(trials: Iterable[Trial], metric: Metric) -> dict[str, dict[int, list[float]]]:
    """Treatment name -> round -> values of its iterations in order; without values that have no logarithm."""
    boots: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in sorted(trials, key=lambda trial: (trial.round, trial.iteration)):
        for measurement in trial.measurements:
            if measurement.metric == metric and measurement.value > 0:
                boots[trial.treatment][trial.round].append(measurement.value)
    return boots


def _tells_variance(series: Sequence[Sequence[float]]) -> bool:
    sizes = [len(boot) for boot in series if boot]
    return len(sizes) > 1 and max(sizes) > 1


def _iterations(
    components: Mapping[str, stats.VarianceComponents],
    seconds: Mapping[str, float],
    opening: Mapping[str, float],
    warm_up: int,
) -> int:
    """One number for all treatments: a comparison has the variance of both sides, and a round the time of all
    treatments.
    """
    if not components:
        return 1
    every = components.values()
    together = stats.VarianceComponents(
        between=statistics.mean(found.between for found in every),
        within=statistics.mean(found.within for found in every),
        boots=sum(found.boots for found in every),
        iterations=sum(found.iterations for found in every),
    )
    iteration = statistics.mean(seconds.values())
    boot = statistics.mean(opening[name] for name in components) + warm_up * iteration
    return stats.iterations_per_boot(together, iteration, boot)


def _opening_seconds(pilot: Sequence[Trial], boots: Iterable[Boot]) -> dict[str, float]:
    """Treatment name -> each case's share of the other seconds of a boot; all cases have the same share."""
    cases: dict[str, set[Case]] = defaultdict(set)
    rounds: dict[str, set[int]] = defaultdict(set)
    for trial in pilot:
        cases[trial.treatment].add((trial.workload, trial.case))
        rounds[trial.treatment].add(trial.round)
    ready: dict[str, float] = defaultdict(float)
    for boot in boots:
        if boot.round <= PILOT_ROUNDS:
            ready[boot.treatment] += boot.ready_seconds
    return {name: (ready[name] / len(rounds[name]) + OPENING_SECONDS) / len(cases[name]) for name in cases}
