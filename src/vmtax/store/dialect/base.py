"""What the store asks of a database, and what is the same in all of them: how the tables are brought up to date."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store import schema
from vmtax.store.failure import StoreError
from vmtax.store.owner import Locks


class Outputs(Protocol):
    """Raw outputs of trials, and the stored results of runs. A row's output is durable no later than the row."""

    def write(self, connection: Connection, experiment: str, file: str, text: str) -> None: ...
    def read(self, connection: Connection, experiment: str, file: str) -> str:
        """Raises StoreError."""
        ...

    def results(self, connection: Connection, experiment: str) -> str | None:
        """The stored results; None if they are missing or unreadable."""
        ...

    def costs(self, connection: Connection, experiments: Sequence[str]) -> Mapping[str, str]:
        """What was kept of these runs; what is missing or unreadable is left out."""
        ...

    def keep_only(self, experiment: str, files: Collection[str]) -> None:
        """Remove those that belong to no committed trial, and results."""
        ...

    def without(self, known: Collection[tuple[str, str | None]]) -> list[Path]:
        """Files that belong to none of these trials (experiment, file name)."""
        ...

    def remove(self, files: Collection[Path]) -> None: ...


class StoreDatabase(ABC):
    """The database of a store. Every method raises StoreError."""

    engine: sa.Engine
    locks: Locks
    outputs: Outputs
    elsewhere: str  # what a user does who needs another store
    directory: Path | None  # where what is recorded takes room on this machine; None: nowhere
    least_version = min(schema.MIGRATIONS)  # the oldest tables that can be brought up to date

    def __init__(self, where: object) -> None:
        self.where = str(where)  # how it is named in messages, without a password

    @abstractmethod
    def open(self) -> None:
        """To read and to write."""

    @abstractmethod
    def open_to_read(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def explained(self) -> AbstractContextManager[None]:
        """Turns errors of the database, and of files beside it, into a StoreError of one line."""

    @abstractmethod
    def is_full(self, error: StoreError) -> bool:
        """Whether there was no room, and giving back what was set aside for that can help."""

    @abstractmethod
    def make_room(self) -> None:
        """Give back what was set aside."""

    @abstractmethod
    def begun(self, *, writes: bool) -> AbstractContextManager[Connection]:
        """A transaction, committed at the end."""

    @abstractmethod
    def add_missing(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert those of these rows that are not there, also if another process inserts the same ones now."""

    @abstractmethod
    def create_tables(self, connection: Connection) -> None: ...

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view of the database from the first query to the last; never waits for a writer."""
        with self.explained(), self.begun(writes=False) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One durable commit."""
        with self.explained(), self.begun(writes=True) as connection:
            yield connection

    def bring_up_to_date(self) -> None:
        if self.is_older():
            self.migrate()

    def is_older(self) -> bool:
        """Whether its tables are those of an earlier version; where there are none, they are created. Raises StoreError
        if they are of a later version, or another program's.
        """
        with self.reading() as connection:
            tables = sa.inspect(connection).get_table_names()
        if not tables:
            self._create_schema()
        elif "meta" not in tables:
            raise StoreError(f"{self.where}: this is another program's database: {self.elsewhere}")
        with self.reading() as connection:
            version = _version(connection)
        if version in [str(older) for older in schema.MIGRATIONS if older >= self.least_version]:
            return True
        if version != str(schema.VERSION):
            cure = f"use the vmtax that wrote it, or {self.elsewhere}"
            raise StoreError(f"{self.where}: schema {version}, this vmtax knows {schema.VERSION} only: {cure}")
        return False

    def migrate(self) -> None:
        """Migrate an older store to the present schema, in one commit; its contents are kept."""
        with self.writing() as connection:
            self.steps(connection)

    def steps(self, connection: Connection) -> None:
        present = int(_version(connection) or 0)  # again, under the lock: another process may have been faster
        for version in range(present, schema.VERSION):
            for statement in schema.MIGRATIONS[version]:
                connection.exec_driver_sql(statement)
        connection.execute(schema.meta.update().where(schema.meta.c.key == "schema").values(value=str(schema.VERSION)))

    def _create_schema(self) -> None:
        with self.writing() as connection:
            self.create_tables(connection)


def _version(connection: Connection) -> str | None:
    return connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == "schema"))


def create_once(connection: Connection) -> bool:
    """Create the tables unless another first run was faster; returns whether they were."""
    if sa.inspect(connection).get_table_names():
        return False
    schema.TABLES.create_all(connection)
    connection.execute(schema.meta.insert(), {"key": "schema", "value": str(schema.VERSION)})
    return True
