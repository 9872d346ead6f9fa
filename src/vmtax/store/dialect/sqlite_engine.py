"""Open SQLite for durable commits, many processes at once, and cells that may be damaged."""

from __future__ import annotations

import functools
import json
import random
import sqlite3
import time
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store.model import Unfit

BUSY_SECONDS = 120.0  # to wait for another writer: a disk under test can stall an fsync for tens of seconds
RETRY_SECONDS = 0.02


Way = Literal["shared", "alone", "copy", "nothing"]


def engine(path: Path, way: Way = "shared") -> sa.Engine:
    """Connections to the database at `path`.

    way: "shared" with other processes, which takes a file beside it; "alone": without that file, which needs no room on
    the disk, and while no other process has it open; "copy": as it is on a disk that cannot be written to; "nothing":
    an empty database in memory, in place of one that does not exist
    """
    query = {"uri": "true", "immutable": "1"} if way == "copy" else {}
    name = {"copy": path.absolute().as_uri(), "nothing": ":memory:"}.get(way, str(path))
    made = sa.create_engine(
        sa.URL.create("sqlite", database=name, query=query),
        connect_args={"timeout": BUSY_SECONDS if way == "shared" else 1.0},
        json_serializer=functools.partial(json.dumps, allow_nan=False),
        json_deserializer=_json,
    )
    sa.event.listen(made, "connect", functools.partial(_configure, way))
    sa.event.listen(made, "begin", _begin)
    return made


def has_unmerged(path: Path) -> bool:
    """Whether commits stand in the log beside the database, which is read in the ways "shared" and "alone" only."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _json(cell: Any) -> object:
    """The value of a cell; invalid JSON becomes a value that `model` refuses."""
    try:
        return json.loads(cell)
    except (TypeError, ValueError, RecursionError):
        return Unfit


def _configure(way: Way, connection: sqlite3.Connection, _: object) -> None:
    # A damaged cell must not make its whole table unreadable.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="backslashreplace")
    connection.isolation_level = None  # the sqlite3 module itself begins transactions too late; `_begin` does it
    if way == "shared":
        _write_ahead(connection)
    elif way == "alone":
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA synchronous = FULL")  # in WAL mode, only FULL makes commits durable
    connection.execute("PRAGMA foreign_keys = ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode, with retries: if several processes open a new database at once, all but one are refused
    immediately, because SQLite ignores its busy timeout when two readers both want to become the writer.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS * random.random())


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("vmtax_begin", "BEGIN"))
