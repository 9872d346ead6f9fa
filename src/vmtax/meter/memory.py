"""How much memory a machine has left."""

from __future__ import annotations

from vmtax.machine import Machine
from vmtax.meter.text import fields, kibibytes


def available_memory(machine: Machine) -> int | None:
    """Bytes; None if it does not report it."""
    return kibibytes(fields(machine.read_text("/proc/meminfo")).get("MemAvailable"))
