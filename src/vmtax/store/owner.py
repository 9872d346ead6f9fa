"""Which process runs an experiment, and whether it still does."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmtax.core.records import State


@dataclass(frozen=True, slots=True)
class Owner:
    """A process id alone is given out again, after a reboot too."""

    pid: int
    boot: str  # the kernel's boot id
    start: str  # clock ticks from that boot to the start of the process

    def alive(self) -> bool:
        """False too for one that a damaged cell names."""
        return isinstance(self.pid, int) and self.boot == _boot_id() and self.start == _start(self.pid)


def state_of(recorded: State, owner: Owner) -> State:
    """Of a run: "interrupted" also where it was recorded as running and its process is gone."""
    return recorded if recorded != "running" or owner.alive() else "interrupted"


def this_process() -> Owner:
    return Owner(os.getpid(), _boot_id(), _start(os.getpid()) or "")


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start(pid: int) -> str | None:
    """None when there is no such process; one that is dead but not yet waited for is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may hold anything, so the fields are counted after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
