"""What guests of unlike work had of the host that they share, by what they do: latency, work done, steal. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vmtax.analysis.at_once import STEAL, cpus, median_over_rounds
from vmtax.core.records import Experiment, Metric, Treatment, Trial
from vmtax.design.guest import COUNT, OVERCOMMIT
from vmtax.design.iterations import Case, Schedule
from vmtax.design.topology import machines_at_once
from vmtax.workload.tile import DONE, P99, ROLES, TileWorkload, role_of


@dataclass(frozen=True, slots=True)
class OfRole:
    """What the guests of one role of one treatment had: of each round the worst of them, and the median over rounds."""

    treatment: Treatment
    role: str  # database, web or idle
    tiles: int  # how many guests have this role
    p99: float | None  # 99 of 100 took at most so many seconds; None: the role has none, or did too little for one
    done: float | None  # share of the operations that were asked for; None: none are asked for
    steal: float | None  # CPUs that the guest wanted and did not get, on average; None: not read
    alone: float | None  # that of one tile with equal levels but for how CPUs are shared; None: not measured

    @property
    def times(self) -> float | None:
        """How many times as long 99 of 100 took as with one tile."""
        return self.p99 / self.alone if self.p99 is not None and self.alone else None


_Executions = Mapping[tuple[int, int], Sequence[Trial]]  # by round and iteration


def tiles(experiment: Experiment, schedules: Mapping[Case, Schedule]) -> tuple[OfRole, ...]:
    """One for each role and treatment, by role; without the A/A, and without executions in which a guest failed."""
    trials = [trial for trial in experiment.trials if trial.workload == TileWorkload.name and trial.status == "ok"]
    executions = _executions(trials, schedules)
    treatments = [each for each in experiment.treatments if each.repeats is None]
    found = []
    for role in ROLES:
        own = {each.name: _of_role(executions.get(each.name, {}), machines_at_once(each), role) for each in treatments}
        p99 = {name: _worst(max, there, _measured(P99.get(role))) for name, there in own.items()}
        found += [
            OfRole(
                each,
                role,
                len(next(iter(there.values()))),
                p99[each.name],
                _worst(min, there, _measured(DONE.get(role))),
                _worst(max, there, lambda trial: cpus(trial, STEAL)),
                p99[one.name] if (one := _one_tile(each, treatments)) is not None else None,
            )
            for each in treatments
            if (there := own[each.name])
        ]
    return tuple(found)


def _executions(trials: Iterable[Trial], schedules: Mapping[Case, Schedule]) -> Mapping[str, _Executions]:
    """By treatment; without warm-up."""
    found: dict[str, dict[tuple[int, int], list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        planned = schedules.get((trial.workload, trial.case))
        if planned is None or planned.counts(trial.iteration):
            found[trial.treatment][trial.round, trial.iteration].append(trial)
    return found


def _of_role(executions: _Executions, machines: int | None, role: str) -> _Executions:
    """The trials of the guests of a role, of the executions in which every guest has one."""
    whole = {at: each for at, each in executions.items() if len(each) == machines}
    return {at: [trial for trial in each if role_of(trial.machine) == role] for at, each in whole.items()}


def _measured(metric: Metric | None) -> Callable[[Trial], float | None]:
    def value(trial: Trial) -> float | None:
        return next((one.value for one in trial.measurements if one.metric == metric), None)

    return value


def _worst(
    extreme: Callable[[Sequence[float]], float], executions: _Executions, read: Callable[[Trial], float | None]
) -> float | None:
    """The worst guest of each execution; the median over rounds. None if a guest has no figure in any of them."""
    found = {at: [read(trial) for trial in trials] for at, trials in executions.items()}
    known = {at: [value for value in values if value is not None] for at, values in found.items()}
    whole = {at: values for at, values in known.items() if values and len(values) == len(found[at])}
    return median_over_rounds({at: extreme(values) for at, values in whole.items()})


def _one_tile(several: Treatment, treatments: Sequence[Treatment]) -> Treatment | None:
    """The one tile that this one is set against: of equal ones, that whose guests share CPUs least; never itself."""
    found = [one for one in treatments if _is_one_tile_of(one, several)]
    least = min(found, key=lambda one: int(one.levels.get(OVERCOMMIT.name, OVERCOMMIT.default)), default=None)
    return None if least is None or least.name == several.name else least


def _is_one_tile_of(one: Treatment, several: Treatment) -> bool:
    if (one.layer, one.side, machines_at_once(one)) != (several.layer, several.side, len(ROLES)):
        return False
    differing = {name for name in several.levels if several.levels[name] != one.levels.get(name)}
    return differing <= {COUNT.name, OVERCOMMIT.name}
