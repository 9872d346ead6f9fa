"""Who used the host's CPU in the trials of each case. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.core.records import Experiment, Treatment, Trial

# Prefixes of meters' readings: of hosts and outer VMs by their threads, of a guest by its own counters.
METERS = ("ledger.", "clock.")
REMAINDER, BUSY, SECONDS, ERROR, OPERATIONS = "remainder", "busy", "seconds", "error", "operations"
SUMS = (BUSY, SECONDS, ERROR, OPERATIONS)
SAMPLES = "samples"
NO_ENTRIES = (*SUMS, SAMPLES, "steal_seconds")  # rows that are no entries


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the CPUs of one machine were used for in the trials of one case; all figures are means of these trials.
    docs/development/ledger.md explains the entries.
    """

    treatment: Treatment
    machine: str  # path of the machine that has these CPUs
    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    trials: int  # number of trials
    seconds: float  # time between the two readings
    busy: float  # core-seconds in which the CPUs were busy: CPUs x seconds - idle - waiting for disks
    entries: Mapping[str, float]  # name of the entry -> core-seconds; with `remainder`, which may be below 0, they add
    # up to `busy`
    error: float  # core-seconds by which all entries together can be wrong, because some are counted in ticks
    operations: float | None  # number of operations that were done in that time; None: the workload counts none
    samples: float = 0.0  # number of samples, in all trials together, that split the time of vCPUs into `guest`,
    # `vcpu_kernel` and `vcpu_user`
    sampled_trials: int = 0  # number of trials with samples; in the others, ticks split the time of vCPUs of guests on
    # KVM

    @property
    def per_operation(self) -> Mapping[str, float]:
        """Name of the entry -> core-seconds per operation; empty: operations are not counted."""
        operations = self.operations
        return {name: value / operations for name, value in self.entries.items()} if operations else {}

    @property
    def cores(self) -> float:
        """The mean number of busy CPUs."""
        return self.busy / self.seconds


def ledgers(experiment: Experiment, trials: Sequence[Trial]) -> tuple[Ledger, ...]:
    """In the order of treatments and cases, from the host inward; empty for runs whose version read none.

    trials: those that count
    """
    found: dict[tuple[str, str, str, str], list[Mapping[str, float]]] = defaultdict(list)
    for trial in trials:
        for path, readings in trial.readings.items() if trial.status == "ok" else ():
            rows = _rows(readings)
            if rows.get(SECONDS, 0.0) > 0 and {BUSY, REMAINDER, ERROR} <= rows.keys():
                found[trial.treatment, path, trial.workload, trial.case].append(readings)
    by_name = {treatment.name: treatment for treatment in experiment.treatments if treatment.repeats is None}
    order = {name: place for place, name in enumerate(by_name)}
    cases = {case: place for place, case in enumerate(dict.fromkeys((key[2], key[3]) for key in found))}
    keys = [key for key in found if key[0] in by_name]
    keys.sort(key=lambda key: (order[key[0]], cases[key[2], key[3]], key[1]))
    return tuple(_of(by_name[key[0]], key[1:], [*map(_rows, found[key])]) for key in keys)


def _rows(readings: Mapping[str, float]) -> Mapping[str, float]:
    """The rows of the first meter that has any."""
    kept = (
        {name.removeprefix(meter): readings[name] for name in readings if name.startswith(meter)} for meter in METERS
    )
    return next(filter(None, kept), {})


def _of(treatment: Treatment, where: tuple[str, str, str], trials: Sequence[Mapping[str, float]]) -> Ledger:
    names = dict.fromkeys(name for rows in trials for name in rows if name not in NO_ENTRIES)
    means = {name: sum(rows.get(name, 0.0) for rows in trials) / len(trials) for name in (*names, *SUMS)}
    return Ledger(
        treatment,
        *where,
        trials=len(trials),
        seconds=means[SECONDS],
        busy=means[BUSY],
        entries={name: means[name] for name in names},
        error=means[ERROR],
        operations=means[OPERATIONS] if all(OPERATIONS in rows for rows in trials) else None,
        samples=sum(rows.get(SAMPLES, 0.0) for rows in trials),
        sampled_trials=sum(SAMPLES in rows for rows in trials),
    )
