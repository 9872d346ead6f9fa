"""A store that is open: its database, and which process runs a run."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from vmtax.core.records import State
from vmtax.store import names, schema
from vmtax.store.address import Address, default_address
from vmtax.store.dialect import database_at
from vmtax.store.owner import Owner
from vmtax.store.stops import FleetStops


class OpenStore:
    """Its tables, and the files beside them."""

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

    def _state(self, row: sa.Row[Any], taken: Container[str] | None = None) -> State:
        return self._locks.state(names.name(row.id), row.state, owner_of(row), taken)


def owner_query(id: str) -> sa.Select[Any]:
    """Of the columns of an `Owner`."""
    c = schema.experiment.c
    return sa.select(c.owner_pid, c.owner_boot, c.owner_start).where(c.id == id)


def owner_of(row: sa.Row[Any]) -> Owner:
    """The process that runs that run, or was the last to do so."""
    return Owner(row.owner_pid, row.owner_boot, row.owner_start)
