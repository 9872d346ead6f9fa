"""Which process runs an experiment, and whether that process still exists."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmtax.core.records import State


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified uniquely: a process id alone is reused, also after a reboot."""

    pid: int
    boot: str  # the kernel's boot id
    start: str  # clock ticks from that boot to the start of the process

    def alive(self) -> bool:
        """Whether it still runs; False for values from a damaged cell."""
        return isinstance(self.pid, int) and self.boot == _boot_id() and self.start == _start(self.pid)


def state_of(recorded: State, owner: Owner) -> State:
    """The state of a run: "interrupted" also if it was recorded as running and its process is gone."""
    return recorded if recorded != "running" or owner.alive() else "interrupted"


def this_process() -> Owner:
    return Owner(os.getpid(), _boot_id(), _start(os.getpid()) or "")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start(pid: int) -> str | None:
    """Its start time; None if there is no such process, or if it is dead but not yet waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name is in parentheses and may contain anything, so fields are counted after the last parenthesis.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
