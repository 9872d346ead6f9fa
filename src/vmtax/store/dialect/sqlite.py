"""A store in a file of SQLite: opened in whatever way its disk allows, with its raw outputs beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite

from vmtax.store.dialect import sqlite_failure
from vmtax.store.dialect.base import StoreDatabase, create_once
from vmtax.store.dialect.sqlite_engine import Way, engine, has_unmerged
from vmtax.store.failure import StoreError
from vmtax.store.files import BALLAST, RawFiles, create_private, set_aside
from vmtax.store.owner import RunLocks


class SqliteDatabase(StoreDatabase):
    """The database at a path."""

    elsewhere = sqlite_failure.ELSEWHERE

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path
        self.directory = path.parent
        self.ballast = path.parent / BALLAST
        self.engine = engine(path)
        self.locks = RunLocks(path)
        self.outputs = RawFiles(path.parent / "raw")

    def open(self) -> None:
        """To read and to write. What is set aside for a full disk is given back where nothing else helps."""
        with self.explained():
            create_private(self.path)
        try:
            self.bring_up_to_date()
        except StoreError as error:
            if not self.is_full(error):
                raise
            self.make_room()
            self._use("alone")  # by a version that set nothing aside
            self.bring_up_to_date()
        else:
            set_aside(self.ballast)

    def open_to_read(self) -> None:
        """In the first way that works; its error is that of the usual one. An older store is left as it is: a copy of
        it in memory is brought up to date.
        """
        with self.explained():
            ways: tuple[Way, ...] = ("shared", "alone", "copy") if _exists(self.path) else ("nothing",)
        first: StoreError | None = None
        for way in ways:
            if way == "copy" and has_unmerged(self.path):
                break
            self._use(way)
            try:
                if self.is_older():
                    self._use_copy_in_memory()
                return
            except StoreError as error:
                first = first or error
        assert first is not None
        raise first

    def close(self) -> None:
        self.engine.dispose()

    def explained(self) -> AbstractContextManager[None]:
        return sqlite_failure.explained(self.path)

    def is_full(self, error: StoreError) -> bool:
        return sqlite_failure.is_full(error)

    def make_room(self) -> None:
        self.ballast.unlink(missing_ok=True)

    @contextmanager
    def begun(self, *, writes: bool) -> Iterator[Connection]:
        """The write lock is taken at the start, because waiting for it later is impossible."""
        with self.engine.connect() as connection:
            connection = connection.execution_options(vmtax_begin="BEGIN IMMEDIATE" if writes else "BEGIN")
            with connection.begin():
                yield connection

    def add_missing(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        connection.execute(sqlite.insert(table).on_conflict_do_nothing(), rows)

    def create_tables(self, connection: Connection) -> None:
        create_once(connection)

    def _use(self, way: Way) -> None:
        self.engine.dispose()
        self.engine = engine(self.path, way)

    def _use_copy_in_memory(self) -> None:
        stored, self.engine = self.engine, engine(self.path, "nothing")
        with self.explained(), stored.connect() as source, self.engine.connect() as target:
            copied, into = (one.connection.driver_connection for one in (source, target))
            assert isinstance(copied, sqlite3.Connection) and isinstance(into, sqlite3.Connection)
            copied.backup(into)
        stored.dispose()
        self.migrate()


def _exists(path: Path) -> bool:
    """Raises OSError if that cannot be seen."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
