"""Names of the built-in plans; imports little, for help and completion."""

from __future__ import annotations

from pathlib import Path

BUILTIN = Path(__file__).parent / "builtin"


def builtin_plans() -> list[str]:
    """The names of the plans that come with vmtax, sorted."""
    return sorted(file.stem for file in BUILTIN.glob("*.yaml"))
