"""Whose code a guest's vCPUs run, sampled with perf's task-clock event: guest mode, the host kernel or QEMU.

The kernel splits a thread's CPU time by its tick. A guest whose timer ticks as often as the host's can stay in step
with that tick: then the host always finds it in the same place, for as long as it runs. The task clock advances only
while the vCPU's thread runs, so it falls out of step with both ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line
from vmtax.machine import Machine, MachineLost
from vmtax.machine.answer import counts_of
from vmtax.machine.local import ISOLATED, PYTHON

PERIOD = 4_100_000  # ns of a thread's time between samples: about as often as a tick, and no multiple of one
NAMES = ("guest", "kernel", "user")
READY, ON, OFF, END = "ready", "on", "off", "end"
START_SECONDS, ASK_SECONDS = 20.0, 10.0
# Arguments: the period, then threads of one process. It prints READY, or why it cannot sample, and ends with the
# process, or after the line END. After the line ON it samples, after OFF no longer; it answers each of these, and an
# empty line, with the counts. 298 is perf_event_open. Of its attributes: 64 bytes are the first version, and the
# event is the task clock, a software event, which needs no PMU. A sample is only a header: its type (9), whose code
# was interrupted (1 the kernel's, 2 the program's, 4 and 5 a guest's), and its length. Samples are in a ring of four
# pages behind a first page with the ring's head and tail. It is emptied every five seconds, when a busy vCPU has
# filled 60 % of it; a record of lost samples has another type and is not counted. 3 among the errors is ESRCH: the
# thread has ended. An event that is closed costs the thread nothing. 2 is ENOENT: the process has ended before it was
# opened.
PROGRAM = """\
import ctypes, mmap, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
PAGE, RING = mmap.PAGESIZE, 4 * mmap.PAGESIZE
SAMPLE, MISSING, ENDED, HEAD, TAIL = 9, 2, 3, 1024, 1032
counts, rings = [0] * 8, {}
period, *threads = map(int, sys.argv[1:])
def begin():
    attributes = struct.pack("<IIQQQQQ", 1, 64, 1, period, 0, 0, 0).ljust(64, b"\\0")
    for thread in threads:
        file = libc.syscall(298, attributes, ctypes.c_int(thread), -1, -1, 8)
        if file >= 0:
            rings[file] = mmap.mmap(file, PAGE + RING)
        elif ctypes.get_errno() != ENDED:
            sys.exit(print(os.strerror(ctypes.get_errno())))
def empty():
    for ring in rings.values():
        head, tail = struct.unpack_from("<QQ", ring, HEAD)
        while tail < head:
            kind, whose, length = struct.unpack_from("<IHH", ring, PAGE + tail % RING)
            counts[whose & 7] += kind == SAMPLE
            tail += length
        struct.pack_into("<Q", ring, TAIL, head)
def stop():
    empty()
    for file, ring in rings.items():
        ring.close()
        os.close(file)
    rings.clear()
wait = select.poll()
wait.register(0, select.POLLIN)
try:
    begin()
    stop()
    with open(f"/proc/{threads[0]}/status") as status:
        process = os.pidfd_open(int(status.read().partition("Tgid:")[2].split()[0]))
    wait.register(process, select.POLLIN)
except OSError as error:
    if error.errno not in (ENDED, MISSING):
        sys.exit(print(error.strerror))
    process = None
print("ready", flush=True)
while process is not None:
    ready = dict(wait.poll(5000))
    empty()
    if process in ready:
        break
    if 0 in ready:
        asked = os.read(0, 4096).split()
        if b"end" in asked:
            break
        if asked:
            begin() if asked[-1] == b"on" else stop()
        print(counts[4] + counts[5], counts[1], counts[2], flush=True)
for name in ("ask", "answers"):
    os.unlink(name)
"""
# It runs in the background, with a FIFO each for questions and answers, because an ssh server allows few sessions at
# once. $1: directory of the FIFOs, which it removes at its end. Each is opened for reading and writing, so that no side
# waits for the other to open it. Errors are answers too, so that no reader waits for a program that could not start.
# Constant text.
START = (
    *("sh", "-c"),
    'cd "$1" && shift && mkfifo -m 600 ask answers && exec 3<>ask 4<>answers || exit; '
    '"$@" <&3 >&4 2>&4 3<&- 4<&- & IFS= read -r line <&4; echo "$line"',
    "sh",
)
# $1: that directory; $2: the question
ASK = (
    "sh",
    "-c",
    'cd "$1" && test -p ask && exec 3<>ask 4<>answers && echo "$2" >&3 && IFS= read -r line <&4 && echo "$line"',
    "sh",
)
# The same without an answer.
TELL = ("sh", "-c", 'cd "$1" && test -p ask && exec 3<>ask && echo "$2" >&3', "sh")


class Samples:
    """Those of one guest's vCPUs, while it runs."""

    def __init__(self, parent: Machine, directory: PurePosixPath, vcpus: Sequence[int]) -> None:
        """Start what samples, on the machine that the guest runs on; it ends with the guest's QEMU.

        directory: a directory there of the guest's own
        vcpus: the threads that run them, as that machine counts them

        Raises CannotDo if that may not be done there, and MachineLost.
        """
        if not vcpus:
            raise CannotDo("the threads of the guest's QEMU cannot be read")
        self._parent, self._directory = parent, str(directory)
        program = (PYTHON, *ISOLATED, PROGRAM, str(PERIOD), *map(str, vcpus))
        started = parent.try_run(*START, self._directory, *program, timeout=START_SECONDS)
        if started.stdout.strip() != READY:
            raise CannotDo(started.stdout.strip() or first_line(started.stderr) or "no answer")
        self._failed, self._is_on = "", False

    def switch(self, on: bool) -> str:
        """Sample from now on, or no longer: a sample, and each start of a vCPU's thread, costs time meanwhile.

        Returns why it cannot sample any more; "" if it can.
        """
        if on != self._is_on:
            self._is_on = on
            self._ask(ON if on else OFF)
        return self._failed

    def read(self) -> dict[str, float]:
        """Samples so far in `guest` mode, in the host's `kernel`, and in QEMU's own code (`user`).

        {} if they cannot be read any more.
        """
        return self._ask("")

    def _ask(self, question: str) -> dict[str, float]:
        if self._failed:
            return {}
        try:
            told = self._parent.try_run(*ASK, self._directory, question, timeout=ASK_SECONDS).stdout
            if found := counts_of(told, NAMES):
                return found
            self._failed = first_line(told) or "what samples no longer answers"
            # A late answer would be taken for the next one, and it must not go on sampling unasked.
            self._parent.try_run(*TELL, self._directory, END, timeout=ASK_SECONDS)
        except MachineLost as lost:
            self._failed = self._failed or str(lost)
        return {}
