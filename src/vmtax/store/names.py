"""The names of the runs in a store, for the shell's completion: at once, without SQLAlchemy, and silent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from vmtax.core.errors import CannotDo
from vmtax.core.records import State
from vmtax.store.owner import Owner, state_of
from vmtax.system.paths import data_home

WAIT_SECONDS = 0.2  # for a writer that keeps readers out


@dataclass(frozen=True, slots=True)
class Named:
    """One run."""

    id: str
    host: str  # as given: "local" or "ssh://user@host"
    state: State


def default_path() -> Path:
    """Where the store of this user is. Raises NoPlace."""
    return data_home() / "vmtax.sqlite"


def names() -> list[Named]:
    """Of all runs, newest first; none where there is no store, or where it cannot be read. Makes no store."""
    try:
        path = default_path()
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", WAIT_SECONDS, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute("SELECT * FROM experiment ORDER BY created DESC, id DESC").fetchall()
            return [_named(row) for row in rows if all(isinstance(row[key], str) for key in ("id", "host", "state"))]
    except (CannotDo, OSError, sqlite3.Error):
        return []


def _named(row: sqlite3.Row) -> Named:
    owner = Owner(row["owner_pid"], row["owner_boot"], row["owner_start"])
    return Named(row["id"], row["host"], state_of(row["state"], owner))
