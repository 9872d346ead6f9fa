"""Fleets that somebody stopped: whoever measures a host of one, wherever, reads that here."""

from __future__ import annotations

import sqlalchemy as sa

from vmtax.store import schema
from vmtax.store.dialect.base import StoreDatabase

KEY = "stopped fleet "  # in the table `meta`, before the fleet's name


class FleetStops:
    """Marks in the database of a store. Every method raises StoreError."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def stop(self, fleet: str, words: str) -> None:
        """`words`: who stopped it, and when."""
        with self._database.writing() as connection:
            row = {"key": KEY + fleet, "value": words}
            self._database.add_missing(connection, schema.meta, [row])

    def allow(self, fleet: str) -> None:
        with self._database.writing() as connection:
            connection.execute(schema.meta.delete().where(schema.meta.c.key == KEY + fleet))

    def stopped(self, fleet: str) -> str:
        """Who stopped it, and when; "": it is not stopped."""
        with self._database.reading() as connection:
            value = connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == KEY + fleet))
        return value if isinstance(value, str) else ""
