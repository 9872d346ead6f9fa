"""Open SQLite for durable commits, many processes at once, and cells that may be damaged."""

from __future__ import annotations

import functools
import json
import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store.model import Unfit

BUSY_SECONDS = 120.0  # to wait for another writer: a disk under test can stall an fsync for tens of seconds
RETRY_SECONDS = 0.02


def engine(path: Path) -> sa.Engine:
    """Connections to the database at `path`."""
    made = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        connect_args={"timeout": BUSY_SECONDS},
        json_serializer=functools.partial(json.dumps, allow_nan=False),
        json_deserializer=_json,
    )
    sa.event.listen(made, "connect", _configure)
    sa.event.listen(made, "begin", _begin)
    return made


def _json(cell: Any) -> object:
    """The value of a cell; invalid JSON becomes a value that `model` refuses."""
    try:
        return json.loads(cell)
    except (TypeError, ValueError, RecursionError):
        return Unfit


def _configure(connection: sqlite3.Connection, _: object) -> None:
    # A damaged cell must not make its whole table unreadable.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="backslashreplace")
    connection.isolation_level = None  # the sqlite3 module itself begins transactions too late; `_begin` does it
    _write_ahead(connection)
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
