"""Names of the writers of the workload durability, and the format of the records that they write.

A record is a number of sectors of 512 bytes. Each sector begins with a header (little endian): MAGIC, crc32 of the
writer's name, number of the record, number of the sector in it, crc32 of the rest of the sector. The rest is a slice of
a fixed pseudo-random pool, so that every sector's contents can be predicted, and no file system can compress it.

This file is part of the text that runs in the guest (source.py), so it imports the standard library only.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

MODES = ("append", "overwrite", "rename")
FLUSHES = ("fsync", "fdatasync", "dsync")
SIZES = {"4k": 4096, "16k": 16384, "64k": 65536, "256k": 262144, "1m": 1048576}  # bytes
CONTROL = "control"  # appends and never flushes: a correct check must find that its records are lost
# For each way to use SQLite, its PRAGMA synchronous. With FULL, a power cut may undo the last transaction of a rollback
# journal, because the directory is not flushed after the journal is deleted; EXTRA does that (sqlite.org/pragma.html).
SYNCHRONOUS = {"wal": "FULL", "rollback": "EXTRA", "rollback-full": "FULL"}
LYING = "lying-"  # prefix: acknowledges first, and flushes later

SECTOR = 512  # bytes: what a disk writes completely or not at all
MAGIC = b"\xd7vmtax\xb1\xe4"
FRONT = struct.Struct("<8sIQI")
SUM = struct.Struct("<I")
HEADER = FRONT.size + SUM.size
BODY = SECTOR - HEADER
POOL = 2**20  # bytes
# Bytes in the pool from one record to the next: the odd number nearest to POOL / 1.618, so that consecutive records
# have no bytes in common.
STRIDE = 648055
CHUNK = 2**24  # bytes that are searched at once


class Kind(NamedTuple):
    """What a writer does, parsed from its name."""

    mode: str  # one of MODES, sqlite or postgresql
    flush: str  # one of FLUSHES, or never; for SQLite one of SYNCHRONOUS; for PostgreSQL commit
    size: int  # bytes of a record
    lying: bool  # whether it acknowledges before it flushes


class SectorPlace(NamedTuple):
    """The identity in a sector's header."""

    name: str  # of the writer
    number: int  # of the record
    sector: int  # in the record


PLAIN = {
    CONTROL: ("append", "never", SIZES["4k"]),
    "sqlite-wal": ("sqlite", "wal", SECTOR),
    "sqlite-rollback": ("sqlite", "rollback", SECTOR),
    "sqlite-rollback-full": ("sqlite", "rollback-full", SECTOR),
    "postgresql": ("postgresql", "commit", SECTOR),
    **{f"{mode}-{flush}-{size}": (mode, flush, SIZES[size]) for mode in MODES for flush in FLUSHES for size in SIZES},
}


PLAIN_NAMES = [name for name, kind in PLAIN.items() if kind[0] not in MODES or name == CONTROL]


def writer_problem(name: str) -> str | None:
    """What is wrong with the name of a writer, and what would be right, in one line."""
    plain = name.removeprefix(LYING)
    if plain == CONTROL and name != CONTROL:
        return f"{name}: control never flushes, so it cannot flush late; write control"
    if plain in PLAIN:
        return None
    mode, *rest = plain.split("-")
    if mode == "sqlite":
        return f"{name}: must be {_either(name for name in PLAIN_NAMES if name.startswith(mode))}"
    if mode not in MODES:
        return f"{name}: must be {', '.join(PLAIN_NAMES)} or MODE-FLUSH-SIZE with the mode {_either(MODES)}"
    if len(rest) != 2:
        return f"{name}: must be {mode}-FLUSH-SIZE, like {mode}-fsync-4k"
    flush, size = rest
    if flush not in FLUSHES:
        return f"{name}: the flush must be {_either(FLUSHES)}, not {flush or 'empty'}"
    return f"{name}: the size must be {_either(SIZES)}, not {size or 'empty'}"


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"


def kind_of(name: str) -> Kind:
    """Parse the name of a writer, which must be valid."""
    return Kind(*PLAIN[name.removeprefix(LYING)], name.startswith(LYING))


@functools.cache
def _pool() -> bytes:
    """The pool followed by its beginning, so that a slice may begin anywhere in POOL."""
    pool = hashlib.shake_128(b"vmtax durability").digest(POOL)
    return pool + pool[:BODY]


@functools.lru_cache(256)
def _sum(name: str) -> int:
    return zlib.crc32(name.encode())


def record(name: str, number: int, size: int) -> bytes:
    """The record of that number; size is in bytes, a multiple of SECTOR."""
    pool, named, crc32 = _pool(), _sum(name), zlib.crc32
    front, total = FRONT.pack, SUM.pack
    at = (named + number * STRIDE) % POOL
    parts: list[bytes] = []
    for index in range(size // SECTOR):
        head, body = front(MAGIC, named, number, index), pool[at : at + BODY]
        parts += head, total(crc32(body, crc32(head))), body
        at = (at + BODY) % POOL
    return b"".join(parts)


def header(name: str, number: int, index: int) -> bytes:
    """The header of one sector."""
    head = FRONT.pack(MAGIC, _sum(name), number, index)
    at = (_sum(name) + number * STRIDE + index * BODY) % POOL
    return head + SUM.pack(zlib.crc32(_pool()[at : at + BODY], zlib.crc32(head)))


def place_of(sector: bytes, names: Iterable[str]) -> SectorPlace | None:
    """The identity of a sector; None unless it is a complete and right sector of one of these writers."""
    if len(sector) != SECTOR or not sector.startswith(MAGIC):
        return None
    _, named, number, index = FRONT.unpack_from(sector)
    (total,) = SUM.unpack_from(sector, FRONT.size)
    if total != zlib.crc32(sector[HEADER:], zlib.crc32(sector[: FRONT.size])):
        return None
    return next((SectorPlace(name, number, index) for name in names if _sum(name) == named), None)


def issued(data: bytes | memoryview, names: Iterable[str]) -> dict[str, int]:
    """For each of these writers, the highest record number whose header is anywhere in `data`.

    Writers without a header are left out; record 0, which fills a file before the first record, does not count. A
    header counts if it is right: all of it, including its crc32, follows from name, record and sector. The rest of its
    sector may be missing, because the record was issued nevertheless.
    """
    named = {_sum(name): name for name in names}
    highest: dict[str, int] = {}
    unpack = FRONT.unpack_from
    for start in range(0, len(data), CHUNK):
        chunk = bytes(data[start : start + CHUNK + HEADER - 1])
        at = chunk.find(MAGIC)
        while 0 <= at <= len(chunk) - HEADER:
            _, total, number, index = unpack(chunk, at)
            name = named.get(total)
            if name is not None and number > highest.get(name, 0):
                if not chunk.startswith(header(name, number, index), at):
                    at = chunk.find(MAGIC, at + 1)
                    continue
                highest[name] = number
            at = chunk.find(MAGIC, at + len(MAGIC))
    return highest
