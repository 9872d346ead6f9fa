"""The only SQL: experiments in SQLite, with raw outputs compressed beside the database.

What was added is durable on return. A method that raises StoreError has changed nothing. Older schemas are brought up
to date, and a damaged cell costs no more than its run.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmtax.store.failure import StoreError
    from vmtax.store.listing import default_path
    from vmtax.store.store import End, ExperimentSummary, Store

__all__ = ["End", "ExperimentSummary", "Store", "StoreError", "default_path"]


def __getattr__(name: str) -> Any:
    """Those above, imported when they are first used: SQLAlchemy takes a fifth of a second; `listing` does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vmtax.store import store

    return getattr(store, name)
