"""What lists say of many runs: how much was measured, read in three queries however many runs there are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store import schema


@dataclass(frozen=True, slots=True)
class RunCounts:
    """The counts of one run."""

    treatments: int
    rounds: int  # in which all treatments have a trial
    ok: int  # trials that succeeded
    failed: int  # all others
    emulated: bool | None  # whether a guest, or a machine below one, was emulated; None: it booted none


NOTHING = RunCounts(0, 0, 0, 0, None)


def counts(connection: Connection, runs: sa.Select[tuple[str]]) -> dict[str, RunCounts]:
    """The id of each run -> its counts, of those whose ids `runs` selects; without runs that have no treatments."""
    trial, boot = schema.trial.c, schema.boot.c
    treatments = dict(_grouped(connection, runs, schema.treatment, sa.func.count()))
    worked = sa.func.sum(sa.case((trial.status == "ok", 1), else_=0))
    of_rounds: dict[str, list[list[int]]] = defaultdict(list)
    rounds = (sa.func.count(trial.treatment.distinct()), worked, sa.func.count())
    for id, _, *numbers in _grouped(connection, runs, schema.trial, trial.round, *rounds, also=(trial.round,)):
        of_rounds[id].append(numbers)
    is_emulated = sa.func.max(sa.cast(boot.emulated, sa.Integer))
    emulated = dict(_grouped(connection, runs, schema.boot, is_emulated))
    found = {}
    for id, count in treatments.items():
        ok, total = (sum(numbers[place] for numbers in of_rounds[id]) for place in (1, 2))
        whole = sum(numbers[0] == count for numbers in of_rounds[id])
        known = emulated.get(id)
        found[id] = RunCounts(count, whole, ok, total - ok, None if known is None else bool(known))
    return found


def _grouped(
    connection: Connection,
    runs: sa.Select[tuple[str]],
    table: sa.Table,
    *columns: sa.ColumnElement[Any],
    also: tuple[sa.ColumnElement[Any], ...] = (),
) -> list[Any]:
    """Rows of (id of the run, columns), a row for each run and each value of `also`."""
    id = table.c.experiment
    return list(connection.execute(sa.select(id, *columns).where(id.in_(runs)).group_by(id, *also)))
