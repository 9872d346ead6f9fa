"""What KVM did for a guest during a trial: exits, and what else it counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from vmtax.meter.base import Counted, Readings, Work

EXITS = "exits"  # KVM's name of the counter of all exits


class Exits:
    """A guest's counters, by how much they grew; nothing where no KVM runs it.

    Beside them `seconds` between the two looks, and `operations` of the command, where its workload counts these.
    """

    name: ClassVar[str] = "kvm"

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Mapping[str, float]]] = {}  # by the guest's path: when, and what

    def before(self, guest: Counted) -> None:
        self._before[guest.path] = (time.monotonic(), guest.counters())

    def after(self, guest: Counted, works: Sequence[Work]) -> Readings:
        began, before = self._before[guest.path]
        after, ended = guest.counters(), time.monotonic()
        if EXITS not in before or EXITS not in after:
            return Readings()
        rows = {name: max(0.0, count - before.get(name, 0.0)) for name, count in after.items()}
        operations = [work.operations for work in works]
        if operations and None not in operations:
            rows["operations"] = sum(filter(None, operations))
        return Readings({**rows, "seconds": ended - began})
