"""A small program that runs beside a QEMU, and answers each line on its input with a line of counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.machine import Machine
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.pipes import TooMuch, read_line

OPEN_SECONDS, READ_SECONDS = 20.0, 10.0
READY = "ready"


class Answering:
    """That program, until it is ended."""

    def __init__(self, machine: Machine, program: str, *arguments: str) -> None:
        """Start the Python `program` there. It prints READY, or why it cannot count: that is raised as CannotDo."""
        self.process = machine.start(PYTHON, *ISOLATED, program, *arguments)
        self._has_ended = False
        answer = self._line(OPEN_SECONDS)
        if answer != READY:
            words = answer or first_line(self.process.stderr_tail()) or "no answer"
            self.end()
            raise CannotDo(words)

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """The counts that it answers, by their names. {} if it does not answer any more."""
        found: dict[str, float] = {}
        if not self._has_ended:
            with contextlib.suppress(OSError):
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()
                found = parse(self._line(READ_SECONDS), names)
        if not found:
            self.end()  # an answer that comes late would be taken for the next one
        return found

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.process.stop()

    def _line(self, seconds: float) -> str:
        """What it prints next; "" if nothing comes."""
        try:
            return read_line(self.process.stdout, time.monotonic() + seconds).decode(errors="replace").strip()
        except (TimeoutError, TooMuch):
            return ""


def parse(text: str, names: Sequence[str]) -> dict[str, float]:
    """Of an answer; {} if it is not one count for each name. Pure."""
    words = text.split()
    if len(words) != len(names) or not all(word.isascii() and word.isdigit() and len(word) <= 20 for word in words):
        return {}
    return dict(zip(names, map(float, words), strict=True))
