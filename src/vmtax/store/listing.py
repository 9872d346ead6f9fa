"""Names of the stored runs and metrics for shell completion: fast, without SQLAlchemy, and without error messages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmtax.core.errors import BadInput, CannotDo
from vmtax.store.address import ServerAddress, default_address
from vmtax.store.failure import StoreError
from vmtax.store.owner import Owner, RunLocks

if TYPE_CHECKING:
    from vmtax.core.records import State

WAIT_SECONDS = 0.2  # for a writer that blocks readers


@dataclass(frozen=True, slots=True)
class Listed:
    """One run."""

    id: str
    label: str  # given by the user; "" if there is none
    host: str  # as given: "local" or "ssh://user@host"
    state: State


def default_path() -> Path:
    """The file of this user's store. Raises NoPlace, BadAddress, and StoreError if it is on a server."""
    address = default_address()
    if isinstance(address, ServerAddress):
        raise StoreError(f"{address} is no file")
    return address


def listed() -> list[Listed]:
    """All runs, newest first; empty if there is no store, or if it cannot be read. Does not create a store."""
    cells = _rows("SELECT * FROM experiment ORDER BY rowid DESC")
    return [_listed(row) for row in cells if all(isinstance(row[key], str) for key in ("id", "host", "state"))]


def disk_metrics() -> list[str]:
    """Names of the disk metrics that some run has measured."""
    names = (row["name"] for row in _rows("SELECT DISTINCT name FROM metric ORDER BY id"))
    return [name for name in names if isinstance(name, str) and name.startswith("disk.")]


def _rows(query: str) -> list[dict[str, Any]]:
    """Rows of a query; empty if there is no store, if it cannot be read, or if it is on a server."""
    try:
        path = default_path()
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=WAIT_SECONDS, uri=True)
        ) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query)]
    except (BadInput, CannotDo, OSError, sqlite3.Error):
        return []


def _listed(row: dict[str, Any]) -> Listed:
    label = row.get("label")  # an older store has no labels
    owner = Owner(row["owner_pid"], row["owner_boot"], row["owner_start"])
    state = RunLocks(default_path()).state(row["id"], row["state"], owner)
    return Listed(row["id"], label if isinstance(label, str) else "", row["host"], state)
