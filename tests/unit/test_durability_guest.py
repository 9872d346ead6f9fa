"""The program of plan `durability` in the guest: what it acknowledges when, and that it finds whatever is damaged."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmtax.workload.durability import guest, records, writers
from vmtax.workload.durability.checks import Expected, Found, check
from vmtax.workload.durability.records import FLUSHES, LYING, MAGIC, MODES, PLAIN, SECTOR, issued, record
from vmtax.workload.durability.source import guest_source
from vmtax.workload.durability.writers import LIE, SLOTS

FINE = Found(0, 0, "")
PROGRAM = (sys.executable, "-I", "-S", "-c", guest_source())
COUNT = SLOTS + 5  # records: each slot but some is overwritten
LATE_SECONDS = 60.0  # what has not ended by then hangs


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the disk, or for what others write to it."""
    monkeypatch.setattr(writers, "sync", lambda directory: None)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


def written(directory: Path, *names: str, count: int = COUNT) -> dict[str, list[str]]:
    """Let each writer write that many records; the lines of each."""
    lines: list[str] = []
    for name in names:
        size = writers.PAGE if "sqlite" in name else records.kind_of(name).size
        assert writers.write(str(directory), count * size, [name], lines.append)
    return {name: [line for line in lines if name in line.split()] for name in names}


def one(directory: Path, name: str, last: int = COUNT) -> Found:
    return check(str(directory), {name: last})[name]


# Names.


def test_names() -> None:
    assert len(PLAIN) == len(MODES) * len(FLUSHES) * 5 + 5
    assert not [name for name in PLAIN if records.writer_problem(name)]
    assert records.writer_problem("lying-append-dsync-64k") is None
    assert records.kind_of("lying-rename-fsync-1m") == ("rename", "fsync", 2**20, True)
    assert records.kind_of("control") == ("append", "never", 4096, False)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("", "MODE-FLUSH-SIZE with the mode append, overwrite or rename"),
        ("fsync-append-4k", "with the mode append, overwrite or rename"),
        ("append", "append-FLUSH-SIZE, like append-fsync-4k"),
        ("append-fsync-4k-4k", "append-FLUSH-SIZE, like append-fsync-4k"),
        ("append-sync_file_range-4k", "must be fsync, fdatasync or dsync, not sync_file_range"),
        ("rename-fsync-8k", "must be 4k, 16k, 64k, 256k or 1m, not 8k"),
        ("sqlite", "must be sqlite-wal, sqlite-rollback or sqlite-rollback-full"),
        ("lying-control", "write control"),
        ("lying-lying-control", "MODE-FLUSH-SIZE"),
    ],
)
def test_a_wrong_name_says_what_is_right(name: str, right: str) -> None:
    problem = records.writer_problem(name)
    assert problem is not None and right in problem and "\n" not in problem and problem.startswith(f"{name}: ")


# Records.


def test_every_sector_says_what_it_is() -> None:
    data = record("append-fsync-16k", 7, 16384)
    assert len(data) == 16384
    for index in range(32):
        sector = data[index * SECTOR : (index + 1) * SECTOR]
        assert records.place_of(sector, PLAIN) == ("append-fsync-16k", 7, index)
        assert sector.startswith(records.header("append-fsync-16k", 7, index))
        assert records.place_of(sector[:-1] + bytes([sector[-1] ^ 1]), PLAIN) is None, "a bit of its body"
        assert records.place_of(sector[:12] + b"\x08" + sector[13:], PLAIN) is None, "its number"


def test_records_differ_and_do_not_shrink() -> None:
    data = b"".join(record(name, number, 4096) for name in ("control", "rename-fsync-4k") for number in range(1, 65))
    assert len(zlib.compress(data)) > 0.95 * len(data)
    assert data.count(MAGIC) == len(data) // SECTOR, "it is at the beginning of each sector and nowhere else"
    long = record("append-fsync-1m", 1, 2**20)
    assert len(zlib.compress(long)) > 0.95 * len(long) and long.count(MAGIC) == 2048
    assert len({long[at : at + 64] for at in range(0, len(long), 64)}) == len(long) // 64, "no block occurs twice"


NAMES = ("control", "append-fsync-4k", "sqlite-wal")
PIECES = st.one_of(
    st.binary(max_size=40),
    st.just(MAGIC),
    st.builds(
        lambda name, number, begin, end: record(name, number, 1024)[begin : 1024 - end],
        st.sampled_from((*NAMES, "overwrite-dsync-1m")),
        st.integers(0, 5) | st.integers(0, 2**64 - 1),
        st.integers(0, 40),
        st.integers(0, 1000),
    ),
)


def plain_issued(data: bytes) -> dict[str, int]:
    """Every place looked at."""
    highest: dict[str, int] = {}
    for at in range(len(data)):
        here = data[at : at + records.HEADER]
        if here.startswith(MAGIC) and len(here) == records.HEADER:
            _, _, number, index = records.FRONT.unpack_from(here)
            for name in NAMES:
                if here == records.header(name, number, index) and number:
                    highest[name] = max(number, highest.get(name, 0))
    return highest


@given(st.lists(PIECES, max_size=8).map(b"".join), st.integers(1, 3000))
@example(record("control", 3, 512), 500)
def test_issued(data: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "CHUNK", chunk)  # headers are found across the borders of chunks
        assert issued(data, NAMES) == plain_issued(data)
        assert issued(memoryview(data), iter(NAMES)) == plain_issued(data)


def test_a_damaged_header_is_not_issued() -> None:
    data = bytearray(b"x" * 100 + record("control", 4, 512) + record("control", 9, 512))
    assert issued(data, ["control"]) == {"control": 9}
    data[100 + 512 + 14] ^= 1  # the number
    assert issued(data, ["control"]) == {"control": 4}


# Writers.

EACH = sorted(
    name
    for name in PLAIN
    if name != "postgresql"  # which takes a server: test_postgresql.py
    and (name.endswith(("-4k", "-64k")) or "-" not in name or "sqlite" in name)
)
LIARS = [f"{LYING}{name}" for name in EACH if name != "control" and not name.endswith("64k")]


@pytest.mark.parametrize("name", [*EACH, *LIARS])
def test_what_is_written_is_found_right(tmp_path: Path, name: str) -> None:
    lines = written(tmp_path, name)[name]
    assert lines == [f"ack {name} {number}" for number in range(1, COUNT + 1)]
    assert one(tmp_path, name) == FINE
    assert one(tmp_path, name, COUNT - 1) == FINE, "the last may be in flight"
    assert one(tmp_path, name, 1) == FINE, "a line that never arrived takes nothing back"
    assert check(str(tmp_path), {name: 0}) == {}, "nothing was acknowledged"


def test_a_megabyte(tmp_path: Path) -> None:
    names = [f"{mode}-fdatasync-1m" for mode in MODES]
    written(tmp_path, *names, count=3)
    assert check(str(tmp_path), dict.fromkeys(names, 3)) == dict.fromkeys(names, FINE)


@pytest.mark.parametrize("number", [1, COUNT])
@pytest.mark.parametrize("name", EACH)
def test_a_record_more_than_there_is_is_lost(tmp_path: Path, name: str, number: int) -> None:
    written(tmp_path, name, count=number)
    found = one(tmp_path, name, number + 1)
    assert (found.lost, found.torn) == (1, 0) and str(number + 1) in found.words


def events(directory: Path, patch: pytest.MonkeyPatch, name: str, count: int) -> list[str]:
    """What a writer does in which order: acknowledge, flush a file, flush a directory, rename, open with O_DSYNC."""
    seen: list[str] = []

    def seeing(word: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def seen_work(*given: Any) -> Any:
            done = work(*given)
            directory = word == "fsync" and Path(f"/proc/self/fd/{given[0]}").is_dir()
            seen.append("directory" if directory else word)
            return done

        return seen_work

    def opened(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_DSYNC:
            seen.append("dsync")
        return opening(path, flags, *mode)

    opening = os.open
    for word in ("fsync", "fdatasync", "rename"):
        patch.setattr(os, word, seeing(word, getattr(os, word)))
    patch.setattr(os, "open", opened)
    size = writers.PAGE if "sqlite" in name else records.kind_of(name).size
    writers.write(str(directory), count * size, [name], lambda line: seen.append(line.split()[0]))
    patch.undo()
    return seen


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("append-fsync-4k", "ready fsync ack fsync ack"),
        ("append-fdatasync-16k", "ready fdatasync ack fdatasync ack"),
        ("append-dsync-4k", "dsync ready ack ack"),
        ("overwrite-fsync-4k", "ready fsync ack fsync ack"),
        ("overwrite-dsync-4k", "dsync ready ack ack"),
        ("rename-fsync-4k", "ready fsync rename directory ack fsync rename directory ack"),
        ("rename-fdatasync-4k", "ready fdatasync rename directory ack fdatasync rename directory ack"),
        ("rename-dsync-4k", "ready dsync rename directory ack dsync rename directory ack"),
        ("control", "ready ack ack"),
    ],
)
def test_it_acknowledges_after_the_flush(tmp_path: Path, name: str, order: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "sync", lambda directory: None)
        assert events(tmp_path, patch, name, 2) == order.split()


@pytest.mark.parametrize("name", LIARS)
def test_a_liar_acknowledges_before_the_flush(tmp_path: Path, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writers, "sync", lambda directory: None)
        seen = events(tmp_path, patch, name, LIE + 2)
    after = [word for word in seen[seen.index("ready") + 1 :] if word != "rename"]
    assert after[:LIE] == ["ack"] * LIE, "several are acknowledged before the first flush"
    assert set(after[LIE:-2]) <= {"fsync", "fdatasync", "directory"} and len(after) > LIE + 2, "and then flushed"
    assert after[-2:] == ["ack", "ack"] and "dsync" not in seen


@pytest.mark.parametrize(
    ("name", "mode", "synchronous"),
    [
        ("sqlite-wal", "wal", 2),
        ("sqlite-rollback", "delete", 3),
        ("sqlite-rollback-full", "delete", 2),
        ("lying-sqlite-wal", "wal", 0),
    ],
)
def test_how_sqlite_is_set(tmp_path: Path, name: str, mode: str, synchronous: int) -> None:
    writer = writers.prepare(str(tmp_path), name)
    assert isinstance(writer, writers.Database)
    assert writer.database.execute("PRAGMA journal_mode").fetchone() == (mode,)
    assert writer.database.execute("PRAGMA synchronous").fetchone() == (synchronous,), "2 is FULL, 3 EXTRA"
    writer.close()


def test_dsync_files_have_the_flag(tmp_path: Path) -> None:
    writer = writers.prepare(str(tmp_path), "append-dsync-4k")
    assert isinstance(writer, writers.Append)
    assert fcntl.fcntl(writer.file, fcntl.F_GETFL) & os.O_DSYNC
    writer.close()


def test_a_full_disk_stops_one_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def full(file: int, data: bytes, at: int) -> int:
        if "append-fsync-4k" in str(Path(f"/proc/self/fd/{file}").readlink()) and at >= 4096:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data[:1000], at)  # the kernel may take less than it is given

    monkeypatch.setattr(os, "pwrite", full)
    (tmp_path / "sqlite-wal").write_text("no directory")
    lines: list[str] = []
    names = ["append-fsync-4k", "overwrite-fsync-4k", "sqlite-wal"]
    assert not writers.write(str(tmp_path), 3 * 4096, names, lines.append)
    assert lines[:2] == [f"error sqlite-wal {tmp_path}/sqlite-wal: Not a directory", "ready"]
    assert [line for line in lines if "append" in line] == [
        "ack append-fsync-4k 1",
        "error append-fsync-4k No space left on device",
    ]
    assert check(str(tmp_path), {"append-fsync-4k": 1, "overwrite-fsync-4k": 3}) == dict.fromkeys(names[:2], FINE)


# Planted faults.


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def swap(path: Path, first: int, second: int, size: int) -> None:
    data = path.read_bytes()
    put(path, first, data[second : second + size])
    put(path, second, data[first : first + size])


BLOCK = 4096
FAULTS: dict[str, tuple[str, Callable[[Path], object], Found]] = {
    "lost block": ("append-fsync-4k", lambda f: put(f, 2 * BLOCK, bytes(BLOCK)), Found(1, 0, "record 3 is zeros")),
    "lost sector": (
        "append-fsync-4k",
        lambda f: put(f, 2 * BLOCK + 512, bytes(512)),
        Found(0, 1, "sector 1 of record 3 is zeros"),
    ),
    "lost block of a long record": (
        "append-fsync-64k",
        lambda f: put(f, 3 * BLOCK, bytes(BLOCK)),
        Found(0, 1, "sector 24 of record 1 is zeros"),
    ),
    "torn block": (
        "append-fsync-4k",
        lambda f: put(f, 600, b"damage"),
        Found(0, 1, "sector 1 of record 1 is a sector of no record"),
    ),
    "swapped blocks": (
        "append-fsync-4k",
        lambda f: swap(f, 3 * BLOCK, 8 * BLOCK, BLOCK),
        Found(0, 2, "sector 0 of record 4 is sector 0 of record 9"),
    ),
    "swapped blocks of one record": (
        "append-fsync-64k",
        lambda f: swap(f, 65536, 65536 + BLOCK, BLOCK),
        Found(0, 1, "sector 0 of record 2 is sector 8 of record 2"),
    ),
    "swapped slots": (
        "overwrite-fsync-4k",
        lambda f: swap(f, 0, 3 * BLOCK, BLOCK),
        Found(0, 2, f"slot 0: sector 0 of record 16 is sector 0 of record {SLOTS + 3}"),
    ),
    "block of another writer": (
        "append-fsync-4k",
        lambda f: put(f, 0, record("rename-fsync-16k", 8, 16384)[:BLOCK]),
        Found(0, 1, "sector 0 of record 1 is sector 0 of record 8 of rename-fsync-16k"),
    ),
    "stale slot": (
        "overwrite-fsync-4k",
        lambda f: put(f, 3 * BLOCK, record("overwrite-fsync-4k", 3, BLOCK)),
        Found(1, 0, "slot 3: record 19 is still record 3"),
    ),
    "stale sector": (
        "overwrite-fsync-4k",
        lambda f: put(f, 3 * BLOCK + 1024, record("overwrite-fsync-4k", 3, BLOCK)[1024:1536]),
        Found(0, 1, "slot 3: sector 2 of record 19 is still record 3"),
    ),
    "the first content of a slot": (
        "overwrite-fsync-4k",
        lambda f: put(f, 3 * BLOCK, record("overwrite-fsync-4k", 0, BLOCK)),
        Found(1, 0, "slot 3: record 19 is still record 0"),
    ),
    "zeros in a slot": (
        "overwrite-fsync-64k",
        lambda f: put(f, 65536, bytes(65536)),
        Found(1, 0, f"slot 1: record {SLOTS + 1} is zeros"),
    ),
    "truncated file": (
        "append-fsync-4k",
        lambda f: os.truncate(f, (COUNT - 2) * BLOCK),
        Found(2, 0, f"record {COUNT - 1} is missing: the file ends"),
    ),
    "truncated record": (
        "append-fsync-4k",
        lambda f: os.truncate(f, COUNT * BLOCK - 600),
        Found(1, 0, f"sector 6 of record {COUNT} is missing: the file ends"),
    ),
    "truncated slots": (
        "overwrite-fsync-4k",
        lambda f: os.truncate(f, 10 * BLOCK),
        Found(6, 0, "slot 10: record 10 is missing: the file ends"),
    ),
    "missing file": (
        "append-fsync-4k",
        os.unlink,
        Found(COUNT, 0, "the file cannot be read: No such file or directory"),
    ),
    "missing slots": (
        "overwrite-fsync-4k",
        os.unlink,
        Found(SLOTS, 0, "the file cannot be read: No such file or directory"),
    ),
    "missing name": ("rename-fsync-4k", os.unlink, Found(1, 0, "the file cannot be read: No such file or directory")),
    "empty name": (
        "rename-fsync-4k",
        lambda f: os.truncate(f, 0),
        Found(1, 0, f"record {COUNT} is missing: the file ends"),
    ),
    "zeros behind the name": (
        "rename-fsync-16k",
        lambda f: put(f, 0, bytes(16384)),
        Found(1, 0, f"record {COUNT} is zeros"),
    ),
    "older file": (
        "rename-fsync-4k",
        lambda f: put(f, 0, record("rename-fsync-4k", COUNT - 1, BLOCK)),
        Found(1, 0, f"record {COUNT} is still record {COUNT - 1}"),
    ),
    "half of the next file": (
        "rename-fsync-16k",
        lambda f: put(f, 0, record("rename-fsync-16k", COUNT + 1, 16384)[:BLOCK]),
        Found(0, 1, f"sector 8 of record {COUNT + 1} is still record {COUNT}"),
    ),
    "the next file, half": (
        "rename-fsync-16k",
        lambda f: put(f, BLOCK, record("rename-fsync-16k", COUNT + 1, 16384)[BLOCK:]),
        Found(0, 1, f"sector 8 of record {COUNT} is sector 8 of record {COUNT + 1}"),
    ),
    "too long a file": (
        "rename-fsync-4k",
        lambda f: put(f, BLOCK, b"more"),
        Found(0, 1, f"record {COUNT}: the file is longer than 4096 bytes"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(tmp_path: Path, fault: str) -> None:
    name, damage, expected = FAULTS[fault]
    written(tmp_path, name, "overwrite-dsync-4k")
    damage(tmp_path / name / "data")
    found = check(str(tmp_path), {name: COUNT, "overwrite-dsync-4k": COUNT})
    assert found == {name: expected, "overwrite-dsync-4k": FINE}


def test_what_is_in_flight_may_be_there_in_part(tmp_path: Path) -> None:
    names = ("append-fsync-4k", "overwrite-fsync-4k")
    written(tmp_path, *names)
    following = COUNT + 1
    for name, at in (("append-fsync-4k", COUNT * BLOCK), ("overwrite-fsync-4k", following % SLOTS * BLOCK)):
        put(tmp_path / name / "data", at + 1024, record(name, following, BLOCK)[1024:2048])
        assert one(tmp_path, name) == FINE
    written(tmp_path, *names, count=3)
    put(tmp_path / names[1] / "data", 4 * BLOCK, record(names[1], 4, BLOCK)[:512])
    assert one(tmp_path, names[1], 3) == FINE, "over the first content"
    put(tmp_path / names[1] / "data", 5 * BLOCK, record(names[1], 4, BLOCK)[:512])
    assert one(tmp_path, names[1], 3) == Found(0, 1, "slot 5: sector 0 of record 0 is sector 0 of record 4")


SQLITE = ("sqlite-wal", "sqlite-rollback")


@pytest.mark.parametrize("name", SQLITE)
def test_a_damaged_page(tmp_path: Path, name: str) -> None:
    written(tmp_path, name)
    put(tmp_path / name / "data", 2 * BLOCK, b"\xaa" * 100)
    found = one(tmp_path, name)
    assert found.torn == 1 and found.words.startswith("integrity_check: ")
    put(tmp_path / name / "data", 0, bytes(BLOCK))
    assert one(tmp_path, name) == Found(0, 1, "SQLite: file is not a database")


@pytest.mark.parametrize("name", SQLITE)
def test_missing_rows(tmp_path: Path, name: str) -> None:
    written(tmp_path, name)
    database = sqlite3.connect(tmp_path / name / "data")
    database.execute(f"DELETE FROM records WHERE number = {COUNT}")
    database.commit()
    assert one(tmp_path, name) == Found(1, 0, f"row {COUNT} is missing")
    database.execute("UPDATE records SET payload = (SELECT payload FROM records WHERE number = 1) WHERE number = 2")
    database.commit()
    assert one(tmp_path, name) == Found(2, 0, "row 2 has another payload")
    database.close()
    (tmp_path / name / "data").unlink()
    assert one(tmp_path, name) == Found(COUNT, 0, "the database is missing")
    (tmp_path / name / "data").touch()
    assert one(tmp_path, name) == Found(0, 1, "SQLite: no such table: records"), "an empty file"


@pytest.mark.parametrize("name", SQLITE)
def test_a_killed_database_recovers(tmp_path: Path, name: str) -> None:
    """What the process left is as it was: a log or a journal is there, nothing was closed."""
    writer = writers.prepare(str(tmp_path), name)
    assert isinstance(writer, writers.Database)
    for number in range(1, 8):
        writer.write(number)
    writer.database.execute("BEGIN IMMEDIATE")
    writer.database.execute(writers.INSERT, (8, record(name, 8, 512)))
    copy = tmp_path / "copy" / name
    copy.mkdir(parents=True)
    for path in (tmp_path / name).iterdir():
        if not path.name.endswith("shm"):
            (copy / path.name).write_bytes(path.read_bytes())
    assert len(list(copy.iterdir())) == 2
    assert one(tmp_path / "copy", name, 7) == FINE
    assert one(tmp_path / "copy", name, 8) == Found(1, 0, "row 8 is missing")
    writer.close()


def test_what_is_expected_serves_many_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtax.workload.durability.checks.CACHE", 40_000)  # nine records of 4 KiB
    names = ("append-fsync-4k", "overwrite-fsync-4k", "rename-fsync-4k", "sqlite-wal")
    written(tmp_path, *names)
    expected = Expected()
    for last in (COUNT, 3, COUNT - 1, COUNT, 1):
        state = dict.fromkeys(names, last)
        assert check(str(tmp_path), state, expected) == check(str(tmp_path), state) == dict.fromkeys(names, FINE)


# States of a device.


class Disk:
    """Says what is done to a device whose files are in a plain directory."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.refused: OSError | None = None
        for name in ("mount", "unmount", "forget"):
            patch.setattr(guest, name, lambda *given, name=name: self._do(name))
        patch.setattr(guest, "wait_until_free", lambda device: None)
        patch.setattr(guest, "file_system_problem", lambda device: self._do("e2fsck") or "e2fsck: bad")

    def _do(self, name: str) -> None:
        self.done.append(name)
        if name == "mount" and self.refused:
            raise self.refused


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_file_system_that_another_namespace_still_has_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "device").touch()
    really, busy = os.open, [errno.EBUSY, errno.EBUSY]

    def opened(path: str, flags: int) -> int:
        assert flags == os.O_RDONLY | os.O_EXCL
        if busy:
            raise OSError(busy.pop(), "busy")
        return really(path, os.O_RDONLY)

    monkeypatch.setattr(os, "open", opened)
    guest.wait_until_free(str(tmp_path / "device"))
    assert not busy
    busy[:] = [errno.EBUSY] * 10**6
    monkeypatch.setattr(guest, "BUSY_SECONDS", 0.1)
    with pytest.raises(OSError, match="busy"):
        guest.wait_until_free(str(tmp_path / "device"))
    busy[:] = [errno.ENXIO]
    with pytest.raises(OSError, match="busy"):
        guest.wait_until_free(str(tmp_path / "device"))
    assert not busy, "nothing to wait for"


def answers(directory: Path, names: list[str], *lines: object, thorough: bool = True) -> Iterator[Any]:
    reading, writing = os.pipe()
    texts = iter([line if isinstance(line, str) else json.dumps(line) for line in lines])
    guest.verify(texts, guest.Output(writing), "/dev/none", str(directory), names, "", thorough)
    os.close(writing)
    with os.fdopen(reading) as output:
        return iter([json.loads(line) for line in output])


def test_a_state(tmp_path: Path, disk: Disk) -> None:
    written(tmp_path, "append-fsync-4k", "control")
    acknowledged = {"append-fsync-4k": COUNT + 2, "control": 0}
    (answer,) = answers(tmp_path, ["append-fsync-4k", "control"], {"state": 12, "acknowledged": acknowledged})
    lost = {"lost": 2, "torn": 0, "words": f"record {COUNT + 1} is missing: the file ends"}
    assert answer == {"state": 12, "file_system": "e2fsck: bad", "writers": {"append-fsync-4k": lost}}
    assert disk.done == ["forget", "mount", "unmount", "e2fsck", "forget"]
    disk.done.clear()
    (answer,) = answers(tmp_path, ["control"], {"state": 13, "acknowledged": {"control": 3}}, thorough=False)
    assert answer["file_system"] == "" and disk.done == ["forget", "mount", "unmount", "forget"]


def test_after_a_failed_state_it_goes_on(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"state": 1, "acknowledged": {"control": 1}}
    lines = ["garbage", "[]", {"acknowledged": {"control": True}}, {"acknowledged": {"other": 1}}, good]
    *bad, fine = answers(tmp_path, ["control"], *lines)
    assert [answer["state"] for answer in bad] == [None] * 4 and all(answer["error"] for answer in bad)
    assert "error" not in fine and fine["writers"]["control"]["lost"] == 1
    disk.refused = OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN))
    disk.done.clear()
    (refused,) = answers(tmp_path, ["control"], good)
    assert refused == {"state": 1, "file_system": "mount refused: Structure needs cleaning", "writers": {}}
    disk.refused = None
    monkeypatch.setattr(guest, "check", lambda *given: 1 // 0)
    disk.done.clear()
    (failed,) = answers(tmp_path, ["control"], good)
    assert failed["error"] and disk.done[-2:] == ["mount", "unmount"], "nothing stays mounted"


# The program as it is shipped.


def test_the_program_by_itself(tmp_path: Path) -> None:
    names = ["overwrite-fsync-4k", "sqlite-wal", "control"]
    argv = (*PROGRAM, "write", str(tmp_path), "20480", *names)
    reading, writing = os.pipe()  # an input that does not end
    done = subprocess.run(argv, stdin=reading, capture_output=True, text=True, timeout=LATE_SECONDS)
    os.close(reading)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first == "ready"
    assert sorted(lines) == sorted(f"ack {name} {number}" for name in names for number in range(1, 6))
    assert check(str(tmp_path), dict.fromkeys(names, 5)) == dict.fromkeys(names, FINE)


def test_it_ends_with_its_input(tmp_path: Path) -> None:
    argv = (*PROGRAM, "write", str(tmp_path), str(2**40), "append-dsync-4k", "--pause", "0.001")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout
        watchdog = threading.Timer(LATE_SECONDS, program.kill)
        watchdog.start()
        lines = [program.stdout.readline() for _ in range(20)]
        program.stdin.close()
        last = [*lines, *program.stdout][-1]
        assert program.wait() == 0
        watchdog.cancel()
    assert last.startswith("ack ") and one(tmp_path, "append-dsync-4k", int(last.split()[2])) == FINE


def test_nothing_is_written_where_no_directory_is(tmp_path: Path) -> None:
    argv = (*PROGRAM, "write", str(tmp_path / "none"), "4096", "control")
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as done:
        assert done.stdout and done.stderr
        assert done.stdout.read() == f"error control {tmp_path}/none/control: No such file or directory\n"
        assert done.stderr.read() == f"{tmp_path}/none: No such file or directory\n"
    assert done.returncode == 1


def test_verify_without_a_device(tmp_path: Path) -> None:
    line = json.dumps({"state": 4, "acknowledged": {"control": 1}}) + "\n"
    done = subprocess.run(
        (*PROGRAM, "verify", str(tmp_path / "none"), str(tmp_path / "mnt"), "control", "--no-check"),
        input=line * 2,
        capture_output=True,
        text=True,
        timeout=LATE_SECONDS,
    )
    answer = {"state": 4, "file_system": "", "writers": {}, "error": f"{tmp_path}/none: No such file or directory"}
    assert [json.loads(text) for text in done.stdout.splitlines()] == [answer, answer]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["write", "/nowhere", "4096", "append-fsync-8k"], "the size must be"),
        (["write", "/nowhere", "4096", "control", "control"], "each NAME must be given once"),
        (["verify", "/dev/none", "/mnt"], "NAME"),
    ],
)
def test_a_wrong_command_line(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        guest.main(words)
    assert ended.value.code == 2 and problem in capsys.readouterr().err
