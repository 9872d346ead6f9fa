"""Find out which acknowledged records of the workload durability are lost or torn in the directory of its writers.

A record is lost if it is missing, too short, or an older record is in its place. It is torn if one of its sectors is
neither its own nor one that may be there: a sector of another place, of another record, or no sector at all. Records
newer than the last acknowledged one may be present, present in part, or absent, except that a renamed file is always
complete.

This file is part of the text that runs in the guest (source.py), so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vmtax.workload.durability.postgresql import recovered
from vmtax.workload.durability.records import PLAIN, SECTOR, kind_of, place_of, record
from vmtax.workload.durability.writers import DATA, SLOTS, words_of

CACHE = 2**26  # bytes of expected records that are cached; growing files are not counted
MOST_WORDS = 300  # characters of a description
SELECT = "SELECT number, payload FROM records WHERE number <= ? ORDER BY number"


class Found(NamedTuple):
    """Errors in the records of one writer."""

    lost: int  # number of records
    torn: int  # number of records
    words: str  # the first error; empty if there is none


class Fault(NamedTuple):
    """An error in one record."""

    torn: bool  # otherwise lost
    words: str


class Expected:
    """The expected contents of records, cached because many states are compared with them."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], bytes] = {}  # the least recently used first
        self._bytes = 0
        self._files: dict[str, bytearray] = {}
        self._rows: dict[str, list[tuple[int, bytes]]] = {}

    def record(self, name: str, number: int) -> bytes:
        key = (name, number)
        data = self._records.pop(key, None)
        if data is None:
            data = record(name, number, kind_of(name).size)
            self._bytes += len(data)
            while self._bytes > CACHE and self._records:
                self._bytes -= len(self._records.pop(next(iter(self._records))))
        self._records[key] = data
        return data

    def file(self, name: str, count: int) -> bytearray:
        """At least records 1 to `count`, concatenated."""
        data = self._files.setdefault(name, bytearray())
        size = kind_of(name).size
        for number in range(len(data) // size + 1, count + 1):
            data += record(name, number, size)
        return data

    def rows(self, name: str, count: int) -> list[tuple[int, bytes]]:
        """Rows 1 to `count` of a database."""
        rows = self._rows.setdefault(name, [])
        rows += [(number, record(name, number, kind_of(name).size)) for number in range(len(rows) + 1, count + 1)]
        return rows[:count]


def check(directory: str, acknowledged: Mapping[str, int], expected: Expected | None = None) -> dict[str, Found]:
    """Errors in records 1 to the acknowledged number of each writer; writers that acknowledged none are left out."""
    expected = expected or Expected()
    return {name: _check(directory, name, last, expected) for name, last in acknowledged.items() if last > 0}


def _check(directory: str, name: str, last: int, expected: Expected) -> Found:
    kind = kind_of(name)
    path = os.path.join(directory, name, DATA)
    if kind.mode == "sqlite":
        return _database(path, name, last, expected)
    if kind.mode == "postgresql":
        return _recovered(os.path.dirname(path), name, last, expected)
    count, faults_of = {
        "append": (last, _appended),
        "overwrite": (SLOTS, _overwritten),
        "rename": (1, _renamed),
    }[kind.mode]
    try:
        # One byte more, to detect a file that is too long
        data = _read(path, count * kind.size + (kind.mode == "rename"))
    except OSError as error:
        return Found(min(count, last), 0, f"the file cannot be read: {error.strerror}")
    torn, words = [], ""
    for fault in faults_of(data, name, last, expected):
        torn.append(fault.torn)
        words = words or fault.words[:MOST_WORDS]
    return Found(torn.count(False), torn.count(True), words)


def _read(path: str, most: int) -> bytes:
    """Up to `most` bytes from the beginning of a file."""
    file = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while most and (part := os.read(file, most)):
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _appended(data: bytes, name: str, last: int, expected: Expected) -> Iterator[Fault]:
    size = kind_of(name).size
    right = expected.file(name, last)
    if len(data) == last * size and right.startswith(data):
        return
    for number in range(1, last + 1):
        span = slice((number - 1) * size, number * size)
        if data[span] != right[span]:
            yield from _faults(data[span], right[span], name, number)


def _overwritten(data: bytes, name: str, last: int, expected: Expected) -> Iterator[Fault]:
    size = kind_of(name).size
    for slot in range(SLOTS):
        # The newest record of that slot; record 0 filled the file at first
        number = max(0, last - (last - slot) % SLOTS)
        right = expected.record(name, number)
        if not data.startswith(right, slot * size):
            here = data[slot * size : (slot + 1) * size]
            for fault in _faults(here, right, name, number, range(slot, 2**64, SLOTS), newer=True):
                yield Fault(fault.torn, f"slot {slot}: {fault.words}")


def _renamed(data: bytes, name: str, last: int, expected: Expected) -> Iterator[Fault]:
    size = kind_of(name).size
    place = place_of(data[:SECTOR], (name,))
    number = max(place.number, last) if place else last
    right = expected.record(name, number)
    yield from _faults(data[:size], right, name, number, range(2**64))
    if data.startswith(right) and len(data) > size:
        yield Fault(True, f"record {number}: the file is longer than {size} bytes")


def _faults(
    data: bytes, right: bytes | bytearray, name: str, number: int, others: range = range(0), newer: bool = False
) -> Iterator[Fault]:
    """Yields the fault in `data`, which should hold the record of that number; nothing if it is right.

    `others`: numbers of records that were there before or come afterwards. A sector of a later record is right if
    `newer` records may be there in part. A record is lost if all of it is earlier, and torn if only a part is.
    """
    if not data or not data.strip(b"\0"):  # checked first, because there may be thousands
        yield Fault(False, f"record {number} is {'zeros' if len(data) == len(right) else 'missing: the file ends'}")
        return
    count = len(right) // SECTOR
    bad: list[tuple[int, Fault]] = []  # each with the index of its sector
    for index in range(count):
        span = slice(index * SECTOR, (index + 1) * SECTOR)
        if data[span] != right[span] and (fault := _sector(data[span], name, number, index, others, newer)):
            bad.append((index, fault))
    if not bad:
        return
    foreign = [one for one in bad if one[1].torn]
    index, (_, words) = [*foreign, *bad][0]
    if not foreign and len(bad) == count:
        yield Fault(False, f"record {number} is {words}")
    else:
        torn = bool(foreign) or len(data) == len(right)
        yield Fault(torn, f"sector {index} of record {number} is {words}")


def _sector(data: bytes, name: str, number: int, index: int, others: range, newer: bool) -> Fault | None:
    """The fault in a sector that is not the record's own; None if a sector of a later record may be there and is."""
    if len(data) < SECTOR:
        return Fault(False, "missing: the file ends")
    if not data.strip(b"\0"):
        return Fault(False, "zeros")
    place = place_of(data, (name, *PLAIN))
    if place is None:
        return Fault(True, "a sector of no record")
    if place.name == name and place.sector == index and (place.number == 0 or place.number in others):
        if place.number < number:
            return Fault(False, f"still record {place.number}")
        if newer:
            return None
    whose = "" if place.name == name else f" of {place.name}"
    return Fault(True, f"sector {place.sector} of record {place.number}{whose}")


def _database(path: str, name: str, last: int, expected: Expected) -> Found:
    """Faults of a database after SQLite has recovered it, which happens when it is opened."""
    if not os.path.exists(path):  # SQLite would create it
        return Found(last, 0, "the database is missing")
    want = expected.rows(name, last)
    have: list[tuple[int, bytes]] | None = None
    damage = ""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = OFF")  # recovery need not be durable
            rows = database.execute("PRAGMA integrity_check(1)").fetchall()
            if rows != [("ok",)]:
                damage = f"integrity_check: {' '.join(str(rows[0][0]).split())}"
            have = database.execute(SELECT, (last,)).fetchall()
    except sqlite3.Error as error:
        damage = damage or f"SQLite: {words_of(error)}"
    lost, words = 0, ""
    if have is not None and have != want:
        payloads = dict(have)
        wrong = [number for number, payload in want if payloads.get(number) != payload]
        lost = len(wrong)
        if wrong:
            words = f"row {wrong[0]} {'has another payload' if wrong[0] in payloads else 'is missing'}"
        else:
            damage = damage or "the rows are not in the order of their numbers"
    return Found(lost, int(bool(damage)), (damage or words)[:MOST_WORDS])


def _recovered(directory: str, name: str, last: int, expected: Expected) -> Found:
    """Faults of the database that a PostgreSQL server has recovered.

    A row may be present without having been acknowledged; then it must be right, and so must all rows before it.
    """
    rows, damage = recovered(directory)
    if rows is None:
        return Found(last, 1, damage[:MOST_WORDS])
    newest = last + sum(not 1 <= number <= last for number in rows)  # if there is no gap
    wrong = [number for number, payload in expected.rows(name, newest) if rows.get(number) != payload]
    words = f"row {wrong[0]} {'has another payload' if wrong[0] in rows else 'is missing'}" if wrong else ""
    lost = sum(number <= last for number in wrong)
    return Found(lost, int(bool(damage) or lost < len(wrong)), (damage or words)[:MOST_WORDS])
