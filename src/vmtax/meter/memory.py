"""How much memory a machine has available."""

from __future__ import annotations

from vmtax.machine import Machine
from vmtax.meter.text import fields, kibibytes


def available_memory(machine: Machine) -> int | None:
    """Available bytes; None if the machine does not report them."""
    return kibibytes(fields(machine.read_text("/proc/meminfo")).get("MemAvailable"))
