"""CPU cycles of a QEMU's threads, in guest code and outside of it, by the CPU's own counters.

The kernel switches these counters at each entry to guest code and each exit from it. `perf stat -e cycles:G,cycles:H`
asks it to do so; a small program asks with the same system call, so the machine needs no perf.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line, last_words
from vmtax.machine import Machine, Reader
from vmtax.machine.answer import counts_of
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.pipes import TooMuch, read_line

CYCLES = "0:0"  # PERF_TYPE_HARDWARE:PERF_COUNT_HW_CPU_CYCLES
OPEN_SECONDS, READ_SECONDS = 20.0, 10.0
READY = "ready"
NAMES = ("guest", "host")
ITSELF = "0"  # the thread that asks
# Arguments: an event as TYPE:NUMBER, then threads. It prints READY, or why it cannot count, and then answers each line
# with the counts of guest code and of the rest, which include threads that these threads start. 298 is
# perf_event_open. Of its attributes: 64 bytes are the first version; 3 asks for the times in which the event was
# enabled and counted, which differ where the CPU has fewer counters than events; the flags are inherit, exclude_host
# and exclude_guest. 3 among the errors is ESRCH: the thread has ended.
PROGRAM = """\
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
kind, number = map(int, sys.argv[1].split(":"))
INHERIT, ENDED = 1 << 1, 3
def opened(thread, exclude):
    attributes = struct.pack("<IIQQQQQ", kind, 64, number, 0, 0, 3, INHERIT | exclude).ljust(64, b"\\0")
    file = libc.syscall(298, attributes, ctypes.c_int(thread), -1, -1, 8)
    if file < 0 and ctypes.get_errno() != ENDED:
        sys.exit(print(os.strerror(ctypes.get_errno())))
    return file
def count(files):
    found = [struct.unpack("<QQQ", os.read(file, 24)) for file in files if file >= 0]
    return sum(value * enabled // counted for value, enabled, counted in found if counted)
threads = [int(word) for word in sys.argv[2:]]
sides = [[opened(thread, exclude) for thread in threads] for exclude in (1 << 19, 1 << 20)]
print("ready", flush=True)
for line in sys.stdin:
    print(*map(count, sides), flush=True)
"""


def why_no_cycles(machine: Reader) -> str | None:
    """Why that machine cannot count cycles, in one line; None if it can."""
    asked = machine.try_run(PYTHON, *ISOLATED, PROGRAM, CYCLES, ITSELF)  # its input has ended, so it ends
    return None if asked.stdout.strip() == READY else _words(asked.stdout.strip() or first_line(asked.stderr))


def _words(reason: str) -> str:
    return f"a PMU, and the right to use it (root, or kernel.perf_event_paranoid=1), are needed: {reason}"


class Cycles:
    """Those of one guest's QEMU, while it runs."""

    def __init__(self, parent: Machine, threads: Sequence[int], event: str = CYCLES) -> None:
        """Begin to count on the machine that the guest runs on. Raises CannotDo with what is missing there.

        threads: all of that QEMU, as that machine counts them
        """
        if not threads:
            raise CannotDo(f"{parent.path} cannot count CPU cycles: the threads of the guest's QEMU cannot be read")
        self._has_ended = False
        self._process = parent.start(PYTHON, *ISOLATED, PROGRAM, event, *map(str, threads))
        answer = self._line(OPEN_SECONDS)
        if answer != READY:
            words = answer or first_line(last_words(self._process)) or "no answer"
            self.end()
            raise CannotDo(f"{parent.path} cannot count CPU cycles: {_words(words)}")

    def read(self) -> dict[str, float]:
        """`guest` and `host`: cycles since the beginning, in guest code and in all else that these threads did.

        {} if they cannot be read any more.
        """
        found: dict[str, float] = {}
        if not self._has_ended:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()
                found = counts_of(self._line(READ_SECONDS), NAMES)
        if not found:
            self.end()  # an answer that comes late would be taken for the next one
        return found

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._process.stop()

    def _line(self, seconds: float) -> str:
        """What it prints next; "" if nothing comes."""
        try:
            return read_line(self._process.stdout, time.monotonic() + seconds).decode(errors="replace").strip()
        except (TimeoutError, TooMuch):
            return ""
