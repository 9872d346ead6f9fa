"""Store experiments in SQLite or PostgreSQL, the only SQL in vmtax, with their compressed raw outputs.

Writes are durable on return. A method that raises StoreError has changed nothing. Older schemas are migrated, and a
damaged cell costs only its run.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmtax.store.failure import StoreError
    from vmtax.store.listing import default_path
    from vmtax.store.store import End, Store
    from vmtax.store.summary import ExperimentSummary

_PLACES = {
    "End": "store",
    "ExperimentSummary": "summary",
    "Store": "store",
    "StoreError": "failure",
    "default_path": "listing",
}
__all__ = ["End", "ExperimentSummary", "Store", "StoreError", "default_path"]


def __getattr__(name: str) -> Any:
    """The names above, imported when first used: SQLAlchemy takes a fifth of a second; `listing` works without it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
