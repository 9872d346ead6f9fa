"""Where vmtax keeps what it has on this host, as the XDG Base Directory Specification says."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """For results."""
    return _base("XDG_DATA_HOME", ".local/share")


def cache_home() -> Path:
    """For what can be made again."""
    return _base("XDG_CACHE_HOME", ".cache")


def state_home() -> Path:
    """For undo lists and the progress of runs."""
    return _base("XDG_STATE_HOME", ".local/state")


def private(path: str, flags: int) -> int:
    """For `open(..., opener=private)`: what is made is for this user only."""
    return os.open(path, flags, 0o600)


def _base(variable: str, default: str) -> Path:
    given = Path(os.environ.get(variable, ""))
    # A relative path must be ignored, as the specification demands.
    return (given if given.is_absolute() else Path.home() / default) / "vmtax"
