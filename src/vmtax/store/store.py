"""The store: the runner commits to it, and the reports read from it.

A committed trial always has its raw file; a raw file without a row belongs to a trial that was never acknowledged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.core.names import new_id
from vmtax.core.records import Boot, Experiment, Json, Trial
from vmtax.store import fit, model, names, rows, schema
from vmtax.store.failure import AlreadyStored, StoreError
from vmtax.store.files import COSTS, RESULTS
from vmtax.store.opened import owner_of, owner_query
from vmtax.store.owner import Owner, this_process
from vmtax.store.reading import StoreReader

End = Literal["complete", "interrupted", "failed"]


class Store(StoreReader):
    """The experiments of this user. Safe for several threads, and beside other processes that read or write.

    Writes are durable on return. A method that raises StoreError has changed nothing.
    """

    def new_id(self, name: str, when: float) -> str:
        """An unused one for a run of the plan of that name."""
        with self._database.reading() as connection:
            used = names.ids(connection)
        while (new := new_id(name, when)) in used:
            pass
        return new

    def begin(self, experiment: Experiment) -> None:
        """Record that this process runs `experiment`, which has no boots and no trials yet."""
        if experiment.boots or experiment.trials or experiment.state != "running":
            raise ValueError(f"{experiment.id} is not a new, running experiment")
        fit.check_new(experiment)
        with self._running(experiment.id):
            self.put(experiment)

    def resume(self, id: str) -> None:
        """Record that this process resumes an experiment that no other process runs."""
        table = schema.experiment
        with self._database.writing() as connection:
            row = connection.execute(sa.select(table).where(table.c.id == id).with_for_update()).one_or_none()
            if row is None:
                raise names.unknown(id, names.ids(connection))
            state = self._state(row)
            if state not in ("interrupted", "failed") and (row.state, owner_of(row)) != ("running", this_process()):
                raise StoreError(f"{self.where}: {id} is {state} and cannot be resumed")
            with self._running(id):
                now = {"state": "running", "finished": None, "result": ""}  # the old headline was for a part of it
                owner = rows.owner_columns(this_process())
                connection.execute(table.update().where(table.c.id == id).values(**now, **owner))

    def put(self, experiment: Experiment, more: Iterable[Boot | Trial] = ()) -> None:
        """Record a whole experiment in one commit, as an import does; `more`: boots and trials besides its own."""
        fit.check_id(experiment.id)
        with self._database.writing() as connection:
            if experiment.id in names.ids(connection):
                raise AlreadyStored(f"run {experiment.id} is already stored")
            rows.insert_head(connection, experiment, this_process())
            try:
                records = itertools.chain(experiment.boots, experiment.trials, more)
                self._insert(connection, experiment.id, fit.with_one_result_each(records))
            except BaseException:
                self._outputs.keep_only(experiment.id, ())
                raise

    def add_boot(self, id: str, boot: Boot) -> None:
        with self._changing(id) as connection:
            rows.insert_boots(connection, id, [fit.fitting_boot(boot)])

    def add_trials(self, id: str, *trials: Trial, seconds: float | None = None) -> tuple[Trial, ...]:
        """Record all of them or nothing, raw outputs first; returns them as recorded, with a failed trial for an unfit
        result.

        Trials of several machines at the same time belong together, and are never stored in part.

        seconds: working time of the experiment so far, over all sessions; used if it is killed
        """
        fitting = tuple(map(fit.fitting_trial, trials))
        with self._changing(id) as connection:
            self._insert(connection, id, fitting)
            if seconds is not None:
                table = schema.experiment
                connection.execute(table.update().where(table.c.id == id).values(seconds=seconds))
        return fitting

    def add_facts(self, id: str, path: str, facts: Json) -> None:
        """Record the facts of the machine at `path`; they replace older ones of the same path."""
        table = schema.facts
        with self._changing(id) as connection:
            connection.execute(table.delete().where(table.c.experiment == id, table.c.path == path))
            facts = fit.fitting_facts(path, facts, rows.load_facts(connection, id))
            connection.execute(table.insert(), {"experiment": id, "path": path, "facts": facts})

    def add_note(self, id: str, text: str) -> None:
        with self._changing(id) as connection:
            connection.execute(schema.note.insert(), {"experiment": id, "text": fit.fitting_text(text)})

    def finish(self, id: str, state: End, when: float, ended: str | None = None, seconds: float | None = None) -> None:
        """Record the end and why there were no more rounds, and remove raw files whose trial was never committed.

        `seconds`: working time, over all sessions
        """
        if state not in get_args(End):
            raise ValueError(f"{state!r} is not an end")
        end = {"state": state, "finished": when, "ended": ended, "seconds": seconds}
        with self._changing(id) as connection:
            connection.execute(schema.experiment.update().where(schema.experiment.c.id == id).values(**end))
            self._outputs.keep_only(id, set(connection.scalars(rows.of(id, schema.trial.c.raw))))
        self._locks.release(id)

    def keep_headline(self, id: str, words: str) -> None:
        """Store a run's headline in few words, for `experiments`."""
        with self._database.writing() as connection:
            table = schema.experiment
            connection.execute(table.update().where(table.c.id == id).values(result=fit.fitting_text(words)))

    def keep_results(self, run: Experiment, text: str) -> None:
        """Store results computed from a run of this store; they are valid until its records change."""
        with self._database.writing() as connection:
            self._outputs.write(connection, run.id, RESULTS, f"{model.fingerprint(run, text)}\n{text}")

    def keep_costs(self, id: str, text: str) -> None:
        """Keep the costs of a run for all who share the store; what is in a file has one user, whose cache has them."""
        if self.directory is None:
            with self._database.writing() as connection:
                self._outputs.write(connection, id, COSTS, text)

    def take_host(self, machine_id: str) -> bool:
        """Whether a run of this process measures that host now, until this store is closed; False if one of another
        process does, whatever both call the host. `machine_id`: as of machine-id(5)
        """
        with self._database.explained():
            return self._locks.take(f"host {machine_id}")

    def take_task(self, task: str) -> bool:
        """Whether this process carries out that task now, until this store is closed; False if another one does."""
        with self._database.explained():
            return self._locks.take(f"task {task}")

    def refuse_unwritable(self) -> None:
        """Raises StoreError if nothing could be written."""
        with self._database.writing() as connection:
            connection.execute(schema.note.delete().where(sa.false()))

    def remove(self, wanted: str) -> str:
        """Remove the run of that id with its raw outputs, damaged or not; returns its id. Refuses a running one."""
        try:
            return self._remove(wanted)
        except StoreError as error:
            if not self._database.is_full(error):
                raise
        self._make_room(wanted)
        return self._remove(wanted)

    def _make_room(self, wanted: str) -> None:
        """On a full disk: give back what was set aside, and remove what the run has beside the database."""
        with self._database.reading() as connection:
            id = names.exactly(connection, wanted)
            row = next(row for row in connection.execute(sa.select(schema.experiment)) if names.name(row.id) == id)
            if self._state(row) == "running":
                return
        self._database.make_room()
        if fit.ID.fullmatch(id):
            self._outputs.keep_only(id, ())

    def _remove(self, wanted: str) -> str:
        table = schema.experiment
        with self._database.writing() as connection:
            id = names.exactly(connection, wanted)
            row = next(row for row in connection.execute(sa.select(table)) if names.name(row.id) == id)
            if self._state(row) == "running":
                raise StoreError(f"{self.where}: {id} is running: end it first, or wait until it has ended")
            rows.delete(connection, row.id)
        if fit.ID.fullmatch(id):
            self._outputs.keep_only(id, ())
        return id

    def orphans(self) -> list[Path]:
        """Raw files of trials that were never committed, and of runs that are gone."""
        with self._database.writing() as connection:  # so no process is just writing one
            return self._orphans(connection)

    def remove_orphans(self) -> None:
        with self._database.writing() as connection:
            self._outputs.remove(self._orphans(connection))

    def _orphans(self, connection: Connection) -> list[Path]:
        trials = connection.execute(sa.select(schema.trial.c.experiment, schema.trial.c.raw))
        known = {(experiment, file) for experiment, file in trials}
        if not {experiment for experiment, _ in known} <= set(names.ids(connection)):
            return []  # a trial belongs to no run, so owners of files are unknown
        return self._outputs.without(known)

    def _insert(self, connection: Connection, id: str, records: Iterable[Boot | Trial]) -> None:
        number, left = rows.next_number(connection, id), iter(records)
        while part := list(itertools.islice(left, rows.WRITTEN_AT_ONCE)):
            trials = [record for record in part if isinstance(record, Trial)]
            rows.insert_boots(connection, id, [record for record in part if isinstance(record, Boot)])
            for file, trial in zip(
                rows.insert_trials(connection, id, number, trials, self._database.add_missing), trials, strict=True
            ):
                if file:
                    self._outputs.write(connection, id, file, trial.raw)
            number += len(trials)

    @contextmanager
    def _changing(self, id: str) -> Iterator[Connection]:
        """One commit to a run that only its own process may change. Raises StoreError if that is no longer this one."""
        with self._database.writing() as connection:
            self._refuse_other(connection, id)
            yield connection

    def _refuse_other(self, connection: Connection, id: str) -> None:
        """Raises StoreError unless this process runs it, or was the last to do so."""
        row = connection.execute(owner_query(id).with_for_update()).one_or_none()
        if row is None:
            raise names.unknown(id, names.ids(connection))
        if not self._locks.confirm(id) or Owner(*row) != this_process():
            raise StoreError(
                f"{self.where}: {id} is no longer run by this process, but by another one: nothing recorded"
            )

    @contextmanager
    def _running(self, id: str) -> Iterator[None]:
        """Hold the lock of a run, and keep it unless what begins it fails. Raises StoreError if another has it."""
        is_ours = self._locks.holds(id)
        with self._database.explained():
            if not self._locks.take(id):
                raise StoreError(f"{self.where}: {id} is running")
        try:
            yield
        except BaseException:
            if not is_ours:
                self._locks.release(id)
            raise
