"""Convert records to rows and back, within a transaction of the caller's."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.core.compact import unpacked
from vmtax.core.records import Better, Boot, Experiment, Json, Measurement, Metric, Treatment, Trial
from vmtax.store import model, schema
from vmtax.store.failure import StoreError
from vmtax.store.files import raw_name
from vmtax.store.owner import Owner

WRITTEN_AT_ONCE = 100  # records; their raw outputs are in memory meanwhile
# Fields of an Experiment that are stored in its own row.
HEAD = ("id", "name", "host", "command", "created", "finished", "state", "plan", "options", "ended", "label", "seconds")

# Keys of a plan that do not change how long a round takes. Keys that are not listed are assumed to change it.
NOT_ABOUT_PACE = frozenset({"precision", "same_within", "decide", "rounds", "budget", "max_writes", "seed"})


def of(experiment: str, *columns: sa.Column[Any]) -> sa.Select[Any]:
    """A query for these columns of one table, for the rows of one experiment."""
    return sa.select(*columns).where(columns[0].table.c.experiment == experiment)


def insert_head(connection: Connection, experiment: Experiment, owner: Owner) -> None:
    """Insert everything except boots and trials."""
    id = experiment.id
    row = {name: getattr(experiment, name) for name in HEAD}
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


def insert_boots(connection: Connection, experiment: str, boots: Sequence[Boot]) -> None:
    if boots:
        connection.execute(schema.boot.insert(), [{"experiment": experiment, **dataclasses.asdict(b)} for b in boots])


def next_number(connection: Connection, experiment: str) -> int:
    c = schema.trial.c
    highest = connection.scalar(sa.select(sa.func.max(c.number)).where(c.experiment == experiment))
    return (highest or 0) + 1


AddMissing = Callable[[Connection, sa.Table, Sequence[Mapping[str, Any]]], None]


def insert_trials(
    connection: Connection, experiment: str, first: int, trials: Sequence[Trial], add_missing: AddMissing
) -> list[str | None]:
    """Insert trials with the numbers from `first`; returns the file name for each raw output, None if it is empty.

    add_missing: inserts metrics, which other runs may insert at the same time
    """
    trials = [unpacked(trial) for trial in trials]
    numbered = list(enumerate(trials, first))
    files = [raw_name(number, trial.workload, trial.case) if trial.raw else None for number, trial in numbered]
    own = ("measurements", "raw", "disturbance")  # not stored as they are
    names = [field.name for field in dataclasses.fields(Trial) if field.name not in own]
    written = [
        {
            **{name: getattr(trial, name) for name in names},
            "disturbance": dataclasses.asdict(trial.disturbance) if trial.disturbance else None,
            "experiment": experiment,
            "number": number,
            "raw": file,
        }
        for (number, trial), file in zip(numbered, files, strict=True)
    ]
    if not written:
        return []
    ids = _insert_rows(connection, experiment, first, written)
    named = {one.metric: _as_stored(one.metric) for trial in trials for one in trial.measurements}
    metrics = _metric_ids(connection, dict.fromkeys(named.values()), add_missing)
    measurements = [
        {"trial": id, "ordinal": ordinal, "metric": metrics[named[one.metric]], "value": _value(one)}
        for id, trial in zip(ids, trials, strict=True)
        for ordinal, one in enumerate(trial.measurements)
    ]
    if measurements:
        connection.execute(schema.measurement.insert(), measurements)
    return files


def load_run(
    connection: Connection, head: sa.Row[Any], raw: Mapping[str, str], without: Collection[str] = ()
) -> Experiment:
    """The whole run whose row of the experiments is `head`; `raw` maps file names to texts, "" if it lacks one. Fields
    of trials that are `without` have their defaults.

    Raises Unfit if a cell has an impossible value.
    """
    id, note = head.id, schema.note.c
    run = model.run_of(
        {
            **head_fields(head),
            "facts": load_facts(connection, id),
            "treatments": _records(connection, id, schema.treatment, Treatment, schema.treatment.c.ordinal),
            "boots": _records(connection, id, schema.boot, Boot, schema.boot.c.id),
            "trials": (),
            "notes": tuple(connection.scalars(of(id, note.text).order_by(note.id))),
        }
    )
    return dataclasses.replace(run, trials=tuple(_load_trials(connection, run, raw, without)))


def head_fields(head: sa.Row[Any]) -> dict[str, Any]:
    """Fields of an Experiment from its own row."""
    return {name: getattr(head, name) for name in HEAD}


def _records(
    connection: Connection, experiment: str, table: sa.Table, kind: type, order: sa.Column[Any]
) -> list[dict[str, Any]]:
    columns = [table.c[field.name] for field in dataclasses.fields(kind)]
    return [dict(row) for row in connection.execute(of(experiment, *columns).order_by(order)).mappings()]


def load_facts(connection: Connection, experiment: str) -> Json:
    """Machine path -> facts."""
    c = schema.facts.c
    return {row.path: row.facts for row in connection.execute(of(experiment, c.path, c.facts).order_by(c.path))}


def _load_trials(
    connection: Connection, run: Experiment, raw: Mapping[str, str], without: Collection[str]
) -> Iterator[Trial]:
    """Some at a time: as rows they take several times the memory of the records that they become."""
    metrics = {row["id"]: dict(row) for row in connection.execute(sa.select(schema.metric)).mappings()}
    names = [field.name for field in dataclasses.fields(Trial) if field.name not in {"measurements", "raw", *without}]
    c = schema.trial.c
    rows = connection.execute(
        of(run.id, *(c[name] for name in names), c.id, c.raw)
        .order_by(c.number)
        .execution_options(yield_per=model.AT_ONCE)
    )
    checked = model.Trials(run)
    for part in rows.partitions(model.AT_ONCE):
        measurements = _load_measurements(connection, metrics, [row.id for row in part])
        yield from checked.of(
            [
                {
                    **dict(zip(names, columns, strict=True)),
                    "measurements": tuple(measurements.get(id, ())),
                    "raw": raw.get(file, "") if file else "",
                }
                for *columns, id, file in part
            ]
        )


def emulated(connection: Connection, experiment: str) -> bool | None:
    """Whether a guest, or a machine below one, was emulated; None if it booted none."""
    found: bool | None = connection.scalar(
        of(experiment, schema.boot.c.emulated).with_only_columns(
            sa.func.max(sa.cast(schema.boot.c.emulated, sa.Integer))
        )
    )
    return None if found is None else bool(found)


def work(plan: Json) -> Json:
    """The parts of a plan that determine how long a round takes."""
    return {key: value for key, value in plan.items() if key not in NOT_ABOUT_PACE}


def seconds_per_round(connection: Connection, head: Experiment) -> float | None:
    """Seconds of a round of that run; None if it has none, or if its trials are damaged."""
    trial = schema.trial.c
    iteration = (trial.round, trial.treatment, trial.workload, trial.case, trial.iteration)
    # Machines that work at the same time count once.
    longest = sa.func.max(trial.wall_seconds).label("seconds")
    once = of(head.id, trial.round).add_columns(longest).group_by(*iteration).subquery().c
    worked, rounds = connection.execute(sa.select(sa.func.sum(once.seconds), sa.func.max(once.round))).one()
    if head.finished is None or not isinstance(worked, float) or not isinstance(rounds, int) or rounds < 1:
        return None
    # The elapsed time is bounded, because a run may have been stopped and resumed, or its clock set.
    return min(max(head.took or 0.0, worked), 3 * worked) / rounds


def delete(connection: Connection, experiment: Any) -> None:
    """Delete all records of it; `experiment`: its id as stored, which may be damaged."""
    trials = sa.select(schema.trial.c.id).where(schema.trial.c.experiment == experiment)
    connection.execute(schema.measurement.delete().where(schema.measurement.c.trial.in_(trials)))
    for table in (schema.trial, schema.boot, schema.treatment, schema.facts, schema.note):
        connection.execute(table.delete().where(table.c.experiment == experiment))
    connection.execute(schema.experiment.delete().where(schema.experiment.c.id == experiment))


def has_ok(connection: Connection, experiment: str) -> bool:
    """Whether any trial of it succeeded."""
    c = schema.trial.c
    return connection.execute(of(experiment, c.id).where(c.status == "ok").limit(1)).first() is not None


def _load_measurements(
    connection: Connection, metrics: Mapping[int, Json], trials: Sequence[int]
) -> dict[int, list[Measurement]]:
    m = schema.measurement.c
    query = sa.select(m.trial, m.metric, m.value).where(m.trial.in_(trials)).order_by(m.trial, m.ordinal)
    found: dict[int, list[Measurement]] = defaultdict(list)
    for trial, measurement in model.measurements_of(metrics, [tuple(row) for row in connection.execute(query)]):
        found[trial].append(measurement)
    return found


def _insert_rows(connection: Connection, experiment: str, first: int, trials: list[Json]) -> Sequence[int]:
    """Rows of trials with the numbers from `first`; returns their ids."""
    if len(trials) == 1:  # of each commit of a run: the database says its id without being asked
        return [connection.execute(schema.trial.insert(), trials[0]).inserted_primary_key[0]]  # type: ignore[index]
    c = schema.trial.c
    connection.execute(schema.trial.insert(), trials)
    return connection.scalars(of(experiment, c.id).where(c.number >= first).order_by(c.number)).all()


def _metric_ids(connection: Connection, wanted: Iterable[Metric], add_missing: AddMissing) -> dict[Metric, int]:
    """The id of each metric that is stored; those that are not, and are wanted, are stored now."""
    known = _known_metrics(connection)
    unknown = [metric for metric in wanted if metric not in known]
    for metric in unknown:
        if metric.better not in get_args(Better):
            raise StoreError(f"{metric.name}: better must be higher or lower, not {metric.better!r}")
    if not unknown:
        return known
    # In one order everywhere, or two writers could wait for each other.
    unknown.sort(key=lambda metric: (metric.name, metric.unit, metric.better))
    add_missing(connection, schema.metric, [{"name": m.name, "unit": m.unit, "better": m.better} for m in unknown])
    return _known_metrics(connection)


def _as_stored(metric: Metric) -> Metric:
    return dataclasses.replace(metric, name=schema.storable(metric.name))


def _known_metrics(connection: Connection) -> dict[Metric, int]:
    c = schema.metric.c
    return {Metric(*row[1:]): row[0] for row in connection.execute(sa.select(c.id, c.name, c.unit, c.better))}


def _value(measurement: Measurement) -> float:
    if not math.isfinite(measurement.value):
        name, value = measurement.metric.name, measurement.value
        raise StoreError(f"{name} is {value}: only finite numbers are recorded; let the workload's parse refuse it")
    return measurement.value
