"""Our end of the guard: a machine whose set-up is undone whatever happens to us."""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath

from vmtax.machine.base import CommandFailed, Machine, MachineLost, Outcome, Undoing
from vmtax.machine.guard import MARK

PING_SECONDS = 10.0  # well below any silence a guard is told to bear


def guard_source() -> str:
    """The guard's own source text, to be run by the machine's python3."""
    return resources.files("vmtax.machine").joinpath("guard.py").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the undo list."""

    guard: Guard
    number: int
    argv: tuple[str, ...]

    def undo(self) -> None:
        """Undo it now; raises CommandFailed where the guard could not."""
        error = self.guard.ask({"undo": self.number})
        if error:
            raise CommandFailed(Outcome(self.guard.path, self.argv, 1, "", error, 0.0))


class Guard:
    """The connection to one machine's guard process."""

    def __init__(self, path: str, argv: Sequence[str], *, pings: bool) -> None:
        """Start `argv`, which must run guard.py on the machine named `path`."""
        self.path = path
        self._count = 0
        self._lock = threading.Lock()
        # A session of its own: Ctrl-C and a closing terminal reach vmtax, and the guard through its input.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        hello = self._answer()
        self.recovered = int(hello["recovered"])  # lists of dead guards it undid at its start
        self._stopped = threading.Event()
        if pings:
            threading.Thread(target=self._ping, name=f"guard of {path}", daemon=True).start()

    def _answer(self) -> dict[str, str]:
        assert self._process.stdout and self._process.stderr
        line = self._process.stdout.readline()
        if not line:
            words = self._process.stderr.read().decode(errors="replace").strip()
            raise MachineLost(f"{self.path}: the guard ended: {words or 'no reason given'} (python3 must be there)")
        answer: dict[str, str] = json.loads(line)
        return answer

    def ask(self, record: dict[str, object]) -> str:
        """Send one line and wait for its answer: the error's text, or an empty string."""
        assert self._process.stdin
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(record).encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError) as error:
                raise MachineLost(f"{self.path}: the guard is gone: {error}") from error
            return self._answer()["error"]

    def add(self, **how: object) -> Entry:
        """Remember, durably, how to undo what is about to be done."""
        self._count += 1
        self.ask({"add": self._count, **how})
        argv = how.get("argv") or ["remove", how.get("remove")]
        assert isinstance(argv, (list, tuple))
        return Entry(self, self._count, tuple(str(word) for word in argv))

    def _ping(self) -> None:
        while not self._stopped.wait(PING_SECONDS):
            try:
                self.ask({"ping": True})
            except MachineLost:
                return

    def close(self) -> None:
        """End its input and wait until it has undone everything."""
        self._stopped.set()
        with self._lock:
            assert self._process.stdin and self._process.stdout and self._process.stderr
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process.stderr.close()


class GuardedMachine(Machine):
    """A machine with a guard, started at the first thing that needs undoing."""

    scratch_parent: PurePosixPath = PurePosixPath("/tmp")

    def __init__(self, path: str) -> None:
        self.path = path
        self.token = secrets.token_hex(8)
        self._guard: Guard | None = None
        self._scratch: PurePosixPath | None = None
        self._lock = threading.RLock()

    @abstractmethod
    def _start_guard(self) -> Guard: ...

    @property
    def guard(self) -> Guard:
        with self._lock:
            if self._guard is None:
                self._guard = self._start_guard()
            return self._guard

    @property
    def mark(self) -> str:
        """The assignment that every process we start carries, so that the guard can find it."""
        return f"{MARK}={self.token}"

    @property
    def scratch(self) -> PurePosixPath:  # type: ignore[override]
        """A private directory on the machine, made at first use, removed by the guard."""
        with self._lock:
            if self._scratch is None:
                scratch = self.scratch_parent / f"vmtax-{self.token}"
                self.remove_later(scratch)
                self.run("mkdir", "-m", "700", str(scratch))
                self._scratch = scratch
            return self._scratch

    def undo_later(self, *argv: str) -> Undoing:
        return self.guard.add(argv=list(argv))

    def remove_later(self, path: PurePosixPath) -> Undoing:
        return self.guard.add(remove=str(path))

    def close(self) -> None:
        """Undo everything that is left, and end."""
        with self._lock:
            if self._guard is not None:
                self._guard.close()
                self._guard = None
            self._scratch = None
