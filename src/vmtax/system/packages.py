"""The command that installs programs on this host."""

from __future__ import annotations

from pathlib import Path

from vmtax.core import packages


def install_here(*programs: str) -> str:
    """The command for these rows of `packages.PACKAGES`."""
    try:
        release = Path(packages.RELEASE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    return packages.install(release, *programs)
