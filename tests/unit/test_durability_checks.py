"""What is planted in the files of plan `durability`, and that its check finds it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.durable import COUNT, FINE, one, without_flushes, written
from vmtax.workload.durability import writers
from vmtax.workload.durability.checks import Expected, Found, check
from vmtax.workload.durability.records import record
from vmtax.workload.durability.writers import SLOTS


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    without_flushes(monkeypatch)


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
