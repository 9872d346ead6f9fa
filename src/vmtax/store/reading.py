"""What is read of a store: lists of runs, the run that is meant, and its records."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.core.names import LAST
from vmtax.core.records import Experiment, Json
from vmtax.store import model, names, rows, schema
from vmtax.store.choice import Fits, RunChoice, choose, passed_over
from vmtax.store.counts import NOTHING, RunCounts, counts
from vmtax.store.failure import DamagedRun, StoreError
from vmtax.store.model import Unfit
from vmtax.store.opened import OpenStore, owner_query
from vmtax.store.owner import Owner
from vmtax.store.summary import ExperimentSummary, Summaries


class StoreReader(OpenStore):
    """A damaged cell costs only its run."""

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
            row = connection.execute(owner_query(id)).one_or_none()
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

    def _read_all_raw(self, connection: Connection, id: str) -> dict[str, str]:
        column = schema.trial.c.raw
        files = connection.scalars(rows.of(id, column).where(column.is_not(None)))
        return {file: self._outputs.read(connection, id, file) for file in files}


def _head(row: sa.Row[Any]) -> Experiment:
    """An experiment without boots, trials, treatments and facts. Raises Unfit."""
    if not isinstance(row.id, str):  # which would be read as one, and found by no name
        raise Unfit(f"id: {row.id!r:.60} is no text")
    return model.run_of({**rows.head_fields(row), "facts": {}, "treatments": (), "boots": (), "trials": ()})
