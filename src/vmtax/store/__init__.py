"""The only SQL: experiments in SQLite, one durable commit per trial; raw outputs lie compressed beside the database."""

from vmtax.store.failure import StoreError
from vmtax.store.store import ExperimentSummary, Store, default_path

__all__ = ["ExperimentSummary", "Store", "StoreError", "default_path"]
