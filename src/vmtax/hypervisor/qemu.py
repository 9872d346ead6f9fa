"""Which QEMU a machine has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmtax.exits import CannotDo
from vmtax.machine import Reader

MINIMUM = (7, 2)
# Emulated guests of QEMU 7.2 with two vCPUs panic or reset in more than one of three runs that carry a nested guest,
# while the kernel patches its own code; those of 10.0 in about one of fifteen. What lies between was not tried.
STEADY_EMULATION = (10, 0)
DEFAULT = "qemu-system-x86_64"


class QemuError(CannotDo):
    """QEMU is missing, too old, or died at start; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Qemu:
    """A QEMU that is there and new enough."""

    command: tuple[str, ...]  # what starts it; more than one word for one that is not installed
    version: str  # "7.2.22"
    described: str  # its whole version line

    @property
    def emulates_steadily(self) -> bool:
        return _numbers(self.version) >= STEADY_EMULATION


def find_qemu(machine: Reader, binary: str | None) -> Qemu:
    """The machine's own QEMU, or `binary`; raises QemuError."""
    return _examined(machine, (binary or DEFAULT,))


def image_qemu(machine: Reader, tree: str) -> Qemu:
    """The QEMU of an unpacked image, run with the image's own libraries but on the machine's own paths."""
    firmware = ("-L", f"{tree}/usr/share/qemu", "-L", f"{tree}/usr/share/seabios")
    return _examined(machine, (*image_program(tree, DEFAULT), *firmware))


def image_program(tree: str, name: str) -> tuple[str, ...]:
    """What starts a program of an unpacked image with the image's own libraries, but on the machine's own paths."""
    libraries = f"{tree}/usr/lib/x86_64-linux-gnu"
    return (f"{tree}/usr/lib64/ld-linux-x86-64.so.2", "--library-path", libraries, f"{tree}/usr/bin/{name}")


def _examined(machine: Reader, command: tuple[str, ...]) -> Qemu:
    outcome = machine.try_run(*command, "--version", timeout=20)
    name = command[0]
    if not outcome.ok:
        cure = "name a QEMU program that is there"
        if name == DEFAULT:
            cure = "install it (Debian: apt-get install qemu-system-x86) or name another with --qemu"
        raise QemuError(f"{machine.path}: no usable {name} ({first_line(outcome.stderr or outcome.stdout)}); {cure}")
    line = outcome.stdout.partition("\n")[0].strip()
    found = re.search(r"version (\d+\.\d+(\.\d+)?)", line)
    if found is None:
        raise QemuError(f"{machine.path}: {name} --version says '{line}', which is no QEMU version")
    if _numbers(found[1]) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise QemuError(f"{machine.path}: {name} is {line}; {wanted} or newer is needed: name another with --qemu")
    return Qemu(command, found[1], line)


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "it says nothing"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
