"""Where a guest's vCPUs were, in guest code or outside of it, sampled by a clock of each vCPU's own.

The kernel divides a thread's time by its tick. A guest whose timer ticks as often as the host's can stay in step with
that tick: then the host always finds it in the same place, for as long as it runs. The clock here runs only while the
vCPU's thread runs, so it falls out of step with both.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.core.errors import CannotDo
from vmtax.hypervisor.qemu.answering import Answering
from vmtax.machine import Machine

PERIOD = 4_100_000  # ns of a thread's time between samples: about as often as a tick, and no multiple of one
NAMES = ("guest", "kernel", "user")
# Arguments: the period, then threads. It prints READY, or why it cannot sample, and then answers each line with the
# counts. 298 is perf_event_open. Of its attributes: 64 bytes are the first version, and the event is the clock of the
# task, a software event, which needs no PMU. A sample is only a header: its type (9), whose code was interrupted (1 the
# kernel's, 2 the program's, 4 and 5 a guest's), and its length. Samples are in a ring of four pages behind a first page
# with the ring's head and tail; it is emptied every five seconds, when it can be half full. 3 among the errors is
# ESRCH: the thread has ended.
PROGRAM = """\
import ctypes, mmap, os, select, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
PAGE, RING = mmap.PAGESIZE, 4 * mmap.PAGESIZE
SAMPLE, ENDED, HEAD, TAIL = 9, 3, 1024, 1032
counts = [0] * 8
def opened(thread, period):
    attributes = struct.pack("<IIQQQQQ", 1, 64, 1, period, 0, 0, 0).ljust(64, b"\\0")
    file = libc.syscall(298, attributes, ctypes.c_int(thread), -1, -1, 8)
    if file >= 0:
        return mmap.mmap(file, PAGE + RING)
    if ctypes.get_errno() != ENDED:
        sys.exit(print(os.strerror(ctypes.get_errno())))
def empty(ring):
    head, tail = struct.unpack_from("<QQ", ring, HEAD)
    while tail < head:
        kind, whose, length = struct.unpack_from("<IHH", ring, PAGE + tail % RING)
        counts[whose & 7] += kind == SAMPLE
        tail += length
    struct.pack_into("<Q", ring, TAIL, head)
period, *threads = map(int, sys.argv[1:])
rings = [ring for thread in threads if (ring := opened(thread, period))]
print("ready", flush=True)
while True:
    is_asked = select.select([0], [], [], 5)[0]
    for ring in rings:
        empty(ring)
    if is_asked:
        if not os.read(0, 4096):
            break
        print(counts[4] + counts[5], counts[1], counts[2], flush=True)
"""


class Samples:
    """Those of one guest's vCPUs, while it runs."""

    def __init__(self, parent: Machine, vcpus: Sequence[int]) -> None:
        """Begin to sample on the machine that the guest runs on. Raises CannotDo if that may not be done there.

        vcpus: the threads that run them, as that machine counts them
        """
        if not vcpus:
            raise CannotDo("the threads of the guest's QEMU cannot be read")
        self._program = Answering(parent, PROGRAM, str(PERIOD), *map(str, vcpus))

    def read(self) -> dict[str, float]:
        """Samples since the beginning in `guest` code, in the `kernel`, and in QEMU's own code (`user`).

        {} if they cannot be read any more.
        """
        return self._program.read(NAMES)

    def end(self) -> None:
        self._program.end()
