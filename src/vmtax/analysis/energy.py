"""What power the host's processors took while each configuration worked. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.core.records import Experiment, Treatment, Trial

JOULES, SECONDS = "energy.joules", "energy.seconds"  # readings of a host


@dataclass(frozen=True, slots=True)
class PowerTaken:
    """Of all packages of the host, in all trials of one case; whoever used it."""

    treatment: Treatment
    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    watts: float  # joules per second
    joules: float  # mean of one trial


def power(experiment: Experiment, trials: Sequence[Trial]) -> tuple[PowerTaken, ...]:
    """In the order of treatments and trials; () where the processors' energy could not be read. `trials`: that count"""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for trial in trials:
        read = next((rows for rows in trial.readings.values() if JOULES in rows and rows.get(SECONDS)), None)
        if trial.status == "ok" and read is not None:
            found[trial.treatment, trial.workload, trial.case].append((read[JOULES], read[SECONDS]))
    return tuple(
        _power(treatment, workload, case, read)
        for treatment in experiment.treatments
        for (name, workload, case), read in found.items()
        if name == treatment.name and treatment.repeats is None
    )


def _power(treatment: Treatment, workload: str, case: str, read: Sequence[tuple[float, float]]) -> PowerTaken:
    joules, seconds = (math.fsum(values) for values in zip(*read, strict=True))
    return PowerTaken(treatment, workload, case, joules / seconds, joules / len(read))
