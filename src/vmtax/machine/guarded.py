"""Our end of the guard: a machine whose set-up is undone whatever happens to us."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

from vmtax.machine.base import CommandFailed, Machine, MachineError, MachineLost, Outcome, Undoing
from vmtax.machine.guard import MARK

NOT_FOUND = 127  # exit code of a shell, or of ssh's far side, where the command is not there
SSH_FAILED = 255  # the client's own failures, a lost line among them; no guard ends so
PYTHON_MISSING = "python3 must be there (Debian: apt-get install python3)"
# Children that outlive us. Python would complain of one that it forgets before it has ended.
_outliving: list[object] = []
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
        self.why_gone: Callable[[], str] = str  # as its machine has it
        self._lock = threading.Lock()
        # A session of its own: Ctrl-C and a closing terminal reach vmtax, and the guard through its input.
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except FileNotFoundError as error:
            raise MachineError(f"{path}: {argv[0]}: {PYTHON_MISSING}") from error
        try:
            hello = self._answer()
        except BaseException:
            self._close_pipes()
            raise
        self.recovered: int = hello["recovered"]  # lists of dead guards it undid at its start
        self.left: list[str] = hello["left"]  # what could not be undone, a line each
        self._count: int = hello["last"]  # numbers that are taken
        self._stopped = threading.Event()
        self._is_leaving = False
        if pings:
            threading.Thread(target=self._ping, name=f"guard of {path}", daemon=True).start()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise self._lost()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self) -> MachineLost:
        """Why a guard that closed its pipes ended, in its own last words or those of the ssh it was behind."""
        assert self._process.stderr
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return MachineLost(f"{self.path}: the guard is gone: it closed its pipes")
        words = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        if code == SSH_FAILED and (reason := self.why_gone()):
            return MachineLost(f"{self.path}: the connection is gone: {reason}")
        what = "the connection is gone" if code == SSH_FAILED else "the guard ended"
        cure = f"; {PYTHON_MISSING}" if code == NOT_FOUND else ""
        return MachineLost(f"{self.path}: {what}: {words[-1] if words else 'no reason given'}{cure}")

    def ask(self, record: dict[str, object]) -> str:
        """Send one line and wait for its answer: the error's text, or an empty string."""
        assert self._process.stdin
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(record).encode() + b"\n")
                self._process.stdin.flush()
            except BrokenPipeError as error:
                raise self._lost() from error
            except ValueError as error:  # we closed it ourselves
                raise MachineLost(f"{self.path}: the guard is gone: {error}") from error
            return str(self._answer()["error"])

    def add(self, **how: object) -> Entry:
        """Remember, durably, how to undo what is about to be done."""
        self._count += 1
        error = self.ask({"add": self._count, **how})
        if error:
            raise MachineError(f"{self.path}: {error}; nothing was set up")
        argv = how.get("argv") or ["remove", how.get("remove")]
        assert isinstance(argv, (list, tuple))
        return Entry(self, self._count, tuple(str(word) for word in argv))

    def _ping(self) -> None:
        while not self._stopped.wait(PING_SECONDS):
            try:
                self.ask({"ping": True})
            except MachineLost:
                return

    def close(self) -> bool:
        """End its input and wait until it has undone everything; False where it was killed before it had."""
        self._stopped.set()
        with self._lock:
            assert self._process.stdin and self._process.stdout
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            if self._is_leaving:
                self._process.terminate()  # we were interrupted in `outlive`: the end of its input may not end it
            last = self._process.stdout.read()
            self._process.wait()
            self._close_pipes()
        try:
            self.left += json.loads(last)["left"]
        except (ValueError, LookupError):
            return False
        return True

    def outlive(self, pid: int) -> None:
        """Leave the guard alone: it undoes everything when that process of the machine ends, not when we do."""
        self._is_leaving = True
        error = self.ask({"outlive": pid})
        if error:
            raise MachineError(f"{self.path}: the guard cannot wait for process {pid}: {error}")
        self._stopped.set()
        self._close_pipes()
        _outliving.append(self._process)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()


class GuardedMachine(Machine):
    """A machine with a guard, started at the first thing that needs undoing."""

    scratch_parent: PurePosixPath = PurePosixPath("/tmp")

    def __init__(self, path: str) -> None:
        self.path = path
        self.token = secrets.token_hex(8)
        self.why_gone: Callable[[], str] = str  # a reason for a line that is gone, where somebody knows one; or ""
        self._guard: Guard | None = None
        self._scratch: PurePosixPath | None = None
        self._lock = threading.RLock()
        self.left: list[str] = []  # what a closed guard could not undo, a line each

    @abstractmethod
    def _start_guard(self) -> Guard: ...

    @property
    def guard(self) -> Guard:
        with self._lock:
            if self._guard is None:
                self._guard = self._start_guard()
                self._guard.why_gone = lambda: self.why_gone()  # which may be known only later
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

    def check_guard(self) -> None:
        """Raises MachineLost where the guard is gone: nothing more may be set up then."""
        self.guard.ask({"ping": True})

    def undo_later(self, *argv: str, lasting: bool = False) -> Undoing:
        return self.guard.add(argv=list(argv), **({"lasting": True} if lasting else {}))

    def remove_later(self, path: PurePosixPath) -> Undoing:
        return self.guard.add(remove=str(path))

    def leave_to(self, pid: int) -> None:
        """What is set up stays until that process ends, whatever becomes of us; then the guard undoes it."""
        with self._lock:
            self.guard.outlive(pid)
            self._guard = None
            self._scratch = None

    def close(self) -> None:
        """Undo everything that is left, and end."""
        with self._lock:
            if self._guard is not None:
                if not self._guard.close():
                    self._guard = self._start_guard()  # which at its start undoes the list of the one that was killed
                    self._guard.close()
                self.left += self._guard.left
                self._guard = None
            self._scratch = None
