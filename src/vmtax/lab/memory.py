"""Reserve memory for labs: QEMU takes it only as its guest touches it, so not all that is free now is available."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vmtax.lab.home import LabError
from vmtax.lab.names import labs_directory
from vmtax.lab.spec import Size
from vmtax.machine.local import LocalMachine
from vmtax.machine.processes import marked
from vmtax.meter.memory import available_memory
from vmtax.meter.text import fields, kibibytes

QEMU_BYTES = 384 * 2**20  # besides the lab's memory: QEMU itself and its translated code
PROMISE = ".memory-"  # name prefix, followed by the token of a lab's start: a file with the bytes it may take


def promise_memory(local: LocalMachine, size: Size) -> None:
    """Reserve memory until everything that `local` set up is undone. Raises LabError if there is too little."""
    takes = size.memory_bytes + QEMU_BYTES
    with _alone():
        available, others = available_memory(local), promised()
        if available is not None and available - others < takes:
            less = f", {others / 2**30:.1f} GiB of them promised to labs that are up," if others else ""
            raise LabError(
                f"{available / 2**30:.1f} GiB of memory are available{less or ','} the lab takes "
                f"{takes / 2**30:.1f} GiB: end something, or give it less with --memory (2GiB carry a small guest)"
            )
        path = labs_directory() / f"{PROMISE}{local.token}"
        local.remove_later(PurePosixPath(path))
        path.write_text(str(takes))


def promised() -> int:
    """Bytes that labs which are up, or being started, may still take."""
    total = 0
    for path in labs_directory().glob(f"{PROMISE}*"):
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            takes = int(path.read_text())
            total += max(0, takes - _resident(path.name.removeprefix(PROMISE)))
    return total


def _resident(token: str) -> int:
    """Bytes that the processes of one start use already."""
    total = 0
    for pid in marked(token):
        with contextlib.suppress(OSError):
            total += kibibytes(fields(Path(f"/proc/{pid}/status").read_text()).get("VmRSS")) or 0
    return total


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Only one start at a time may check and reserve; this takes milliseconds."""
    descriptor = os.open(labs_directory(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
