"""The only SQL: experiments in SQLite, with raw outputs compressed beside the database.

What was added is durable on return. A method that raises StoreError has changed nothing. Older schemas are brought up
to date, and a damaged cell costs no more than its run.
"""

from vmtax.store.failure import StoreError
from vmtax.store.store import End, ExperimentSummary, Store, default_path

__all__ = ["End", "ExperimentSummary", "Store", "StoreError", "default_path"]
