"""All that differs between the databases in which a store can be: how they are opened, locked, and explain failures.

Every other file of the store writes SQL that both understand.
"""

from __future__ import annotations

from vmtax.store.address import Address, ServerAddress
from vmtax.store.dialect.base import StoreDatabase


def database_at(address: Address) -> StoreDatabase:
    """The database of a store, not opened yet. Raises StoreError if what reads it is not installed."""
    if isinstance(address, ServerAddress):
        from vmtax.store.dialect.postgresql import PostgresqlDatabase

        return PostgresqlDatabase(address)
    from vmtax.store.dialect.sqlite import SqliteDatabase

    return SqliteDatabase(address)
