"""Names of the existing labs; imports little, for shell completion."""

from __future__ import annotations

from pathlib import Path

from vmtax.core import names
from vmtax.system.paths import data_home

RECORD = "lab.json"  # marks a directory as a lab, or a saved state


def labs_directory() -> Path:
    """The directory of this user's labs. Raises NoPlace."""
    return data_home() / "labs"


def lab_names() -> list[str]:
    """Sorted; empty if there is no directory yet. Raises NoPlace, and OSError if it may not be read."""
    try:
        found = [path.name for path in labs_directory().iterdir() if (path / RECORD).exists()]
    except FileNotFoundError:
        found = []
    # Other names belong to directories that are being created or removed.
    return sorted(name for name in found if names.LAB.fullmatch(name))
