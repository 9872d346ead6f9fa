"""Rebuild, from QEMU's log of writes, states in which a disk may be found after its host lost power. Local files.

A moment is a place in the log. Everything completed before the last flush is on the disk then; of the writes completed
after it, all may be there, or some may be missing, or have arrived only in part. That is what a drive, or a kernel's
page cache, guarantees. Not modelled: a flush that does nothing, and the layers below the disk whose writes were logged.
A write that was in flight during a flush counts as flushed if it was completed first.
"""

from __future__ import annotations

import bisect
import mmap
import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vmtax.storage.write_log import EMPTY, BadLog, LoggedRequest, entries

BLOCK = 4096  # bytes that a drive writes completely or not at all
CHUNK_BLOCKS = 256  # blocks that are written at once
COMPARED_BYTES = 2**20  # of two disks that are compared at a time
TRIES = 10  # draws per state that is wanted, before giving up on finding more different ones
Acknowledged = Mapping[str, int]  # writer -> records


@dataclass(frozen=True, slots=True)
class CutMoment:
    """A state of the disk: a place in the log, and the fate of the writes since the last flush before it."""

    place: int  # number of entries that were carried out
    seed: int | None  # selects the missing writes; None: all of them arrived


@dataclass
class History:
    """All writes to a disk, and the states in which it may be found."""

    log: memoryview
    entries: Sequence[LoggedRequest]
    _flushed: list[int] = field(init=False)  # for each place, how many entries are flushed

    def __post_init__(self) -> None:
        self._flushed = [0]
        for place, entry in enumerate(self.entries, 1):
            self._flushed.append(place if entry.is_flush else self._flushed[-1])

    def place(self, end: int) -> int:
        """How many entries end within the first `end` bytes of the log."""
        return bisect.bisect_right(self.entries, end, key=lambda entry: entry.end)

    def flushed(self, place: int) -> int:
        """How many of the first `place` entries are certainly on the disk: those up to the last flush."""
        return self._flushed[place]

    def unflushed(self, place: int) -> Sequence[LoggedRequest]:
        """Those of the first `place` entries that come after the last flush."""
        return self.entries[self.flushed(place) : place]

    def moments(self, first: int, count: int, seed: int) -> list[CutMoment]:
        """At most `count` different moments from place `first` on, in their order; the end of the log is always among
        them.

        Up to half of them have every write, at places right after a write; fewer if there are not enough such places.
        The others lack some writes that were not flushed, if there are any. A short log has fewer moments.
        """
        draw = random.Random(seed)
        end = len(self.entries)
        writes = [place for place in range(max(first, 1), end) if self.entries[place - 1].length]
        whole = writes if len(writes) < count // 2 else draw.sample(writes, count // 2 - 1)
        unflushed = [place for place in (*writes, end) if place > self.flushed(place)]
        partly: dict[object, CutMoment] = {}
        for _ in range(TRIES * count if unflushed else 0):
            if len(whole) + 1 + len(partly) >= count:
                break
            moment = CutMoment(draw.choice(unflushed), draw.getrandbits(32))
            partly.setdefault((moment.place, tuple(sorted(self.missing(moment).items()))), moment)
        found = [*(CutMoment(place, None) for place in (*whole, end)), *partly.values()]
        return sorted(found, key=lambda moment: (moment.place, moment.seed is not None))

    def missing(self, moment: CutMoment) -> dict[int, frozenset[int]]:
        """The blocks of entries that did not arrive: of one, some or all of the entries after the last flush.

        One missing write shows what depends on it; missing all of them shows what was never flushed.
        """
        if moment.seed is None:
            return {}
        draw, first = random.Random(moment.seed), self.flushed(moment.place)
        writes = [place for place in range(first, moment.place) if self.entries[place].length]
        several = draw.choice((1, draw.randint(1, len(writes)), len(writes))) if writes else 0
        return {place: self._lost_blocks(place, draw) for place in draw.sample(writes, several)}

    def _lost_blocks(self, place: int, draw: random.Random) -> frozenset[int]:
        """All of the entry's blocks, or some of them."""
        blocks = range(-(-self.entries[place].length // BLOCK))
        return frozenset(blocks if draw.random() < 0.5 else draw.sample(blocks, draw.randint(1, len(blocks))))


@contextmanager
def opened(log: Path, since: int = 0) -> Iterator[History]:
    """The history in a log, without the entries that end within its first `since` bytes. Raises BadLog."""
    if not log.stat().st_size:  # the kernel cannot map an empty file
        raise BadLog(EMPTY)
    with (
        log.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        yield History(view, tuple(entry for entry in entries(view) if entry.end > since))


class ReplayedDisk:
    """The disk of a history at one moment after another, in a file that is rewritten for each."""

    def __init__(self, history: History, before: Path, flushed: Path) -> None:
        """`before`: the disk before anything was written; `flushed`: path of a file to make, for what is certainly on
        the disk
        """
        self._history, self._place = history, 0
        self._flushed = os.open(flushed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        copy_sparse(before, self._flushed)

    def close(self) -> None:
        os.close(self._flushed)

    def write(self, moment: CutMoment, target: Path) -> None:
        """Write the disk's contents at that moment to the existing file `target`. Moments must not go back."""
        flushed = self._history.flushed(moment.place)
        for entry in self._history.entries[self._place : flushed]:
            _carry_out(self._history.log, entry, self._flushed)
        self._place = max(self._place, flushed)
        file = os.open(target, os.O_RDWR)
        try:
            os.ftruncate(file, 0)
            copy_sparse(self._flushed, file)
            missing = self._history.missing(moment)
            for place in range(flushed, moment.place):
                _carry_out(self._history.log, self._history.entries[place], file, missing.get(place, frozenset()))
        finally:
            os.close(file)


def _carry_out(log: memoryview, entry: LoggedRequest, file: int, without: Collection[int] = ()) -> None:
    """Carry out one request of the log, without these of its blocks."""
    number, last = 0, -(-entry.length // BLOCK)
    while number < last:
        if number in without:
            number += 1
            continue
        end = number + 1
        while end < last and end - number < CHUNK_BLOCKS and end not in without:
            end += 1
        start, length = number * BLOCK, min(end * BLOCK, entry.length) - number * BLOCK
        # Bytes, not a view: an exception's traceback would keep a view alive, and so the log mapped.
        data = bytes(log[entry.data + start :][:length]) if entry.data else bytes(length)
        os.pwrite(file, data, entry.offset + start)
        number = end


def is_rebuilt(history: History, place: int, before: Path, scratch: Path, disk: Path) -> bool:
    """Whether a disk equals `before` after its first `place` entries; `scratch`: a file to use for that."""
    file = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        copy_sparse(before, file)
        for entry in history.entries[:place]:
            _carry_out(history.log, entry, file)
        other = os.open(disk, os.O_RDONLY)
        try:
            return _are_same(file, other)
        finally:
            os.close(other)
    finally:
        os.close(file)
        scratch.unlink()


def _are_same(one: int, other: int) -> bool:
    """Whether two files have the same contents; holes in both are not read."""
    size, at = os.fstat(one).st_size, 0
    if os.fstat(other).st_size != size:
        return False
    while (at := min(_next_data(one, at, size), _next_data(other, at, size))) < size:
        if os.pread(one, COMPARED_BYTES, at) != os.pread(other, COMPARED_BYTES, at):
            return False
        at += COMPARED_BYTES
    return True


def _next_data(file: int, at: int, size: int) -> int:
    """Offset of the next data from there on, which may be zeros; `size` if there is none."""
    try:
        return os.lseek(file, at, os.SEEK_DATA)
    except OSError:  # ENXIO: no data after it
        return size


def copy_sparse(source: Path | int, target: int) -> None:
    """Copy the whole file, keeping its holes. `target`: a new or empty file."""
    file = source if isinstance(source, int) else os.open(source, os.O_RDONLY)
    try:
        size = os.fstat(file).st_size
        os.ftruncate(target, size)
        at = 0
        while at < size:
            try:
                at = os.lseek(file, at, os.SEEK_DATA)
            except OSError:  # ENXIO: no data after it
                return
            end = os.lseek(file, at, os.SEEK_HOLE)
            while at < end:
                at += os.copy_file_range(file, target, end - at, at, at)
    finally:
        if not isinstance(source, int):
            os.close(file)


def known(
    history: History, heard: Sequence[tuple[int, Acknowledged]], written: Callable[[memoryview], Acknowledged]
) -> list[Acknowledged]:
    """What had certainly been acknowledged after each number of entries, starting with none.

    `heard`: pairs in order: the length of the log in bytes, and the acknowledgements known by then. The length was read
    after the acknowledgements arrived, so entries that end beyond it were written after them.
    `written`: finds the highest number of each writer's records in some data. Writers acknowledge a record before they
    write the next one.
    """
    found: list[Acknowledged] = []
    pairs, latest = list(heard), dict[str, int]()
    for end, data in ((0, memoryview(b"")), *((entry.end, _data(history, entry)) for entry in history.entries)):
        while pairs and pairs[0][0] <= end:
            latest = most(latest, pairs.pop(0)[1])
        latest = most(latest, {name: number - 1 for name, number in written(data).items()})
        found.append(latest)
    return found


def _data(history: History, entry: LoggedRequest) -> memoryview:
    return history.log[entry.data :][: entry.length] if entry.data else memoryview(b"")


def most(one: Acknowledged, other: Acknowledged) -> dict[str, int]:
    """The higher number for each writer of either."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
