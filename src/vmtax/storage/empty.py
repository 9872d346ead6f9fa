"""Find out whether a block device holds anything but zeros.

A small device is read completely. Of a larger one, both ends are read, the places where file systems keep copies of
their superblock, and enough random blocks that data in 1 % of it is missed once in 10^9.
"""

from __future__ import annotations

import math

from vmtax.core.units import format_room
from vmtax.machine import Machine
from vmtax.machine.answer import whole_of
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.storage.file import StorageError

MIB = 2**20
SHARE = 0.01  # of a device's blocks that hold data; with more than that, sampling almost never misses them
MISS = 1e-9  # the probability that it does
SAMPLES = math.ceil(math.log(MISS) / math.log(1 - SHARE))  # 2062 blocks of 1 MiB
WHOLE_BYTES = 4 * 2**30  # devices up to this size are read completely
ENDS_BYTES = 64 * MIB  # read at both ends of a larger device: partition tables, superblocks of arrays, labels of pools
SECONDS = 120.0  # to give up after; 2062 blocks of a hard disk take 40 s
# Prints "data OFFSET", "late COUNT" or "empty". Reads blocks in order, bypassing the page cache. Constant text.
LOOK = (
    *(PYTHON, *ISOLATED),
    """import mmap, os, random, sys, time
path, samples, whole, ends, seconds = sys.argv[1], *map(int, sys.argv[2:])
BLOCK = 2**20
try:
    device = os.open(path, os.O_RDONLY | os.O_DIRECT)
except OSError:
    device = os.open(path, os.O_RDONLY)
size = os.lseek(device, 0, os.SEEK_END)
count = -(-size // BLOCK)
if size <= whole:
    wanted = range(count)
else:
    end = ends // BLOCK
    copies = {size * part // 4 // BLOCK for part in (1, 2, 3)} | {2**power for power in range(count.bit_length() - 1)}
    wanted = sorted({*range(end), *range(count - end - 1, count), *copies, *random.sample(range(count), samples)})
buffer, zeros = mmap.mmap(-1, BLOCK), bytes(BLOCK)
until = time.monotonic() + seconds
for number, block in enumerate(wanted):
    if time.monotonic() > until:
        sys.exit(print("late", number))
    try:
        got = os.preadv(device, [buffer], block * BLOCK)
    except OSError as error:
        sys.exit(f"byte {block * BLOCK} cannot be read: {error.strerror}")
    found = buffer[:got]
    if found != zeros[:got]:
        sys.exit(print("data", block * BLOCK + got - len(found.lstrip(b"\\0"))))
print("empty")""",
)
NUMBERS = tuple(map(str, (SAMPLES, WHOLE_BYTES, ENDS_BYTES, int(SECONDS))))


def refuse_data(machine: Machine, device: str) -> None:
    """Raises StorageError if the device holds data, or if that cannot be determined in time."""
    allow = f"--erase {device} lets it be lost"
    answer, _, number = machine.run(*LOOK, device, *NUMBERS, timeout=SECONDS + 30).strip().partition(" ")
    if answer == "data":
        at = whole_of(machine, f"the first byte of {device} that is not 0", number)
        place = f"byte {at}, after {format_room(at)}"
        raise StorageError(f"{machine.path}: {device} holds data of an unknown kind (at {place}); {allow}")
    if answer == "late":
        raise StorageError(
            f"{machine.path}: {device} is too slow to see in {SECONDS:.0f} s whether it is empty; whatever it holds, "
            + allow
        )
    if answer != "empty":
        raise StorageError(f"{machine.path}: {device} was not looked at, {PYTHON} there answered {answer!r}; {allow}")
