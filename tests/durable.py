"""Writers of plan `durability` in a directory of a test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from vmtax.workload.durability import records, writers
from vmtax.workload.durability.checks import Found, check
from vmtax.workload.durability.source import guest_source
from vmtax.workload.durability.writers import SLOTS

FINE = Found(0, 0, "")
PROGRAM = (sys.executable, "-I", "-S", "-c", guest_source())
COUNT = SLOTS + 5  # records: each slot but some is overwritten
LATE_SECONDS = 60.0  # what has not ended by then hangs


def written(directory: Path, *names: str, count: int = COUNT) -> dict[str, list[str]]:
    """Let each writer write that many records; the lines of each."""
    lines: list[str] = []
    for name in names:
        size = writers.PAGE if "sqlite" in name else records.kind_of(name).size
        assert writers.write(str(directory), count * size, [name], lines.append)
    return {name: [line for line in lines if name in line.split()] for name in names}


def one(directory: Path, name: str, last: int = COUNT) -> Found:
    return check(str(directory), {name: last})[name]


def without_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the disk, or for what others write to it."""
    monkeypatch.setattr(writers, "sync", lambda directory: None)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)
