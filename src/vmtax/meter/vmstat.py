"""What a machine's memory management did during a trial: page faults, swapping, huge pages, NUMA balancing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from vmtax.core.machines import Reader
from vmtax.meter.base import At, MeteredCommand, Readings

# Counted since the boot; a kernel lacks counters of features that it was built without.
COUNTERS = (
    *("pgfault", "pgmajfault", "pswpin", "pswpout", "compact_stall"),
    *("thp_fault_alloc", "thp_fault_fallback", "numa_hint_faults", "numa_pages_migrated"),
)


class Vmstat:
    """The increase of counters in /proc/vmstat."""

    name: ClassVar[str] = "vmstat"
    at: ClassVar[At] = "host"
    command: ClassVar[tuple[str, ...]] = ("grep", "-s", "-w", "-E", "|".join(COUNTERS), "/proc/vmstat")

    def __init__(self) -> None:
        self._before: dict[str, dict[str, float]] = {}  # by machine path

    def before(self, machine: Reader) -> None:
        self._before[machine.path] = parse(machine.try_run(*self.command).stdout)

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        before, after = self._before[machine.path], parse(machine.try_run(*self.command).stdout)
        return Readings({name: max(0.0, after[name] - before[name]) for name in after if name in before})


def parse(text: str) -> dict[str, float]:
    """Name -> count, for COUNTERS; what is not understood is left out."""
    found = re.findall(r"^(\w+) (\d{1,18})$", text, re.MULTILINE | re.ASCII)
    return {name: float(count) for name, count in found if name in COUNTERS}
