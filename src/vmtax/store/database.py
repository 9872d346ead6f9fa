"""Open the database, in whatever way its disk allows, bring its tables up to date, and read or commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store import schema
from vmtax.store.engine import Way, engine, has_unmerged
from vmtax.store.failure import ELSEWHERE, StoreError, explained, is_full
from vmtax.store.files import BALLAST, create_private, set_aside


class StoreDatabase:
    """The database at a path. Every method raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ballast = path.parent / BALLAST
        self.engine = engine(path)

    def open(self) -> None:
        """To read and to write. What is set aside for a full disk is given back where nothing else helps."""
        with explained(self.path):
            create_private(self.path)
        try:
            self._bring_up_to_date()
        except StoreError as error:
            if not is_full(error):
                raise
            self.ballast.unlink(missing_ok=True)
            self._use("alone")  # by a version that set nothing aside
            self._bring_up_to_date()
        else:
            set_aside(self.ballast)

    def open_to_read(self) -> None:
        """In the first way that works; its error is that of the usual one. An older store is left as it is: a copy of
        it in memory is brought up to date.
        """
        with explained(self.path):
            ways: tuple[Way, ...] = ("shared", "alone", "copy") if _exists(self.path) else ("nothing",)
        first: StoreError | None = None
        for way in ways:
            if way == "copy" and has_unmerged(self.path):
                break
            self._use(way)
            try:
                if self._is_older():
                    self._use_copy_in_memory()
                return
            except StoreError as error:
                first = first or error
        assert first is not None
        raise first

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view of the database from the first query to the last; never waits for a writer."""
        with explained(self.path), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One commit. The write lock is taken at the start, because waiting for it later is impossible."""
        with explained(self.path), self.engine.connect() as connection:
            connection = connection.execution_options(vmtax_begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    def _use(self, way: Way) -> None:
        self.engine.dispose()
        self.engine = engine(self.path, way)

    def _use_copy_in_memory(self) -> None:
        stored, self.engine = self.engine, engine(self.path, "nothing")
        with explained(self.path), stored.connect() as source, self.engine.connect() as target:
            copied, into = (one.connection.driver_connection for one in (source, target))
            assert isinstance(copied, sqlite3.Connection) and isinstance(into, sqlite3.Connection)
            copied.backup(into)
        stored.dispose()
        self._migrate()

    def _bring_up_to_date(self) -> None:
        if self._is_older():
            self._migrate()

    def _is_older(self) -> bool:
        """Whether its tables are those of an earlier version; where there are none, they are created. Raises StoreError
        if they are of a later version, or another program's.
        """
        with self.reading() as connection:
            tables = sa.inspect(connection).get_table_names()
        if not tables:
            self._create_schema()
        elif "meta" not in tables:
            raise StoreError(f"{self.path}: this is another program's database: {ELSEWHERE}")
        with self.reading() as connection:
            version = _version(connection)
        if version in [str(older) for older in schema.MIGRATIONS]:
            return True
        if version != str(schema.VERSION):
            cure = f"use the vmtax that wrote it, or {ELSEWHERE}"
            raise StoreError(f"{self.path}: schema {version}, this vmtax knows {schema.VERSION} only: {cure}")
        return False

    def _migrate(self) -> None:
        """Migrate an older store to the present schema, in one commit; its contents are kept."""
        with self.writing() as connection:
            present = int(_version(connection) or 0)  # again, under the lock: another process may have been faster
            for version in range(present, schema.VERSION):
                for statement in schema.MIGRATIONS[version]:
                    connection.exec_driver_sql(statement)
            connection.execute(
                schema.meta.update().where(schema.meta.c.key == "schema").values(value=str(schema.VERSION))
            )

    def _create_schema(self) -> None:
        with self.writing() as connection:
            if not sa.inspect(connection).get_table_names():  # another first run may have been faster
                schema.TABLES.create_all(connection)
                connection.execute(schema.meta.insert(), {"key": "schema", "value": str(schema.VERSION)})


def _version(connection: Connection) -> str | None:
    return connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == "schema"))


def _exists(path: Path) -> bool:
    """Raises OSError if that cannot be seen."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
