"""Records to rows and back, inside a transaction that the caller holds."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.result import Better, Boot, Disturbance, Experiment, Json, Measurement, Metric, Treatment, Trial
from vmtax.store import schema
from vmtax.store.failure import StoreError
from vmtax.store.files import raw_name
from vmtax.store.owner import Owner


def of(experiment: str, *columns: sa.Column[Any]) -> sa.Select[Any]:
    """These columns of one table, the rows of one experiment."""
    return sa.select(*columns).where(columns[0].table.c.experiment == experiment)


def insert_head(connection: Connection, experiment: Experiment, owner: Owner) -> None:
    """Everything but boots and trials."""
    id = experiment.id
    names = ("id", "name", "host", "command", "created", "finished", "state", "plan", "options", "ended")
    row = {name: getattr(experiment, name) for name in names}
    connection.execute(
        schema.experiment.insert(),
        {**row, **owner_columns(owner)},
    )
    treatments = [
        {"experiment": id, "ordinal": ordinal, **dataclasses.asdict(t), "levels": dict(t.levels)}
        for ordinal, t in enumerate(experiment.treatments)
    ]
    facts = [{"experiment": id, "path": path, "facts": facts} for path, facts in experiment.facts.items()]
    notes = [{"experiment": id, "text": text} for text in experiment.notes]
    for table, rows in ((schema.treatment, treatments), (schema.facts, facts), (schema.note, notes)):
        if rows:
            connection.execute(table.insert(), rows)


def owner_columns(owner: Owner) -> dict[str, int | str]:
    return {"owner_pid": owner.pid, "owner_boot": owner.boot, "owner_start": owner.start}


def insert_boot(connection: Connection, experiment: str, boot: Boot) -> None:
    connection.execute(schema.boot.insert(), {"experiment": experiment, **dataclasses.asdict(boot)})


def next_number(connection: Connection, experiment: str) -> int:
    highest = connection.scalar(
        of(experiment, schema.trial.c.number).with_only_columns(sa.func.max(schema.trial.c.number))
    )
    return (highest or 0) + 1


def insert_trial(
    connection: Connection, experiment: str, number: int, trial: Trial, metrics: dict[Metric, int]
) -> str | None:
    """The name of the file that its raw output belongs into; `metrics` learns the metrics that are new."""
    file = raw_name(number, trial.workload, trial.case) if trial.raw else None
    own = ("measurements", "raw", "disturbance")  # what is not stored as it is
    row = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial) if f.name not in own}
    row["disturbance"] = dataclasses.asdict(trial.disturbance) if trial.disturbance else None
    insert = schema.trial.insert().values(experiment=experiment, number=number, raw=file, **row)
    id = connection.execute(insert).inserted_primary_key[0]  # type: ignore[index]
    measurements = [
        {"trial": id, "ordinal": ordinal, "metric": _metric_id(connection, m.metric, metrics), "value": _value(m)}
        for ordinal, m in enumerate(trial.measurements)
    ]
    if measurements:
        connection.execute(schema.measurement.insert(), measurements)
    return file


def metric_ids(connection: Connection) -> dict[Metric, int]:
    return {metric: id for id, metric in _metrics(connection).items()}


def load_treatments(connection: Connection, experiment: str) -> tuple[Treatment, ...]:
    c = schema.treatment.c
    columns = [c[field.name] for field in dataclasses.fields(Treatment)]
    rows = connection.execute(of(experiment, *columns).order_by(c.ordinal))
    return tuple(Treatment(*row) for row in rows)


def load_facts(connection: Connection, experiment: str) -> Json:
    """Machine path -> facts."""
    c = schema.facts.c
    return {row.path: row.facts for row in connection.execute(of(experiment, c.path, c.facts).order_by(c.path))}


def load_boots(connection: Connection, experiment: str) -> tuple[Boot, ...]:
    c = schema.boot.c
    columns = [c[field.name] for field in dataclasses.fields(Boot)]
    rows = connection.execute(of(experiment, *columns).order_by(c.id))
    records = (dict(row) for row in rows.mappings())
    return tuple(
        Boot(**{**record, "argv": tuple(record["argv"]), "warnings": tuple(record["warnings"])}) for record in records
    )


def load_trials(connection: Connection, experiment: str, raw: Mapping[str, str]) -> tuple[Trial, ...]:
    """`raw` maps file names to texts; where it lacks one, Trial.raw is ""."""
    measurements = _load_measurements(connection, experiment)
    special = ("measurements", "warnings", "raw", "disturbance", "latencies")
    names = [field.name for field in dataclasses.fields(Trial) if field.name not in special]
    c = schema.trial.c
    rows = connection.execute(
        of(experiment, *(c[name] for name in names), c.id, c.warnings, c.raw, c.disturbance, c.latencies).order_by(
            c.number
        ),
    )
    return tuple(
        Trial(
            **dict(zip(names, columns, strict=True)),
            measurements=tuple(measurements.get(id, ())),
            warnings=tuple(warnings),
            raw=raw.get(file, ""),
            disturbance=Disturbance(**disturbance) if disturbance else None,
            latencies=tuple((share, seconds) for share, seconds in latencies),
        )
        for *columns, id, warnings, file, disturbance, latencies in rows
    )


def count_trials(connection: Connection, experiment: str, treatments: int) -> tuple[int, int, int]:
    """Rounds in which each of so many treatments has a trial, trials that worked, all others."""
    c = schema.trial.c
    worked = sa.func.sum(sa.case((c.status == "ok", 1), else_=0))
    rows = connection.execute(
        of(experiment, c.round)
        .with_only_columns(sa.func.count(c.treatment.distinct()), worked, sa.func.count())
        .group_by(c.round)
    ).all()
    ok, total = sum(row[1] for row in rows), sum(row[2] for row in rows)
    return sum(row[0] == treatments for row in rows), ok, total - ok


def _load_measurements(connection: Connection, experiment: str) -> dict[int, list[Measurement]]:
    metrics = _metrics(connection)
    m = schema.measurement.c
    query = (
        sa.select(m.trial, m.metric, m.value)
        .join(schema.trial, schema.trial.c.id == m.trial)
        .where(schema.trial.c.experiment == experiment)
        .order_by(m.trial, m.ordinal)
    )
    found: dict[int, list[Measurement]] = defaultdict(list)
    for trial, metric, value in connection.execute(query):
        found[trial].append(Measurement(metrics[metric], value))
    return found


def _metrics(connection: Connection) -> dict[int, Metric]:
    return {row[0]: Metric(*row[1:]) for row in connection.execute(sa.select(schema.metric))}


def _metric_id(connection: Connection, metric: Metric, known: dict[Metric, int]) -> int:
    if metric.better not in get_args(Better):
        raise StoreError(f"{metric.name}: better must be higher or lower, not {metric.better!r}")
    if metric not in known:
        row = {"name": metric.name, "unit": metric.unit, "better": metric.better}
        result = connection.execute(schema.metric.insert().values(row))
        known[metric] = result.inserted_primary_key[0]  # type: ignore[index]
    return known[metric]


def _value(measurement: Measurement) -> float:
    if not math.isfinite(measurement.value):
        name, value = measurement.metric.name, measurement.value
        raise StoreError(f"{name} is {value}: only finite numbers are recorded; let the workload's parse refuse it")
    return measurement.value
