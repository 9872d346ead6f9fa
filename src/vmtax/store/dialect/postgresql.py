"""A store in a database of PostgreSQL, which several machines share; raw outputs are in it, because these machines have
no directory in common.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import OperationalError

from vmtax.store.address import ServerAddress
from vmtax.store.dialect import postgresql_failure as failure
from vmtax.store.dialect.base import StoreDatabase, create_once
from vmtax.store.dialect.postgresql_locks import ServerLocks
from vmtax.store.failure import StoreError
from vmtax.store.files import COSTS, MOST_RESULTS, RESULTS

RETURN_SECONDS = 60.0  # to wait for a server that was there, and is restarted
RETRY_SECONDS = 0.2
REACH_SECONDS = 10  # for a server to answer a connection
KEPT_CONNECTIONS = 1  # of a process, besides the one that holds its locks: a server has a hundred for all
CREATING = 0x766D746178  # number of the advisory lock under which tables are created: "vmtax"

DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
READ_ONLY = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'"

RAW = sa.Table(
    "raw_output",
    sa.MetaData(),
    sa.Column("experiment", sa.Text, primary_key=True),
    sa.Column("file", sa.Text, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),  # compressed by gzip
)
# SQLite numbers its rows by itself, in a column of this name. Rows of `raw_output` go with their run.
ONLY_HERE = (
    "ALTER TABLE experiment ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY",
    "CREATE TABLE raw_output (experiment TEXT REFERENCES experiment (id) ON DELETE CASCADE, file TEXT,"
    " content BYTEA NOT NULL, PRIMARY KEY (experiment, file))",
    "ALTER TABLE raw_output ALTER COLUMN content SET STORAGE EXTERNAL",  # it is compressed already
)


class PostgresqlDatabase(StoreDatabase):
    """The database at an address. Where the server was there once, it is waited for while it restarts."""

    elsewhere = "name another database with VMTAX_STORE or --store"
    directory = None
    least_version = 8

    def __init__(self, address: ServerAddress) -> None:
        """Raises StoreError."""
        super().__init__(address)
        self._address = address
        self._is_known = False  # whether the server has answered us
        connect = functools.partial(
            _driver().connect,
            address.url,  # libpq reads it, also where it has several servers
            connect_timeout=REACH_SECONDS,
            client_encoding="utf8",
            prepare_threshold=None,  # a pooler, through which one may read, would mix prepared statements up
        )
        self.engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=connect,
            pool_size=KEPT_CONNECTIONS,
            pool_pre_ping=True,
            json_serializer=functools.partial(json.dumps, allow_nan=False),
            json_deserializer=json.loads,
        )
        sa.event.listen(self.engine, "connect", _make_durable)
        self.locks = ServerLocks(self.where, functools.partial(connect, autocommit=True), _driver().Error, self.engine)
        self.outputs = _RawRows()

    def open(self) -> None:
        with self.explained(), self.begun(writes=False) as connection:
            self._refuse_unfit(connection)
        self.bring_up_to_date()

    def open_to_read(self) -> None:
        if self.is_older():
            raise StoreError(
                f"{self.where}: its tables are of an earlier version: `vmtax clean` brings them up to date"
            )

    def close(self) -> None:
        self.engine.dispose()

    def explained(self) -> AbstractContextManager[None]:
        return failure.explained(self._address)

    def is_full(self, error: StoreError) -> bool:
        return False  # the server has set nothing aside for us

    def make_room(self) -> None:
        pass

    @contextmanager
    def begun(self, *, writes: bool) -> Iterator[Connection]:
        with self._connected() as connection:
            if not writes:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                self._is_known = True
                yield connection

    def add_missing(self, connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        connection.execute(postgresql.insert(table).on_conflict_do_nothing(), rows)

    def create_tables(self, connection: Connection) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CREATING)))
        if create_once(connection):
            for statement in ONLY_HERE:
                connection.exec_driver_sql(statement)

    def migrate(self) -> None:
        with self.writing() as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CREATING)))
            self.steps(connection)

    def _connected(self) -> Connection:
        """A connection, whose server may just be restarting."""
        deadline = time.monotonic() + (RETURN_SECONDS if self._is_known else 0)
        while True:
            try:
                return self.engine.connect()
            except OperationalError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _refuse_unfit(self, connection: Connection) -> None:
        """Raises StoreError if locks would be lost, or texts."""
        driver: Any = connection.connection.driver_connection
        if connection.scalar(sa.select(sa.func.pg_backend_pid())) != driver.info.backend_pid:
            raise StoreError(
                f"{self.where}: answers through a connection pooler, such as PgBouncer, which would lose the locks of"
                " runs: name the server itself"
            )
        if connection.scalar(sa.text(READ_ONLY)):
            raise StoreError(f"{self.where}: can only be read: name the primary server, and a user who may write")
        encoding = connection.scalar(sa.text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise StoreError(f"{self.where}: its encoding is {encoding}, and must be UTF8: {self.elsewhere}")


def _make_durable(driver: Any, _: object) -> None:
    """A server may be set to lose what it acknowledged last when it is killed; more than "on" is left as it is."""
    with driver.cursor() as cursor:
        cursor.execute(DURABLE)
    driver.commit()


class _RawRows:
    """Rows that are committed with those of their trials, and removed with their run."""

    def write(self, connection: Connection, experiment: str, file: str, text: str) -> None:
        content = gzip.compress(text.encode("utf-8", "surrogatepass"), compresslevel=6, mtime=0)
        row = postgresql.insert(RAW).values(experiment=experiment, file=file, content=content)
        connection.execute(
            row.on_conflict_do_update(index_elements=["experiment", "file"], set_={"content": row.excluded.content})
        )

    def read(self, connection: Connection, experiment: str, file: str) -> str:
        content = self._content(connection, experiment, file)
        try:
            if content is None:
                raise ValueError("it is not there")
            return gzip.decompress(content).decode("utf-8", "surrogatepass")
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise StoreError(
                f"{experiment}: the raw output {file} cannot be read ({error}); the measurements are intact"
            ) from error

    def results(self, connection: Connection, experiment: str) -> str | None:
        content = self._content(connection, experiment, RESULTS)
        try:
            text = gzip.decompress(content).decode() if content else ""
        except (OSError, EOFError, ValueError, zlib.error):
            return None
        return text if 0 < len(text) <= MOST_RESULTS else None

    def costs(self, connection: Connection, experiments: Sequence[str]) -> Mapping[str, str]:
        found = {}
        wanted = sa.and_(RAW.c.file == COSTS, RAW.c.experiment.in_(experiments))
        for id, content in connection.execute(sa.select(RAW.c.experiment, RAW.c.content).where(wanted)):
            with contextlib.suppress(OSError, EOFError, ValueError, zlib.error):
                found[id] = gzip.decompress(content).decode()
        return found

    def keep_only(self, experiment: str, files: Collection[str]) -> None:
        pass  # there are no others: what is not committed is not there

    def without(self, known: Collection[tuple[str, str | None]]) -> list[Path]:
        return []

    def remove(self, files: Collection[Path]) -> None:
        pass

    def _content(self, connection: Connection, experiment: str, file: str) -> bytes | None:
        wanted = sa.and_(RAW.c.experiment == experiment, RAW.c.file == file)
        return connection.scalar(sa.select(RAW.c.content).where(wanted))


def _driver() -> Any:
    """psycopg. Raises StoreError if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise StoreError("a store in PostgreSQL needs psycopg: type `pip install 'vmtax[postgresql]'`") from error
    return psycopg
