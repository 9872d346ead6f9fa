"""Which process runs an experiment, and whether it still does: a lock that ends with the process says so."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vmtax.system.paths import private

if TYPE_CHECKING:
    from vmtax.core.records import State

# struct flock of Linux on 64-bit machines: type, whence, start, length, process
_FLOCK = "hhqqi4x"
TAKEN = (errno.EAGAIN, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, identified uniquely: a process id alone is reused, also after a reboot."""

    pid: int
    boot: str  # the kernel's boot id
    start: str  # clock ticks from that boot to the start of the process

    def alive(self) -> bool:
        """Whether it still runs, as far as this PID namespace shows; False for values from a damaged cell."""
        return isinstance(self.pid, int) and self.boot == _boot_id() and self.start == _start(self.pid)


class Locks(ABC):
    """The names, of runs in progress and of hosts under test, that processes hold in one store."""

    @abstractmethod
    def take(self, run: str) -> bool:
        """Whether this process holds the name now; False if another one does."""

    @abstractmethod
    def holds(self, run: str) -> bool:
        """Whether this process holds it."""

    @abstractmethod
    def is_taken(self, run: str) -> bool:
        """Whether a process holds it, this one included. Only reads."""

    @abstractmethod
    def confirm(self, run: str) -> bool:
        """Before a commit: whether this process still holds it, or never did, as of a run that it imports."""

    @abstractmethod
    def release(self, run: str) -> None: ...

    @abstractmethod
    def release_all(self) -> None: ...

    def among(self, runs: Collection[str]) -> Container[str]:
        """Those of these names that a process holds. Only reads."""
        return {run for run in runs if self.is_taken(run)}

    def state(self, run: str, recorded: State, owner: Owner, taken: Container[str] | None = None) -> State:
        """The state of a run: "interrupted" also if it was recorded as running and no process runs it any more.

        `taken`: of `among`, where that is known
        """
        if recorded != "running":
            return recorded
        # Earlier versions, of which a process may still run, take no lock.
        is_over = not ((self.is_taken(run) if taken is None else run in taken) or owner.alive())
        return "interrupted" if is_over else recorded


class RunLocks(Locks):
    """In the file beside a database of SQLite. The process that runs one holds a lock for it, which ends with the
    process, and which every process sees that opens the same file, whatever its PID namespace.

    A run is one byte of the file, at a place computed from its id: nothing is left behind, and a database's advisory
    locks take the same number. The locks belong to the open file (F_OFD_SETLK of fcntl(2)).
    """

    def __init__(self, store: Path) -> None:
        """`store`: the database's file."""
        self._path = store.with_name(f"{store.name}-running")
        self._held: dict[str, int] = {}  # run -> descriptor
        self._changes = threading.Lock()

    def take(self, run: str) -> bool:
        """Whether this process runs it now; False if another one does. Raises OSError if the file cannot be locked."""
        with self._changes:
            if run in self._held:
                return True
            descriptor = private(str(self._path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _byte(fcntl.F_WRLCK, run))
            except OSError as error:
                os.close(descriptor)
                if error.errno not in TAKEN:
                    raise
                return False
            self._held[run] = descriptor
            return True

    def holds(self, run: str) -> bool:
        """Whether this process runs it."""
        return run in self._held

    def is_taken(self, run: str) -> bool:
        """Whether a process runs it, this one included. Only reads."""
        if self.holds(run):
            return True
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _byte(fcntl.F_WRLCK, run))
        finally:
            os.close(descriptor)
        kind: int = struct.unpack(_FLOCK, answer)[0]
        return kind != fcntl.F_UNLCK

    def confirm(self, run: str) -> bool:
        return True  # it ends with the process, and not before

    def release(self, run: str) -> None:
        with self._changes:
            descriptor = self._held.pop(run, None)
        if descriptor is not None:
            os.close(descriptor)

    def release_all(self) -> None:
        for run in list(self._held):
            self.release(run)


def lock_number(run: str) -> int:
    """Where the lock of a run is: 62 bits of its id's SHA-256."""
    return int.from_bytes(hashlib.sha256(run.encode("utf-8", "backslashreplace")).digest()[:8], "big") >> 2


def this_process() -> Owner:
    return Owner(os.getpid(), _boot_id(), _start(os.getpid()) or "")


def _byte(kind: int, run: str) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, lock_number(run), 1, 0)


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
