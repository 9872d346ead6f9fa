"""Which QEMU a machine has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmtax.machine import Machine

MINIMUM = (7, 2)
DEFAULT = "qemu-system-x86_64"


class QemuError(Exception):
    """QEMU is missing, too old, or died at start; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Qemu:
    """A QEMU that is there and new enough."""

    binary: str
    version: str  # "7.2.22"
    described: str  # its whole version line


def find_qemu(machine: Machine, binary: str | None) -> Qemu:
    """The machine's own QEMU, or `binary`; raises QemuError."""
    name = binary or DEFAULT
    outcome = machine.try_run(name, "--version", timeout=20)
    if not outcome.ok:
        raise QemuError(
            f"{machine.path}: no usable {name} ({(outcome.stderr or outcome.stdout).strip()}); "
            "install it (Debian: apt-get install qemu-system-x86) or name another with --qemu"
        )
    line = outcome.stdout.partition("\n")[0]
    found = re.search(r"version (\d+)\.(\d+)(\.\d+)?", line)
    if found is None:
        raise QemuError(f"{machine.path}: {name} --version says '{line}', which is no QEMU version")
    if (int(found[1]), int(found[2])) < MINIMUM:
        raise QemuError(
            f"{machine.path}: {name} is {line.strip()}; {'.'.join(map(str, MINIMUM))} or newer is needed: "
            "name another with --qemu"
        )
    return Qemu(name, found[0].removeprefix("version "), line)
