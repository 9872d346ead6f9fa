"""Stores that hold made-up runs: a process writes each once, and every test gets a copy of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from vmtax.core.records import Experiment
from vmtax.store import Store

# Ids of runs -> the runs, so that their ids stay theirs, and the directory of their store.
_written: dict[tuple[int, ...], tuple[tuple[Experiment, ...], tempfile.TemporaryDirectory[str]]] = {}


def store_of(directory: Path, *runs: Experiment) -> Path:
    """The path of a new store in that directory, with these runs in this order, as `put` writes them."""
    key = tuple(map(id, runs))
    if key not in _written:
        written = tempfile.TemporaryDirectory()
        with Store(Path(written.name) / "vmtax.sqlite") as store:
            for run in runs:
                store.put(run)
        _written[key] = (runs, written)
    shutil.copytree(_written[key][1].name, directory, dirs_exist_ok=True)
    return directory / "vmtax.sqlite"
