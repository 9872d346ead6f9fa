"""The command that installs programs on a machine."""

from __future__ import annotations

from vmtax.core import packages
from vmtax.core.machines import Reader

READ = ("cat", packages.RELEASE)


def install(machine: Reader, *programs: str) -> str:
    """The command for these rows of `packages.PACKAGES`, by what the machine's os-release says. Raises MachineLost."""
    return packages.install(machine.try_run(*READ).stdout, *programs)


def missing(machine: Reader, program: str) -> str:
    """That a program is missing there, and what installs it."""
    return f"{program} is missing there: {install(machine, program)}"
