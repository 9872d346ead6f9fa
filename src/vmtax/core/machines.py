"""What every machine can do, and how a command fails."""

from __future__ import annotations

import contextlib
import shlex
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from vmtax.core.errors import CannotDo

DEFAULT_TIMEOUT = 60.0  # seconds; everything has a limit, this is the one for quick commands
TAIL_LINES = 12  # how much of stderr a failure shows


def how_ended(code: int) -> str:
    """In words, for an exit status; negative: killed by that signal."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {-code} ({signal.Signals(-code).name})"
    return f"killed by signal {-code}"


def first_line(text: str) -> str:
    """Of what a program printed, as part of a message."""
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
    """Anything that goes wrong with a machine."""


class MachineLost(MachineError):
    """The machine no longer answers: connection cut, guest dead, host gone."""


class CommandFailed(MachineError):
    """A command ended badly. The text names the machine and the argv, how it ended and its last words."""

    def __init__(self, outcome: Outcome, remedy: str = "") -> None:
        self.outcome = outcome
        how = f"no end within {outcome.seconds:.0f} s" if outcome.timed_out else how_ended(outcome.code)
        words = (outcome.stderr.strip() or outcome.stdout.strip()).splitlines()[-TAIL_LINES:]
        lines = [f"{outcome.path}: {shlex.join(outcome.argv)}: {how}", *(f"  {line}" for line in words)]
        if remedy:
            lines.append(remedy)
        super().__init__("\n".join(lines))


class Process(Protocol):
    """A command running in the background, its pipes in our hands."""

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
        """Exit status; raises TimeoutError after `timeout` seconds."""
        ...

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after two seconds; returns when it is gone."""
        ...

    def stderr_tail(self) -> str:
        """What it last wrote to stderr."""
        ...


class Undoing(Protocol):
    """Something set up on a machine together with how to undo it."""

    def undo(self) -> None:
        """Undo it now, through the guard; raises CommandFailed when that does not work."""
        ...


class Reader(Protocol):
    """What runs commands to their end and sets nothing up: all that reading takes. Every Machine is one."""

    path: str  # "host", "host/vm", ...

    def try_run(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        """Run to the end and say how it went. Raises MachineLost only."""
        ...


class Machine(ABC):
    """This host, a host over SSH, or a guest. Commands are lists of arguments, never shell strings."""

    path: str  # "host", "host/vm", ...
    scratch: PurePosixPath  # a private directory on the machine; the guard removes it

    @abstractmethod
    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        """Run to the end and say how it went. Raises MachineLost only."""

    @abstractmethod
    def start(self, *argv: str) -> Process:
        """Start in the background. The guard ends it when our connection ends."""

    @abstractmethod
    def push(self, source: Path, target: PurePosixPath, timeout: float = 600.0) -> None:
        """Copy a file of ours to the machine."""

    @abstractmethod
    def undo_later(self, *argv: str, lasting: bool = False) -> Undoing:
        """Write to the guard's undo list, durably, that `argv` undoes what is about to be set up.

        `lasting`: what is set up outlives a reboot of the machine (a volume, a partition), and then is undone too. It
        must be known by a name that no other program would choose.
        """

    @abstractmethod
    def remove_later(self, path: PurePosixPath) -> Undoing:
        """Write to the guard's undo list that the file or directory `path` is ours and must go."""

    @abstractmethod
    def reach(self, port: int) -> tuple[str, ...]:
        """The ssh options that reach 127.0.0.1:port of this machine from here, for a guest on it."""

    @abstractmethod
    def close(self) -> None:
        """Undo everything set up on it, and end the connection."""

    def run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT, remedy: str = "") -> str:
        """Standard output; raises CommandFailed, which ends with `remedy`, when it does not exit with 0."""
        outcome = self.try_run(*argv, input=input, timeout=timeout)
        if not outcome.ok:
            raise CommandFailed(outcome, remedy)
        return outcome.stdout

    def succeeds(self, *argv: str, timeout: float = DEFAULT_TIMEOUT) -> bool:
        """Whether the command exits with 0."""
        return self.try_run(*argv, timeout=timeout).ok

    def read_text(self, path: PurePosixPath | str) -> str:
        """The text of a file; raises CommandFailed if it cannot be read."""
        return self.run("cat", str(path))

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Make or replace a small file."""
        self.run("tee", str(path), input=text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"
