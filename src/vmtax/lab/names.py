"""The names of the labs that there are; light, for the shell's completion."""

from __future__ import annotations

from pathlib import Path

from vmtax.core import names
from vmtax.system.paths import data_home

RECORD = "lab.json"  # what makes a directory a lab, or a saved state


def labs_directory() -> Path:
    """Where the labs of this user are. Raises NoPlace."""
    return data_home() / "labs"


def lab_names() -> list[str]:
    """Sorted; none where there is no directory yet. Raises NoPlace, and OSError if they may not be read."""
    try:
        found = [path.name for path in labs_directory().iterdir() if (path / RECORD).exists()]
    except FileNotFoundError:
        found = []
    # What has another name is being made, or removed.
    return sorted(name for name in found if names.LAB.fullmatch(name))
