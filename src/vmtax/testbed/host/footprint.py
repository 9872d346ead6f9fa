"""Measure how much of their hosts' memory guests take that work at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from vmtax.hypervisor import Guest
from vmtax.machine import Machine, MachineLost, Reader
from vmtax.meter import At, MeteredCommand, Readings

ROWS = ("resident_bytes", "beyond_bytes")  # names in Guest.memory_readings


class Footprint:
    """A meter of the given guests' memory; it reads each guest's hypervisor on the machine that runs it."""

    name: ClassVar[str] = "memory"
    at: ClassVar[At] = "seat"
    command: ClassVar[tuple[str, ...]] = ()  # nothing runs in the guest; its hypervisor is read

    def __init__(self, guests: Iterable[tuple[Guest, Machine]]) -> None:
        """`guests`: each with the machine that it runs on."""
        self._guests = {guest.path: (guest, parent) for guest, parent in guests}

    def before(self, machine: Reader) -> None:
        """Nothing to read: what counts is the memory after the work."""

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        """A guest's memory that was touched, and what its hypervisor has beyond that, in bytes."""
        if machine.path not in self._guests or not all(work.ok for work in works):
            return Readings()
        guest, parent = self._guests[machine.path]
        try:
            found = guest.memory_readings(parent)
        except MachineLost:
            return Readings()  # whoever uses the guest next gets the error
        return Readings({name: found[name] for name in ROWS if name in found})
