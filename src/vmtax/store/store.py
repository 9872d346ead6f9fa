"""The store: the runner commits to it, and the reports read from it.

A committed trial always has its raw file; a raw file without a row belongs to a trial that was never acknowledged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.core.names import LAST, new_id
from vmtax.core.records import Boot, Experiment, Json, State, Trial
from vmtax.store import fit, model, names, rows, schema
from vmtax.store.address import Address, default_address
from vmtax.store.choice import Fits, RunChoice, choose, passed_over
from vmtax.store.counts import NOTHING, RunCounts, counts
from vmtax.store.dialect import database_at
from vmtax.store.failure import AlreadyStored, DamagedRun, StoreError
from vmtax.store.files import COSTS, RESULTS
from vmtax.store.model import Unfit
from vmtax.store.owner import Owner, this_process
from vmtax.store.stops import FleetStops
from vmtax.store.summary import ExperimentSummary, Summaries

End = Literal["complete", "interrupted", "failed"]


class Store:
    """The experiments of this user. Safe for several threads, and beside other processes that read or write.

    Writes are durable on return. A method that raises StoreError has changed nothing.
    """

    def __init__(self, address: Address | None = None, *, reads: bool = False) -> None:
        """`reads`: nothing will be written. Then nothing is created, and a full or read-only disk is no obstacle."""
        self._reads = reads
        self._database = database_at(default_address() if address is None else address)
        self._outputs = self._database.outputs
        self._locks = self._database.locks
        self.stops = FleetStops(self._database)
        self.where = self._database.where  # in messages
        self.directory = self._database.directory  # on this machine, where a run takes room; None: nowhere

    def __enter__(self) -> Self:
        try:
            if self._reads:
                self._database.open_to_read()
            else:
                self._database.open()
        except BaseException:
            self._database.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._locks.release_all()

    @property
    def path(self) -> Path:
        """The file of the database. Raises TypeError if it is on a server."""
        if self.directory is None:
            raise TypeError(f"{self.where} is no file")
        return Path(self.where)

    # Writing

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
            if state not in ("interrupted", "failed") and (row.state, _owner(row)) != ("running", this_process()):
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

    # Reading

    def experiments(self, **wanted: str) -> list[ExperimentSummary]:
        """All experiments, newest first; `wanted`: only those with this label, host or name."""
        table = schema.experiment
        alike = [table.c[column] == value for column, value in wanted.items()]
        newest = sa.select(table).where(*alike).order_by(*names.newest_first())
        with self._database.reading() as connection:
            found = connection.execute(newest).all()
            counted = counts(connection, sa.select(table.c.id).where(*alike))
            taken = self._running_among(found)
            return [self._summary(row, counted, taken) for row in found]

    def in_progress(self) -> list[Experiment]:
        """Those that a process runs now, newest first, without their boots, trials, treatments and facts."""
        table, found = schema.experiment, []
        newest = sa.select(table).where(table.c.state == "running").order_by(*names.newest_first())
        with self._database.reading() as connection:
            rows_found = connection.execute(newest).all()
            taken = self._running_among(rows_found)
        for row in rows_found:
            with contextlib.suppress(Unfit):
                if self._state(row, taken) == "running":
                    found.append(_head(row))
        return found

    def _running_among(self, found: Sequence[sa.Row[Any]]) -> Container[str]:
        return self._locks.among([names.name(row.id) for row in found if row.state == "running"])

    def seconds_per_round(
        self, plan: Json, host: str, interleaved_with: str | None = None, *, emulated: bool = False
    ) -> float | None:
        """Of the newest complete run of the same work on the same host or hosts; None if there is none.

        `emulated`: guests are emulated now; runs that differ in this are ignored
        """
        with self._database.reading() as connection:
            head = self._same_work(connection, plan, host, interleaved_with, emulated=emulated)
            return None if head is None else rows.seconds_per_round(connection, head)

    def same_work(
        self, plan: Json, host: str, interleaved_with: str | None = None, *, emulated: bool = False
    ) -> Experiment | None:
        """That run itself."""
        with self._database.reading() as connection:
            head = self._same_work(connection, plan, host, interleaved_with, emulated=emulated)
        return None if head is None else self.load(head.id)

    def _same_work(
        self, connection: sa.Connection, plan: Json, host: str, interleaved_with: str | None, *, emulated: bool
    ) -> Experiment | None:
        """Without its trials."""
        table = schema.experiment.c
        complete = sa.and_(table.host == host, table.name == plan["name"], table.state == "complete")
        for row in connection.execute(sa.select(schema.experiment).where(complete).order_by(*names.newest_first())):
            with contextlib.suppress(Unfit):
                head = _head(row)
                as_many_sides = head.options.get("interleave_with") == interleaved_with
                alike = rows.emulated(connection, head.id) in (None, emulated)
                worked = rows.has_ok(connection, head.id)
                if worked and as_many_sides and alike and rows.work(head.plan) == rows.work(plan):
                    return head
        return None

    def resolve(self, wanted: str) -> str:
        """The id of the run given by its id, a unique beginning of it, a label or "last"; the run may be damaged."""
        with self._database.reading() as connection:
            return names.resolve(connection, wanted)

    def holder(self, label: str) -> str | None:
        """The id of the run that has this label, or whose id begins with it; None if the label is free."""
        with self._database.reading() as connection:
            return names.holder(connection, label)

    def choose(self, wanted: str, fits: Sequence[Fits], plan: str = "") -> RunChoice:
        """The run that a user means by "last", an id, the beginning of one, or a label. An id means its run, whether it
        fits or not; otherwise `fits` are conditions as of `choice.choose`. `plan`: "last" is one of this plan, if there
        is one. Raises NoneFits, and as `resolve`.
        """
        newest = sa.select(schema.experiment).order_by(*names.newest_first())
        with self._database.reading() as connection:
            ids = names.candidates(connection, wanted)
            named = frozenset(ids)
            found = [row for row in connection.execute(newest) if names.name(row.id) in named]
            if wanted == LAST:
                of_plan = [row for row in found if row.name == plan]
                return choose(Summaries(of_plan or found, lambda row: self._summary_of(connection, row)), fits)
            meant = [self._summary_of(connection, row) for row in found]
        fitting = [entry for entry in meant if fits[0](entry)]
        if len(meant) > 1 and len(fitting) == 1:
            return RunChoice(fitting[0], passed_over([entry for entry in meant if entry is not fitting[0]], fitting[0]))
        id = names.the_only(wanted, ids)
        return RunChoice(next(entry for entry in meant if entry.id == id))

    def load(self, wanted: str = LAST, with_raw: bool = False, *, without: Collection[str] = ()) -> Experiment:
        """The experiment of that id, or else the one that `resolve` finds; `raw` of trials is "" unless `with_raw`.

        without: fields of trials that are not read
        """
        with self._database.reading() as connection:
            id = names.exactly(connection, wanted)
            with self._damage_of(id):
                row = connection.execute(sa.select(schema.experiment).where(schema.experiment.c.id == id)).one_or_none()
                if row is None:
                    raise Unfit("id: is no text")
                run = rows.load_run(connection, row, self._read_all_raw(connection, id) if with_raw else {}, without)
                return dataclasses.replace(run, state=self._state(row)) if run.state == "running" else run

    def count_records(self, wanted: str) -> tuple[str, int]:
        """The id of that run, and how many boots and trials it has."""
        with self._database.reading() as connection:
            id = names.exactly(connection, wanted)
            counts = (
                rows.of(id, table.c.id).with_only_columns(sa.func.count()) for table in (schema.boot, schema.trial)
            )
            return id, sum(connection.scalars(count).one() for count in counts)

    def keep_costs(self, id: str, text: str) -> None:
        """Keep the costs of a run for all who share the store; what is in a file has one user, whose cache has them."""
        if self.directory is None:
            with self._database.writing() as connection:
                self._outputs.write(connection, id, COSTS, text)

    def costs(self, ids: Sequence[str]) -> Mapping[str, str]:
        """The costs that were kept of these runs; those without any are missing."""
        with self._database.reading() as connection:
            return self._outputs.costs(connection, ids)

    def results(self, run: Experiment) -> str | None:
        """The stored results of exactly these records; None if there are none, or if they were changed."""
        with self._database.reading() as connection:
            stored = self._outputs.results(connection, run.id) or ""
        fingerprint, _, text = stored.partition("\n")
        return text if text and fingerprint == model.fingerprint(run, text) else None

    def load_all(self, wanted: Callable[[ExperimentSummary], bool]) -> list[Experiment]:
        """Those for which `wanted` is true, newest first; without damaged ones, which `load` explains."""
        found = []
        for entry in self.experiments():
            if entry.state != "damaged" and wanted(entry):
                with contextlib.suppress(DamagedRun):
                    found.append(self.load(entry.id))
        return found

    def owner(self, id: str) -> Owner:
        """The process that runs that run, or was the last to do so, perhaps on another machine."""
        with self._database.reading() as connection:
            row = connection.execute(_owner_query(id)).one_or_none()
            if row is None:
                raise names.unknown(id, names.ids(connection))
        return Owner(*row)

    def raw(self, wanted: str, number: int) -> str:
        """The tool's output in trial `number`: from 1, in the order of Experiment.trials."""
        trial = schema.trial.c
        with self._database.reading() as connection:
            id = names.exactly(connection, wanted)
            files = connection.scalars(rows.of(id, trial.raw).where(trial.number == number)).all()
            if not files:
                raise StoreError(f"{id} has no trial number {number}: `vmtax show {id}` lists what it has")
            return self._outputs.read(connection, id, files[0]) if files[0] else ""

    def raws(self, id: str) -> Iterator[str | StoreError]:
        """The tool's output of each trial in the order of Experiment.trials, or why it cannot be read."""
        trial = schema.trial.c
        with self._database.reading() as connection:
            files = connection.scalars(rows.of(id, trial.raw).order_by(trial.number)).all()
            for file in files:
                try:
                    yield self._outputs.read(connection, id, file) if file else ""
                except StoreError as error:
                    yield error

    # Removing

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

    # Inside

    @contextmanager
    def _damage_of(self, id: str) -> Iterator[None]:
        try:
            yield
        except Unfit as error:
            raise DamagedRun(f"{self.where}: run {id} is damaged: {error}; `vmtax runs rm {id}` removes it") from error

    def _summary_of(self, connection: Connection, row: sa.Row[Any]) -> ExperimentSummary:
        table = schema.experiment
        return self._summary(row, counts(connection, sa.select(table.c.id).where(table.c.id == row.id)))

    def _summary(
        self, row: sa.Row[Any], counted: Mapping[str, RunCounts], taken: Container[str] | None = None
    ) -> ExperimentSummary:
        try:
            head = _head(row)
        except Unfit:
            return ExperimentSummary(names.name(row.id), "", "", 0.0, None, "damaged", 0, 0, 0, 0)
        count = counted.get(head.id, NOTHING)
        return ExperimentSummary(
            *(head.id, head.name, head.host, head.created, head.finished),
            *(self._state(row, taken), count.treatments, count.rounds, count.ok, count.failed),
            label=head.label,
            seconds=head.took,
            emulated=count.emulated,
            result=row.result if isinstance(row.result, str) else "",
        )

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

    def _read_all_raw(self, connection: Connection, id: str) -> dict[str, str]:
        column = schema.trial.c.raw
        files = connection.scalars(rows.of(id, column).where(column.is_not(None)))
        return {file: self._outputs.read(connection, id, file) for file in files}

    @contextmanager
    def _changing(self, id: str) -> Iterator[Connection]:
        """One commit to a run that only its own process may change. Raises StoreError if that is no longer this one."""
        with self._database.writing() as connection:
            self._refuse_other(connection, id)
            yield connection

    def _refuse_other(self, connection: Connection, id: str) -> None:
        """Raises StoreError unless this process runs it, or was the last to do so."""
        row = connection.execute(_owner_query(id).with_for_update()).one_or_none()
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

    def _state(self, row: sa.Row[Any], taken: Container[str] | None = None) -> State:
        return self._locks.state(names.name(row.id), row.state, _owner(row), taken)


def _owner_query(id: str) -> sa.Select[Any]:
    c = schema.experiment.c
    return sa.select(c.owner_pid, c.owner_boot, c.owner_start).where(c.id == id)


def _owner(row: sa.Row[Any]) -> Owner:
    return Owner(row.owner_pid, row.owner_boot, row.owner_start)


def _head(row: sa.Row[Any]) -> Experiment:
    """An experiment without boots, trials, treatments and facts. Raises Unfit."""
    return model.run_of({**rows.head_fields(row), "facts": {}, "treatments": (), "boots": (), "trials": ()})
