"""Whether a command goes on: how long work takes depends on the machine, but work uses CPU, reads or writes."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtax.core.machines import Idle
from vmtax.machine.remote_command import COMMAND

LOOKS = 3  # within the time in which a command may do nothing
LEAST_BYTES = 4096  # read or written; a program that only waits in a loop moves less
PROC = Path("/proc")
# Prints the files of every process of the command $1, and what all disks of the machine have moved. Constant text.
ASK = (
    *("sh", "-c"),
    f'word=$1; set --; for file in $(grep -lzxF "{COMMAND}=$word" /proc/[0-9]*/environ 2> /dev/null); do '
    'set -- "$@" "${file%environ}stat" "${file%environ}io"; done; '
    'grep -s -a -H -E "^[0-9]+ [(]|^[rw]char|^read_bytes|^write_bytes|^pgpg" "$@" /proc/vmstat; true',
    "sh",
)
_STAT = re.compile(r"^/proc/(\d{1,9})/stat:.*\) ([A-Za-z]) ((?:-?\d{1,20} ){14})", re.MULTILINE | re.ASCII)
_MOVED = re.compile(r"^/proc/\d{1,9}/io:(?:[rw]char|read_bytes|write_bytes): (\d{1,20})$", re.MULTILINE | re.ASCII)
_DISKS = re.compile(r"^/proc/vmstat:pgpg(?:in|out) (\d{1,20})$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Progress:
    """What the processes of a command have done so far."""

    pids: frozenset[int] = frozenset()
    ticks: int = 0  # of CPU time, including children that have ended
    moved: int = 0  # bytes that they read and wrote
    disks: int = 0  # KiB that all disks of the machine read and wrote, if one of them waits for a disk; else 0

    def goes_on_since(self, before: Progress) -> bool:
        """Whether something was done since then. What waits for a disk goes on as long as the disks do."""
        return bool(self.pids) and (
            self.pids != before.pids
            or self.ticks != before.ticks
            or abs(self.moved - before.moved) >= LEAST_BYTES
            or (bool(self.disks and before.disks) and self.disks != before.disks)
        )


def parse(text: str) -> Progress:
    """What ASK prints; nothing done if it is anything else."""
    found = _STAT.findall(text)
    waits = any(state == "D" for _, state, _ in found)
    return Progress(
        frozenset(int(pid) for pid, _, _ in found),
        sum(int(word) for _, _, numbers in found for word in numbers.split()[10:14]),
        sum(map(int, _MOVED.findall(text))),
        sum(map(int, _DISKS.findall(text))) if waits else 0,
    )


def of_group(leader: int) -> Progress:
    """Of a process of this machine that leads a group, with its group and all descendants."""
    stats = dict(_stats())
    parents = {pid: (int(words[1]), int(words[2])) for pid, words in stats.items()}
    wanted = {leader} & stats.keys()
    while more := {pid for pid, above in parents.items() if pid not in wanted and ({*above} & (wanted | {leader}))}:
        wanted |= more
    files = [*(f"{pid}/{name}" for pid in wanted for name in ("stat", "io")), "vmstat"]
    return parse("".join(_lines(name) for name in files))


def _stats() -> Iterator[tuple[int, list[str]]]:
    for file in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            yield int(file.parent.name), file.read_text(errors="replace").rpartition(") ")[2].split()


def _lines(name: str) -> str:
    try:
        text = (PROC / name).read_text(errors="replace")
    except OSError:
        return ""
    return "".join(f"/proc/{name}:{line}\n" for line in text.splitlines())


class Patience:
    """Decides at each deadline of a command whether it is waited for any longer."""

    def __init__(self, limit: float, look: Callable[[], Progress], now: Callable[[], float] = time.monotonic) -> None:
        """`limit`: if Idle, how long nothing may be done; else how long the command may take in all"""
        self._limit, self._look, self._now = limit, look, now
        self._last, self._active = Progress(), now()
        self.deadline = self._active + (limit / LOOKS if isinstance(limit, Idle) else limit)

    def extend(self) -> float:
        """The next deadline. Raises TimeoutError if it is stuck, or if its time is over."""
        now = self._now()
        if now < self.deadline:
            return self.deadline
        if not isinstance(self._limit, Idle):
            raise TimeoutError
        seen = self._look()
        if seen.goes_on_since(self._last):
            self._last, self._active = seen, now
        elif now - self._active >= self._limit:
            raise TimeoutError
        self.deadline = now + self._limit / LOOKS
        return self.deadline
