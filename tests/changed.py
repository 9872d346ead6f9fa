"""Experiments with trials that a test changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from vmtax.core.records import Disturbance, Experiment, Measurement, Trial


def changed(experiment: Experiment, change: Callable[[Trial], Trial]) -> Experiment:
    """The same with every trial as `change` returns it."""
    return dataclasses.replace(experiment, trials=tuple(map(change, experiment.trials)))


def scaled(trial: Trial, factor: float) -> Trial:
    """The same with all values times `factor`."""
    values = tuple(Measurement(m.metric, m.value * factor) for m in trial.measurements)
    return dataclasses.replace(trial, measurements=values)


def calm(experiment: Experiment) -> Experiment:
    """The same with values that differ by their round alone, and a host on which nothing happens."""
    quiet = Disturbance(5.0, 5.5, 0.0, 0.02, 0.05, 0.0, 2.4e9, 0)
    return changed(
        experiment,
        lambda t: dataclasses.replace(
            t,
            measurements=tuple(Measurement(m.metric, 100.0 + t.round) for m in t.measurements),
            disturbance=quiet,
        ),
    )


def at(trial: Trial, round: int) -> bool:
    """Whether it is the trial of chess in the VM, with all CPUs, in that round."""
    return (trial.round, trial.treatment, trial.workload, trial.case) == (round, "vm", "chess", "")
