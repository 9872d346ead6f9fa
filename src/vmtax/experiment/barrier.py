"""Hold the commands of several guests until all have started: on a slow host, each takes another time for that."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import PurePosixPath
from typing import Any

from vmtax.core.machines import last_words
from vmtax.machine import Machine
from vmtax.machine.pipes import TooMuch, read_line

# Makes two pipes in a new directory, which it removes in the end. Prints a line when a command has written to the first
# one; passes a line from its input on to the second one, which that command reads. Constant text; $1 is the directory.
SERVE = (
    *("sh", "-c"),
    """umask 077; mkdir "$1" || exit 1; trap 'trap "" HUP TERM; rm -r "$1"' EXIT; trap 'exit 1' HUP TERM; """
    'mkfifo "$1/ready" "$1/go" && echo made || exit 1; read -r _ < "$1/ready"; echo ready; read -r _; echo > "$1/go"',
    "sh",
)
MAKE_SECONDS = 180.0  # a nested guest of a slow host takes minutes to start programs
LINE_SECONDS = 10.0  # for the rest of a line that has begun
POLL_SECONDS = 0.2


class BarrierError(Exception):
    """The barrier cannot be made on one machine, as the text says."""


class Held:
    """The command of one machine, which is or will be held there."""

    def __init__(self, machine: Machine, directory: PurePosixPath) -> None:
        """`directory`: there is none yet. Raises BarrierError if the pipes cannot be made, and MachineLost."""
        self._process = machine.start(*SERVE, str(directory))
        try:
            if read_line(self._process.stdout, time.monotonic() + MAKE_SECONDS) != b"made\n":
                words = last_words(self._process) or "no answer"
                raise BarrierError(f"{machine.path}: {directory} was not made: {words}")
        except (TimeoutError, TooMuch):
            self.close()
            raise BarrierError(f"{machine.path}: {directory} was not made within {MAKE_SECONDS:.0f} s") from None
        except BaseException:
            self.close()
            raise

    def is_ready(self, seconds: float) -> bool:
        """Whether it is ready, after at most these seconds; also if that cannot be known any more."""
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return False
        with contextlib.suppress(TimeoutError, TooMuch):
            read_line(self._process.stdout, time.monotonic() + LINE_SECONDS)
        return True

    def release(self) -> None:
        """Let the command go on."""
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        self._process.stop()


def wait_for(held: Sequence[Held], commands: Sequence[Future[Any]], deadline: float) -> None:
    """Wait until all are ready, a command has ended instead, or it is too late (monotonic clock)."""
    waiting = list(held)
    while waiting and time.monotonic() < deadline and not any(command.done() for command in commands):
        waiting = [each for each in waiting if not each.is_ready(POLL_SECONDS)]
