"""What KVM did for a guest during a trial: exits, and everything else that it counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from vmtax.meter.base import MeteredCommand, MeteredGuest, Readings

EXITS = "exits"  # KVM's name of the counter of all exits


class ExitCounts:
    """The increase of a guest's counters; nothing if KVM does not run the guest.

    Also the `seconds` between the two readings, and the `operations` of the command, if its workload counts them.
    """

    name: ClassVar[str] = "kvm"

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Mapping[str, float]]] = {}  # by guest path: time and counters

    def before(self, guest: MeteredGuest) -> None:
        self._before[guest.path] = (time.monotonic(), guest.counters())

    def after(self, guest: MeteredGuest, works: Sequence[MeteredCommand]) -> Readings:
        began, before = self._before[guest.path]
        after, ended = guest.counters(), time.monotonic()
        if EXITS not in before or EXITS not in after:
            return Readings()
        rows = {name: max(0.0, count - before.get(name, 0.0)) for name, count in after.items()}
        operations = [work.operations for work in works]
        if operations and None not in operations:
            rows["operations"] = sum(filter(None, operations))
        return Readings({**rows, "seconds": ended - began})
