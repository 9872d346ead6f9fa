"""An exact stand-in for a machine: every command is scripted, an unknown one fails the test, time is faked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

from vmtax.core.machines import DEFAULT_TIMEOUT, CommandFailed, Machine, MachineLost, Outcome, Undoing

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a scripted command does."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    seconds: float = 0.0  # of fake time until it ends


# A command's whole argv, or a predicate on it.
Expected = Argv | Callable[[Argv], bool]
# Standard output of a success, a Reply, or an exception to raise (MachineLost).
Scripted = str | Reply | Exception
# One answer is given every time; a list is given in order and asking once more fails the test.
Answers = Mapping[Expected, Scripted | Sequence[Scripted]]


@dataclass(slots=True)
class FakeClock:
    """Time that passes only when something is done or slept."""

    now: float = 1_000_000.0  # seconds

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)


@dataclass(slots=True)
class FakeProcess:
    """A background command: its output is there at once, it ends `reply.seconds` after its start."""

    argv: Argv
    pid: int
    reply: Reply
    clock: FakeClock
    stdin: IO[bytes] = field(default_factory=BytesIO)
    stdout: IO[bytes] = field(init=False)
    ends: float = field(init=False)  # fake time
    stopped: bool = False

    def __post_init__(self) -> None:
        self.stdout = BytesIO(self.reply.stdout.encode())
        self.ends = self.clock.now + self.reply.seconds

    def poll(self) -> int | None:
        if self.stopped:
            return -15
        return self.reply.code if self.clock.now >= self.ends else None

    def wait(self, timeout: float) -> int:
        self.clock.sleep(0.0 if self.stopped else min(timeout, self.ends - self.clock.now))
        code = self.poll()
        if code is None:
            raise TimeoutError(f"{self.argv[0]} still runs after {timeout} s")
        return code

    def stop(self) -> None:
        self.stopped = self.stopped or self.poll() is None

    def stderr_tail(self) -> str:
        return self.reply.stderr


@dataclass(eq=False, slots=True)  # eq=False: two setups with the same undo command are still two
class FakeUndoing:
    """One entry of the undo list: a command, or a path to remove."""

    machine: FakeMachine
    what: Argv | PurePosixPath

    def undo(self) -> None:
        if self.machine.closed:
            raise MachineLost(f"{self.machine.path}: the guard is gone")
        self.machine.undo_one(self)


class FakeMachine(Machine):
    """Answers from a script and records everything that was asked of it."""

    def __init__(self, path: str = "host", answers: Answers | None = None, clock: FakeClock | None = None) -> None:
        self.path = path
        self.scratch = PurePosixPath("/scratch")
        self.clock = clock or FakeClock()
        self.calls: list[Argv] = []  # every command run, started or run as an undo, in order
        self.inputs: list[tuple[Argv, str]] = []  # the commands that were given standard input, with it
        self.processes: list[FakeProcess] = []  # everything started
        self.files: dict[PurePosixPath, bytes] = {}  # what was pushed, and what can be pulled
        self.undo_list: list[FakeUndoing] = []  # in the order it was set up
        self.undone: list[Argv | PurePosixPath] = []  # in the order it was tried
        self.closed = False
        self._answers = {key: _script(given) for key, given in (answers or {}).items()}

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        if input is not None:
            self.inputs.append((argv, input))
        reply = self._answer(argv)
        seconds = min(reply.seconds, timeout)
        self.clock.sleep(seconds)
        if reply.seconds > timeout:
            return Outcome(self.path, argv, -9, reply.stdout, reply.stderr, seconds, timed_out=True)
        return Outcome(self.path, argv, reply.code, reply.stdout, reply.stderr, seconds)

    def start(self, *argv: str) -> FakeProcess:
        process = FakeProcess(argv, 1000 + len(self.processes), self._answer(argv), self.clock)
        self.processes.append(process)
        return process

    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        self.files[target] = source.read_bytes()

    def undo_later(self, *argv: str, lasting: bool = False) -> Undoing:
        return self._remember(argv)

    def remove_later(self, path: PurePosixPath) -> Undoing:
        return self._remember(path)

    def reach(self, port: int) -> tuple[str, ...]:
        return ("-p", str(port))

    def close(self) -> None:
        self.undo_all()
        self.closed = True

    def undo_one(self, entry: FakeUndoing) -> None:
        """Undo one entry, as the guard does: it is struck off even where that fails, and a second time does nothing.

        An undo command succeeds unless something else is scripted for it.
        """
        if entry not in self.undo_list:
            return
        self.undo_list.remove(entry)
        self.undone.append(entry.what)
        if isinstance(entry.what, PurePosixPath):
            self.files = {file: data for file, data in self.files.items() if not file.is_relative_to(entry.what)}
        elif self._find(entry.what) is None:
            self.calls.append(entry.what)
        elif not (outcome := self.try_run(*entry.what)).ok:
            raise CommandFailed(outcome)

    def undo_all(self) -> None:
        """What the guard does when the connection ends: everything in reverse, going on after failures."""
        for entry in reversed(self.undo_list.copy()):
            try:
                self.undo_one(entry)
            except CommandFailed:
                continue

    def unused(self) -> list[Expected]:
        """Commands whose script was not used up: never asked, or a list not asked to its end."""
        return [key for key, script in self._answers.items() if not script.satisfied]

    def _remember(self, what: Argv | PurePosixPath) -> FakeUndoing:
        entry = FakeUndoing(self, what)
        self.undo_list.append(entry)
        return entry

    def _find(self, argv: Argv) -> _Script | None:
        if argv in self._answers:
            return self._answers[argv]
        return next((script for key, script in self._answers.items() if callable(key) and key(argv)), None)

    def _answer(self, argv: Argv) -> Reply:
        self.calls.append(argv)
        script = self._find(argv)
        if script is None:
            raise AssertionError(f"{self.path}: unknown command: {argv!r}")
        given = script.next(argv)
        if isinstance(given, Exception):
            raise given
        return Reply(given) if isinstance(given, str) else given


@dataclass(slots=True)
class _Script:
    given: list[Scripted]
    repeats: bool
    asked: int = 0

    @property
    def satisfied(self) -> bool:
        return self.asked >= len(self.given)

    def next(self, argv: Argv) -> Scripted:
        if self.satisfied and not self.repeats:
            raise AssertionError(f"asked more than the {len(self.given)} scripted times: {argv!r}")
        self.asked += 1
        return self.given[0] if self.repeats else self.given[self.asked - 1]


def _script(given: Scripted | Sequence[Scripted]) -> _Script:
    if isinstance(given, str | Reply | Exception):
        return _Script([given], repeats=True)
    return _Script(list(given), repeats=False)
