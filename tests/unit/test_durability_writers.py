"""The writers of plan `durability`: what each writes, and that it acknowledges after its flush."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.durable import COUNT, FINE, one, without_flushes, written
from vmtax.workload.durability import records, writers
from vmtax.workload.durability.checks import check
from vmtax.workload.durability.records import LYING, MODES, PLAIN
from vmtax.workload.durability.writers import LIE


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    without_flushes(monkeypatch)


# Writers.

EACH = sorted(
    name
    for name in PLAIN
    if name != "postgresql"  # which takes a server: test_postgresql.py
    and (name.endswith(("-4k", "-64k")) or "-" not in name or "sqlite" in name)
)
LIARS = [f"{LYING}{name}" for name in EACH if name != "control" and not name.endswith("64k")]


@pytest.mark.parametrize("name", [*EACH, *LIARS])
@pytest.mark.varied(10)
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
@pytest.mark.varied(10)
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
