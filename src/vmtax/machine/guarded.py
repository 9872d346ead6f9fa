"""The client of the guard: machines whose set-up is undone whatever happens to us."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import signal
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import IO, Any

from vmtax.core.machines import CommandFailed, Machine, MachineError, MachineLost, Outcome, Undoing, how_ended
from vmtax.machine.answer import object_or_none
from vmtax.machine.pipes import BANNER_BYTES, MOST_LINE, TooMuch, excerpt, listen, read_line
from vmtax.machine.processes import MARK
from vmtax.system.packages import install_here

NOT_FOUND = 127  # exit code of a shell, also at ssh's remote side, if the command does not exist
SSH_FAILED = 255  # exit code for errors of the client itself, including a lost connection; guards never exit with it
PYTHON_MISSING = "the system's python3 must be there"
# Child processes that outlive us. Kept, because Python warns if it forgets one that still runs.
_outliving: list[object] = []
PING_SECONDS = 10.0  # well below the silence that any guard tolerates
GREETING_SECONDS = 60.0  # from the start of a guard to its first line
ANSWER_SECONDS = 120.0  # each line of the list is synced to a disk that may be under test
UNDO_SECONDS = 900.0  # for a guard that undoes, such as a large directory on a slow disk
SILENT_SECONDS = 60.0  # without a line during that time; the guard prints every few seconds that it is busy
MOST_WAITS = 500  # characters of what a guard waits for
MOST_LAST_LINES = 100  # of a guard whose input has ended; it normally prints one
# Runs the guard, whose source text comes by standard input after a line with its length in bytes: users of the machine
# see this, and nothing else is read before its time.
LOADER = (
    '"vmtax-guard"; import io; f = io.BufferedReader(io.FileIO(0, closefd=False), 1); exec(f.read(int(f.readline())))'
)
FUTURE = "from __future__ import annotations\n"  # allowed once in a file, and only as the first statement


def guard_source() -> str:
    """The guard's complete source text for the machine's python3: guard.py with the parts that it imports."""
    texts = "".join(_text(name).partition(FUTURE)[2] for name in ("tree.py", "processes.py", "hold.py", "guard.py"))
    return FUTURE + "".join(line for line in texts.splitlines(True) if not line.startswith("from vmtax."))


def _text(name: str) -> str:
    return resources.files("vmtax.machine").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """One line of the undo list."""

    guard: Guard
    number: int
    argv: tuple[str, ...]

    def undo(self) -> None:
        """Undo it now. Raises CommandFailed if the guard could not."""
        error = self.guard.ask({"undo": self.number})
        if error:
            is_script = self.argv[:2] == ("sh", "-c") and len(self.argv) > 3  # of ours: its name says what it does
            raise CommandFailed(Outcome(self.guard.path, self.argv[3:] if is_script else self.argv, 1, "", error, 0.0))


class Guard:
    """The connection to one machine's guard process."""

    def __init__(self, path: str, argv: Sequence[str], token: str, *, pings: bool, entry: str = "") -> None:
        """Start `argv`, which must run LOADER on the machine named `path`, for the run with that token.

        `entry`: what its standard input begins with
        """
        self.path = path
        self.why_gone: Callable[[], str] = str  # set by its machine
        self._waits = ""  # the disk that it waits for, as it said last
        self._lock = threading.Lock()
        # In a session of its own: Ctrl-C and a closing terminal reach vmtax, and the guard only through its input.
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
            )
        except FileNotFoundError as error:
            raise MachineError(f"{path}: {argv[0]}: {PYTHON_MISSING}: {install_here('python3')}") from error
        try:
            nonce = secrets.token_hex(16)
            # Not on the command line, which every user of the machine can read.
            source = guard_source().encode()
            self._write(entry.encode() + b"%d\n" % len(source) + source)
            self._send({"token": token, "nonce": nonce})
            self._wait_for_greeting(nonce)
            hello = self._answer(undoing=True, recovered=int, left=list, last=int)
        except BaseException:
            self._close_pipes()
            for number in (0, signal.SIGTERM, signal.SIGKILL):  # 0 only looks
                self._process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):  # it may wait for a disk, whatever the signal
                    self._process.wait(2.0)
            raise
        self.recovered: int = hello["recovered"]  # number of lists of dead guards that it undid at its start
        self.left: list[str] = [str(line) for line in hello["left"]]  # what could not be undone, one line each
        self._numbers = itertools.count(hello["last"] + 1)  # smaller numbers are in use
        self._stopped = threading.Event()
        self._is_leaving = False
        if pings:
            threading.Thread(target=self._ping, name=f"guard of {path}", daemon=True).start()

    def _send(self, record: dict[str, object]) -> None:
        self._write(json.dumps(record).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._lost() from error
        except ValueError as error:  # we closed it ourselves
            raise MachineLost(f"{self.path}: the guard is gone: {error}") from error

    def _line(self, deadline: float, most: int = MOST_LINE) -> bytes:
        assert self._process.stdout
        try:
            return read_line(self._process.stdout, deadline, most)
        except TimeoutError:
            why = f": it waits for {self._waits}" if self._waits else "; is that machine overloaded?"
            raise MachineLost(f"{self.path}: the guard does not answer{why}") from None
        except TooMuch:
            raise MachineLost(f"{self.path}: the guard's answer has no end; what does a login print there?") from None

    def _wait_for_greeting(self, nonce: str) -> None:
        """Skip a login's output, up to the line that only our guard can print."""
        deadline = time.monotonic() + GREETING_SECONDS
        before = b""
        while (line := self._line(deadline, BANNER_BYTES)) and len(before) < BANNER_BYTES:
            # A login's output may end without a newline.
            if _object(line[max(0, line.rfind(b'{"hello"')) :]).get("hello") == nonce:
                return
            before += line
        if line:
            raise MachineLost(f"{self.path}: the guard was to answer, instead came {excerpt(before)}")
        raise self._lost(before)

    def _undone(self, deadline: float, silent: float | None = None) -> bytes:
        """The next line that does not only say that it is busy. Raises MachineLost, also if a disk there does not
        answer. `silent`: seconds without a line; by default SILENT_SECONDS
        """
        while True:
            line = self._line(min(deadline, time.monotonic() + (silent or SILENT_SECONDS)))
            record = _object(line)
            if record.get("busy") is not True:
                self._waits = ""
                return line
            self._waits = " ".join(str(record.get("waits", "")).split())[:MOST_WAITS]
            if self._waits and isinstance(waited := record.get("seconds"), int) and waited >= SILENT_SECONDS:
                raise MachineLost(f"{self.path}: a disk does not answer there: {self._waits} takes {waited} s already")

    def _answer(self, *, undoing: bool = False, **wanted: type) -> dict[str, Any]:
        """The next line's object, with these keys and types. `undoing`: the request may take minutes."""
        now = time.monotonic()
        line = self._undone(now + UNDO_SECONDS) if undoing else self._undone(now + ANSWER_SECONDS, ANSWER_SECONDS)
        if not line:
            raise self._lost()
        answer = _object(line)
        if any(not isinstance(answer.get(key), kind) for key, kind in wanted.items()):
            raise MachineLost(f"{self.path}: the guard was to answer, instead came {excerpt(line)}")
        return answer

    def _lost(self, heard: bytes = b"") -> MachineLost:
        """Why a guard that closed its pipes ended: its last output, or that of the ssh that connects to it."""
        assert self._process.stderr
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return MachineLost(f"{self.path}: the guard is gone: it closed its pipes")
        pipes: dict[IO[bytes], bytearray] = {self._process.stderr: bytearray()}
        with contextlib.suppress(TimeoutError, TooMuch):
            listen(pipes, time.monotonic() + 2.0, most=BANNER_BYTES)
        words = pipes[self._process.stderr].decode(errors="replace").strip().splitlines()
        if code == SSH_FAILED and (reason := self.why_gone()):
            return MachineLost(f"{self.path}: the connection is gone: {reason}")
        what = "the connection is gone" if code == SSH_FAILED else "the guard ended"
        cure = f"; {PYTHON_MISSING}" if code == NOT_FOUND else ""
        why = words[-1] if words else f"it said {excerpt(heard)}" if heard else how_ended(code)
        return MachineLost(f"{self.path}: {what}: {why}{cure}")

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended, without asking it."""
        return self._process.poll() is not None

    def ask(self, record: dict[str, object]) -> str:
        """Send one line and wait for its answer: the error's text, or an empty string."""
        with self._lock:
            self._send(record)
            return str(self._answer(undoing="undo" in record, error=str)["error"])

    def hold(self, name: str, words: str) -> str:
        """Hold what only one process of the machine can hold; returns "", or the words of the one who does."""
        with self._lock:
            self._send({"hold": name, "words": words})
            answer = self._answer(error=str)
        if answer["error"]:
            raise MachineError(f"{self.path}: {answer['error']}; whether somebody else measures there is not known")
        return str(answer.get("holder", ""))

    def let_go(self) -> None:
        self.ask({"let_go": True})

    def add(self, **how: object) -> UndoEntry:
        """Register durably how to undo what is about to be done."""
        number = next(self._numbers)  # several threads may register something
        error = self.ask({"add": number, **how})
        if error:
            raise MachineError(f"{self.path}: {error}; nothing was set up")
        argv = how.get("argv") or ["remove", how.get("remove")]
        assert isinstance(argv, (list, tuple))
        return UndoEntry(self, number, tuple(str(word) for word in argv))

    def _ping(self) -> None:
        while not self._stopped.wait(PING_SECONDS):
            try:
                self.ask({"ping": True})
            except MachineLost:
                return

    def close(self) -> bool:
        """End its input and wait until it has undone everything; False if it was killed before that."""
        self._stopped.set()
        with self._lock:
            assert self._process.stdin
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            if self._is_leaving:
                self._process.terminate()  # we were interrupted in `outlive`: it may no longer end with its input
            deadline = time.monotonic() + UNDO_SECONDS
            last = b""
            try:
                for _ in range(MOST_LAST_LINES):
                    if not (line := self._undone(deadline)):
                        break
                    last = line
            except MachineLost:
                deadline = time.monotonic()  # a guard that was silent for this long is not waited for
            self._end(deadline)
            self._close_pipes()
        left = _object(last).get("left")
        if not isinstance(left, list):
            return False
        self.left += [str(line) for line in left]
        return True

    def _end(self, deadline: float) -> None:
        """Wait for its end until the deadline."""
        try:
            self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def outlive(self, pid: int, logs: Sequence[str] = ()) -> None:
        """Detach from the guard: it undoes everything when that process of the machine ends, not when we do."""
        self._is_leaving = True
        error = self.ask({"outlive": pid, "logs": list(logs)})
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


def _object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line; empty if there is none."""
    return object_or_none(line) or {}


class GuardedMachine(Machine):
    """A machine with a guard, which is started when something first needs undoing."""

    scratch_parent: PurePosixPath = PurePosixPath("/tmp")

    def __init__(self, path: str) -> None:
        self.path = path
        self.token = secrets.token_hex(8)
        self.why_gone: Callable[[], str] = str  # returns the reason for a lost connection, if known; or ""
        self._guard: Guard | None = None
        self._scratch: PurePosixPath | None = None
        self._lock = threading.RLock()
        self.left: list[str] = []  # what a closed guard could not undo, one line each

    @abstractmethod
    def _start_guard(self) -> Guard: ...

    @property
    def guard(self) -> Guard:
        with self._lock:
            if self._guard is None:
                self._guard = self._start_guard()
                self._guard.why_gone = lambda: self.why_gone()  # evaluated later, because it may be set later
            return self._guard

    @property
    def mark(self) -> str:
        """The environment variable of every process that we start, by which the guard finds it."""
        return f"{MARK}={self.token}"

    @property
    def scratch(self) -> PurePosixPath:  # type: ignore[override]  # elsewhere an attribute
        """A private directory on the machine, created at first use, removed by the guard."""
        with self._lock:
            if self._scratch is None:
                scratch = self.scratch_parent / f"vmtax-{self.token}"
                self.remove_later(scratch)
                self.run("mkdir", "-m", "700", str(scratch))
                self._scratch = scratch
            return self._scratch

    def check_guard(self, *, ask: bool = True) -> None:
        """Raises MachineLost if the guard is gone: nothing more may be set up then.

        `ask=False`: check only what is visible from here, which costs nothing.
        """
        if ask or self.guard.is_gone:
            self.guard.ask({"ping": True})

    def fresh_name(self, what: str) -> str:
        """An unpredictable name for a file or directory of this run in a directory where others may write."""
        return f"vmtax-{self.token}-{what}-{secrets.token_hex(8)}"

    def undo_later(self, *argv: str, lasting: bool = False) -> Undoing:
        return self.guard.add(argv=list(argv), **({"lasting": True} if lasting else {}))

    def remove_later(self, path: PurePosixPath) -> Undoing:
        return self.guard.add(remove=str(path))

    def leave_to(self, pid: int, logs: Sequence[str] = ()) -> None:
        """Keep everything that is set up until that process ends, whatever happens to us; then the guard undoes it.

        `logs`: files that the process writes, and that are truncated when they become large
        """
        with self._lock:
            self.guard.outlive(pid, logs)
            self._guard = None
            self._scratch = None

    def close(self) -> None:
        """Undo everything that is left, and end the guard."""
        with self._lock:
            if self._guard is not None:
                if not self._guard.close():
                    self._guard = self._start_guard()  # at its start it undoes the list of the one that was killed
                    self._guard.close()
                self.left += self._guard.left
                self._guard = None
            self._scratch = None
