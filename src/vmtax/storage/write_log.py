"""The log of writes that QEMU's blklogwrites keeps: the format of the kernel's dm-log-writes.

The kernel's admin-guide/device-mapper/log-writes.rst and QEMU's block/blklogwrites.c: a sector with the superblock,
then for each request a sector with its header, followed by its data. A discard has none. QEMU logs a request when it
has been carried out and before it is completed, so the log is in the order of completion, and it goes as far as anybody
was told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.core.errors import CannotDo

MAGIC, VERSION = 0x6A736677736872, 1
SUPER = struct.Struct("<QQQL")  # magic, version, entries, bytes of a sector
HEADER = struct.Struct("<QQQQ")  # sector, sectors, flags, and what only marks have
FLUSH, DISCARD = 1, 4  # the flags that QEMU sets
USUAL_SECTOR = 512
EMPTY = "the log of writes is empty: nothing was written to the disk"


class BadLog(CannotDo):
    """It is no such log."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that was carried out. In bytes."""

    end: int  # of the entry, in the log
    offset: int  # on the disk
    length: int
    data: int  # where the data are in the log; 0: a discard, after which there are zeros
    is_flush: bool  # what was completed before it is on the disk


def entries(log: memoryview) -> Iterator[Entry]:
    """In their order, as far as they are whole: QEMU may have been killed while it wrote. Raises BadLog.

    Of the superblock only what does not change is used: how many entries there are is written at each flush alone.
    """
    size = _sector_size(log)
    at = size
    while at + HEADER.size <= len(log):
        sector, sectors, flags, _ = HEADER.unpack_from(log, at)
        if not (sector or sectors or flags):
            return  # room that was never written
        if flags & ~(FLUSH | DISCARD):
            raise BadLog(f"the log of writes has no entry at byte {at}")
        data = at + size
        at = data + (0 if flags & DISCARD else sectors * size)
        if at > len(log):
            return
        is_write = sectors > 0 and not flags & DISCARD
        yield Entry(at, sector * size, sectors * size, data if is_write else 0, bool(flags & FLUSH))


def _sector_size(log: memoryview) -> int:
    if len(log) < SUPER.size:
        raise BadLog(EMPTY)
    magic, version, _, size = SUPER.unpack_from(log)
    if magic == 0 and size == 0:
        return USUAL_SECTOR  # the superblock comes with the first flush, and there was none
    if magic != MAGIC or version != VERSION or size not in (512, 1024, 2048, 4096):
        raise BadLog("the log of writes does not begin as one of QEMU's")
    return int(size)
