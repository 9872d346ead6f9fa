"""Read the log of writes that QEMU's blklogwrites keeps, in the format of the kernel's dm-log-writes.

See the kernel's admin-guide/device-mapper/log-writes.rst and QEMU's block/blklogwrites.c: a sector with the superblock,
then for each request a sector with its header, followed by its data; a discard has no data. QEMU logs a request after
carrying it out and before completing it, so the log is in the order of completion and holds every request whose
completion was reported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from vmtax.core.errors import CannotDo

MAGIC, VERSION = 0x6A736677736872, 1
SUPER = struct.Struct("<QQQL")  # magic, version, entries, bytes of a sector
HEADER = struct.Struct("<QQQQ")  # sector, sectors, flags, and a field that only marks use
FLUSH, DISCARD = 1, 4  # the flags that QEMU sets
USUAL_SECTOR = 512
EMPTY = "the log of writes is empty: nothing was written to the disk"


class BadLog(CannotDo):
    """The file is no such log."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request that was carried out. All numbers are bytes."""

    end: int  # end of the entry in the log
    offset: int  # offset on the disk
    length: int
    data: int  # offset of the data in the log; 0: a discard, after which the blocks are zeros
    is_flush: bool  # everything completed before it is on the disk


def entries(log: memoryview) -> Iterator[LoggedRequest]:
    """The entries in their order, up to the last complete one: QEMU may have been killed while it wrote. Raises BadLog.

    Only constant fields of the superblock are used: the number of entries is updated only by flushes.
    """
    size = _sector_size(log)
    at = size
    while at + HEADER.size <= len(log):
        sector, sectors, flags, _ = HEADER.unpack_from(log, at)
        if not (sector or sectors or flags):
            return  # space that was never written
        if flags & ~(FLUSH | DISCARD):
            raise BadLog(f"the log of writes has no entry at byte {at}")
        data = at + size
        at = data + (0 if flags & DISCARD else sectors * size)
        if at > len(log):
            return
        is_write = sectors > 0 and not flags & DISCARD
        yield LoggedRequest(at, sector * size, sectors * size, data if is_write else 0, bool(flags & FLUSH))


def _sector_size(log: memoryview) -> int:
    if len(log) < SUPER.size:
        raise BadLog(EMPTY)
    magic, version, _, size = SUPER.unpack_from(log)
    if magic == 0 and size == 0:
        return USUAL_SECTOR  # the superblock is written by the first flush, and there was none
    if magic != MAGIC or version != VERSION or size not in (512, 1024, 2048, 4096):
        raise BadLog("the log of writes does not begin as one of QEMU's")
    return int(size)
