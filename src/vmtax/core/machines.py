"""The interface of machines, and how a command fails."""

from __future__ import annotations

import contextlib
import shlex
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from vmtax.core.errors import CannotDo
from vmtax.core.systems import LINUX, Os


class Idle(float):
    """A limit for work: seconds in which neither a command nor its children use CPU, read or write. A plain number
    limits the whole time of a command; it is for waiting for somebody's answer, and for work of a known duration.
    """


DEFAULT_TIMEOUT = Idle(60.0)
LAST_WORDS_SECONDS = 10.0  # for a process to end whose standard output has ended
TAIL_LINES = 12  # lines of stderr that a failure shows


def how_ended(code: int) -> str:
    """An exit status in words; negative: killed by that signal."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"killed by signal {-code}"


def ran_out(code: int, seconds: float, limit: float) -> bool:
    """Whether timeout(1) ended a command: by the clock, because its kinds report that with codes of their own.

    coreutils: 124, 137 if it had to kill it; uutils: 125 then; busybox and toybox: 143, the signal's.
    """
    return code >= 124 and seconds >= limit


def first_line(text: str) -> str:
    """The first line of a program's output, as part of a message."""
    return text.strip().partition("\n")[0] or "it says nothing"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    path: str  # of the machine it ran on
    argv: tuple[str, ...]
    code: int  # exit status; negative: killed by that signal
    stdout: str
    stderr: str
    seconds: float  # wall time seen from outside
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out


class MachineError(CannotDo):
    """Any problem with a machine."""


class MachineLost(MachineError):
    """The machine no longer answers: connection cut, guest dead, host gone."""


class CommandStuck(MachineLost):
    """The machine answers, but a command does not end, even if it is killed: what it waits for may not answer, such as
    a disk.
    """

    def __init__(self, text: str, waiting: str) -> None:
        """`waiting`: the killed threads that still wait, with their stacks in the kernel as far as it shows them"""
        super().__init__(text)
        self.waiting = waiting


class CommandFailed(MachineError):
    """A command failed. The text names the machine and the argv, how the command ended and its last output."""

    def __init__(self, outcome: Outcome, remedy: str = "") -> None:
        self.outcome = outcome
        how = f"no end within {outcome.seconds:.0f} s" if outcome.timed_out else how_ended(outcome.code)
        words = (outcome.stderr.strip() or outcome.stdout.strip()).splitlines()[-TAIL_LINES:]
        lines = [f"{outcome.path}: {shlex.join(outcome.argv)}: {how}", *(f"  {line}" for line in words)]
        if remedy:
            lines.append(remedy)
        super().__init__("\n".join(lines))


class Process(Protocol):
    """A command that runs in the background, with pipes to us."""

    argv: tuple[str, ...]

    @property
    def pid(self) -> int:
        """Its process id on its machine."""
        ...

    @property
    def stdin(self) -> IO[bytes]: ...
    @property
    def stdout(self) -> IO[bytes]: ...
    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        ...

    def wait(self, timeout: float) -> int:
        """Wait for its exit status. Raises TimeoutError after `timeout` seconds."""
        ...

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after two seconds; returns when it is gone."""
        ...

    def stderr_tail(self) -> str:
        """The end of its stderr."""
        ...


def last_words(process: Process) -> str:
    """The end of the stderr of a process whose standard output has ended: it may print why until it ends itself."""
    with contextlib.suppress(TimeoutError):
        process.wait(LAST_WORDS_SECONDS)
    return process.stderr_tail().strip()


class Undoing(Protocol):
    """Something that was set up on a machine, and how to undo it."""

    def undo(self) -> None:
        """Undo it now, through the guard. Raises CommandFailed if that fails."""
        ...


class Reader(Protocol):
    """Runs commands to their end and sets nothing up: enough for reading. Every Machine is one."""

    path: str  # "host", "host/vm", ...

    def try_run(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        """Run to the end and return the outcome. Raises only MachineLost."""
        ...


class Machine(ABC):
    """This host, a host over SSH, or a guest. Commands are lists of arguments, never shell strings."""

    path: str  # "host", "host/vm", ...
    scratch: PurePosixPath  # a private directory on the machine; the guard removes it

    @abstractmethod
    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        """Run to the end and return the outcome. Raises only MachineLost."""

    @abstractmethod
    def start(self, *argv: str) -> Process:
        """Start in the background. The guard ends it when our connection ends."""

    @abstractmethod
    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        """Copy a local file to the machine."""

    @abstractmethod
    def undo_later(self, *argv: str, lasting: bool = False) -> Undoing:
        """Register durably in the guard's undo list that `argv` undoes what is about to be set up.

        `lasting`: what is set up survives a reboot of the machine (a volume, a partition), and is undone even then. Its
        name must be one that no other program would choose.
        """

    @abstractmethod
    def remove_later(self, path: PurePosixPath) -> Undoing:
        """Register in the guard's undo list that the file or directory `path` is ours and must be removed."""

    @abstractmethod
    def reach(self, port: int) -> tuple[str, ...]:
        """The ssh options to reach 127.0.0.1:port of this machine from here, for a guest on it."""

    @abstractmethod
    def close(self) -> None:
        """Undo everything that was set up on it, and end the connection."""

    @property
    def os(self) -> Os:
        return LINUX

    def answers(self) -> bool:
        """Whether it still executes commands. Raises MachineLost."""
        return self.succeeds("true")

    def run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT, remedy: str = "") -> str:
        """Standard output. Raises CommandFailed, whose text ends with `remedy`, if the exit status is not 0."""
        outcome = self.try_run(*argv, input=input, timeout=timeout)
        if not outcome.ok:
            raise CommandFailed(outcome, remedy)
        return outcome.stdout

    def succeeds(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> bool:
        """Whether the exit status is 0."""
        return self.try_run(*argv, timeout=timeout).ok

    def read_text(self, path: PurePosixPath | str) -> str:
        """The text of a file; raises CommandFailed if it cannot be read."""
        return self.run("cat", str(path))

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Create or replace a small file."""
        self.run("tee", str(path), input=text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"
