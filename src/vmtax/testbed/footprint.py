"""What guests that work at once take of their hosts' memory, after each trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from vmtax.hypervisor import Guest
from vmtax.machine import Machine, MachineLost, Reader
from vmtax.meter import At, Readings, Work

ROWS = ("resident_bytes", "beyond_bytes")  # of Guest.memory_readings


class Footprint:
    """A meter of the guests that it is given; the hypervisor of each is looked at from the machine that runs it."""

    name: ClassVar[str] = "memory"
    at: ClassVar[At] = "seat"
    command: ClassVar[tuple[str, ...]] = ()  # the guest's hypervisor has it

    def __init__(self, guests: Iterable[tuple[Guest, Machine]]) -> None:
        """`guests`: each with the machine that it runs on."""
        self._guests = {guest.path: (guest, parent) for guest, parent in guests}

    def before(self, machine: Reader) -> None:
        """What counts is what it has once it has worked."""

    def after(self, machine: Reader, works: Sequence[Work]) -> Readings:
        """Of a guest: its memory that was touched, and what its hypervisor has beyond that, in bytes."""
        if machine.path not in self._guests or not all(work.ok for work in works):
            return Readings()
        guest, parent = self._guests[machine.path]
        try:
            found = guest.memory_readings(parent)
        except MachineLost:
            return Readings()  # its next user gets the error
        return Readings({name: found[name] for name in ROWS if name in found})
