"""Tidy data: one row per measurement, one column per property. For CSV and Parquet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Disturbance, Experiment, Treatment, Trial

Cell = str | int | float | bool | None

BEFORE: dict[str, type] = {
    "run": str,
    "plan": str,
    "host": str,
    "round": int,
    "position": int,
    "iteration": int,
    "treatment": str,
    "layer": str,
    "side": str,
}  # followed by the factors, as text
AFTER: dict[str, type] = {
    "workload": str,
    "case": str,
    "metric": str,
    "unit": str,
    "better": str,
    "value": float,
    "emulated": bool,
    "started": float,
    "wall_seconds": float,
    "machine": str,
}  # followed by the disturbance of the host
DISTURBANCE = tuple(field.name for field in fields(Disturbance))
WHOLE = {"throttles"}  # those of DISTURBANCE that are counts


ALWAYS = frozenset(
    ("round", "treatment", "layer", "workload", "case", "metric", "unit", "better", "value", "emulated", "started")
)  # kept even if all rows have the same value


@dataclass(frozen=True, slots=True)
class Rows:
    """All measurements of an experiment that may be compared; a failed trial has none."""

    columns: dict[str, type]  # name -> type of its cells, each of which may be None
    made: Callable[[], Iterator[tuple[Cell, ...]]]  # in the order of the columns; rows in the order of recording

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        """One at a time: of a large run they take a GB."""
        return self.made()


def rows(analysis: Analysis) -> Rows:
    """The experiment as rows and columns; columns with the same value in all rows are left out, except those of
    ALWAYS.
    """
    factors = dict.fromkeys((column_name(name) for name in _factors(analysis.experiment)), str)
    host = {f"disturbance_{name}": int if name in WHOLE else float for name in DISTURBANCE}
    readings = {column_name(f"readings_{path}_{name}"): float for path, name in _readings(analysis.experiment)}
    columns = {**BEFORE, **factors, **AFTER, **host, **readings}
    kept = _differing(_all(analysis), [*columns])
    names = [*columns]
    return Rows(
        {names[place]: columns[names[place]] for place in kept},
        lambda: (tuple(row[place] for place in kept) for row in _all(analysis)),
    )


def _differing(found: Iterator[tuple[Cell, ...]], names: list[str]) -> list[int]:
    """The places of ALWAYS, and of the columns whose value is not the same in all rows."""
    first, same = next(found, ()), [place for place, name in enumerate(names) if name not in ALWAYS]
    if first:
        for row in found:
            same = [place for place in same if row[place] == first[place]]
    return [place for place in range(len(names)) if place not in same]


def column_name(name: str) -> str:
    """A name that programs accept without quotes: "disk_cache", "readings_host_vm_vmstat_pgfault"."""
    return re.sub(r"\W+", "_", name)


def _all(analysis: Analysis) -> Iterator[tuple[Cell, ...]]:
    experiment, emulated = analysis.experiment, analysis.emulated
    treatments = {treatment.name: treatment for treatment in experiment.treatments}
    factors, readings = _factors(experiment), _readings(experiment)
    for trial in experiment.trials:
        if trial.status == "ok":
            treatment = treatments[trial.treatment]
            read = tuple(trial.readings.get(path, {}).get(name) for path, name in readings)
            for row in _rows(experiment, trial, treatment, factors, trial.treatment in emulated):
                yield (*row, *read)


def _factors(experiment: Experiment) -> tuple[str, ...]:
    """Names of all factors, such as "disk.cache", in order of appearance."""
    return tuple(dict.fromkeys(name for treatment in experiment.treatments for name in treatment.levels))


def _readings(experiment: Experiment) -> tuple[tuple[str, str], ...]:
    """Machine and name of every reading of meters, such as ("host", "vmstat.pgfault"), in order of appearance."""
    read = (trial.readings.items() for trial in experiment.trials)
    return tuple(dict.fromkeys((path, name) for machines in read for path, rows in machines for name in rows))


def _rows(
    experiment: Experiment, trial: Trial, treatment: Treatment, factors: tuple[str, ...], emulated: bool
) -> Iterator[tuple[Cell, ...]]:
    before: tuple[Cell, ...] = (
        *(experiment.id, experiment.name, experiment.host, trial.round, trial.position, trial.iteration),
        *(treatment.name, treatment.layer, treatment.side, *(treatment.levels.get(name) for name in factors)),
    )
    host = tuple(getattr(trial.disturbance, name, None) for name in DISTURBANCE)
    for measurement in trial.measurements:
        metric = measurement.metric
        yield (
            *before,
            *(trial.workload, trial.case, metric.name, metric.unit, metric.better, measurement.value),
            *(emulated, trial.started, trial.wall_seconds, trial.machine, *host),
        )
