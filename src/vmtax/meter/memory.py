"""How much memory a machine has, and how much of it is available."""

from __future__ import annotations

from vmtax.machine import Machine, Reader
from vmtax.meter.text import fields, kibibytes


def available_memory(machine: Machine) -> int | None:
    """Available bytes; None if the machine does not report them."""
    return kibibytes(fields(machine.read_text("/proc/meminfo")).get("MemAvailable"))


def total_memory(machine: Reader) -> int | None:
    """Bytes that its kernel manages; None if the machine does not report them."""
    return kibibytes(fields(machine.try_run("cat", "/proc/meminfo").stdout).get("MemTotal"))
