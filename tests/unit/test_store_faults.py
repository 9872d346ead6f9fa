"""The store when several use it, when its user is killed, and when files and disks fail."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.sample import CREATED, sample_experiment, unstarted
from vmtax.store import Store, StoreError
from vmtax.store.dialect.sqlite_failure import explained

ROOT = Path(__file__).parents[2]
SAMPLE = sample_experiment(rounds=1)
TRIAL = SAMPLE.trials[0]


def run_child(code: str, *args: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    argv = [*prefix, sys.executable, "-W", "error", "-c", code, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def execute(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    """Behind the store's back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


VALUES = "INSERT INTO one (id, value, run) VALUES "


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f"{VALUES} (2, 1, 7)", "nothing recorded: no such experiment, or no such configuration in it"),
        (f"{VALUES} (1, 1, 1)", "nothing recorded: UNIQUE constraint failed: one.id"),
        (f"{VALUES} (2, NULL, 1)", "nothing recorded: NOT NULL constraint failed: one.value"),
        (f"{VALUES} (2, -1, 1)", "nothing recorded: CHECK constraint failed: value > 0"),
    ],
)
def test_only_a_row_that_lacks_its_run_is_explained_by_that(statement: str, words: str) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(
            "PRAGMA foreign_keys = ON; CREATE TABLE run (id INTEGER PRIMARY KEY); INSERT INTO run VALUES (1);"
            "CREATE TABLE one (id INTEGER PRIMARY KEY, value INTEGER NOT NULL CHECK (value > 0), run REFERENCES run);"
            f"{VALUES} (1, 1, 1);"
        )
        with pytest.raises(StoreError) as caught, explained(Path("store.sqlite")):
            connection.execute(statement)
    assert str(caught.value) == f"store.sqlite: {words}"


# Several at once, and dying

WRITER = """
import dataclasses, sys
from pathlib import Path
from tests.sample import sample_experiment, unstarted
from vmtax.store import Store
sample = sample_experiment(rounds=1)
new = unstarted(sample, id=sys.argv[2])
with Store(Path(sys.argv[1])) as store:
    store.begin(new)
    for count in range(int(sys.argv[3])):
        trial = dataclasses.replace(sample.trials[count % 20], round=count + 1, raw=f"output {count} " * 500)
        store.add_trials(new.id, trial)
        print(count, flush=True)
    sys.stdin.read()
"""


def read_lines(child: subprocess.Popen[str], count: int) -> list[int]:
    assert child.stdout is not None
    return [int(child.stdout.readline()) for _ in range(count)]


@pytest.mark.parametrize("after", [1, 7, 40])
@pytest.mark.varied(1)
def test_killed_while_writing_loses_nothing_acknowledged(path: Path, after: int) -> None:
    with run_child(WRITER, path, "killed", 10**9) as child:
        acknowledged = read_lines(child, after)
        with Store(path) as reader:  # a reader is not held up by the writer, and sees it alive
            assert reader.load("killed").state == "running"
            assert len(reader.load("killed").trials) >= after
        child.kill()
        assert child.stdout is not None
        acknowledged += [int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    with Store(path) as store:
        found = store.load("killed", with_raw=True)
        assert [trial.round for trial in found.trials[: len(acknowledged)]] == [count + 1 for count in acknowledged]
        assert len(found.trials) - len(acknowledged) in (0, 1)
        assert all(trial.raw == f"output {trial.round - 1} " * 500 for trial in found.trials)
        assert (found.state, found.finished) == ("interrupted", None)
        assert store.experiments()[0].state == "interrupted"


@pytest.mark.variations
def test_writers_and_first_runs_at_the_same_time(path: Path) -> None:
    children = [run_child(WRITER.replace("sys.stdin.read()", ""), path, f"run-{n}", 20) for n in range(4)]
    for child in children:
        _, errors = child.communicate(timeout=300)
        assert (child.returncode, errors) == (0, "")
    with Store(path) as store:
        assert [len(store.load(f"run-{n}", with_raw=True).trials) for n in range(4)] == [20] * 4


OPENER = """
import sys, time
from pathlib import Path
from vmtax.store import Store
for line in sys.stdin.read().splitlines():
    when, path = line.split(" ", 1)
    time.sleep(max(0, float(when) - time.time()))
    with Store(Path(path)):
        pass
"""


@pytest.mark.variations
def test_first_openings_at_the_same_moment(path: Path) -> None:
    """SQLite turns one of two away at once, in about a third of such moments."""
    children = [run_child(OPENER) for _ in range(3)]
    moments = "\n".join(f"{time.time() + 2 + number / 10} {path.parent / str(number)}" for number in range(12))
    for child in children:
        assert child.stdin is not None
        child.stdin.write(moments)
        child.stdin.close()
        child.stdin = None
    assert [(child.communicate(timeout=300)[1], child.returncode) for child in children] == [("", 0)] * 3


def test_threads_share_a_store(store: Store) -> None:
    store.begin(unstarted(SAMPLE))

    def write(first: int) -> None:
        for number in range(first, first + 10):
            store.add_trials(SAMPLE.id, dataclasses.replace(TRIAL, iteration=number))

    threads = [threading.Thread(target=write, args=(first,)) for first in (1, 11, 21)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.load(with_raw=True).trials) == 30


def test_running_interrupted_and_finished(store: Store, path: Path) -> None:
    store.begin(unstarted(SAMPLE))
    assert store.load().state == "running"
    store._locks.release_all()  # as in an earlier version, which had none
    for column, value in (("owner_pid", 2**22 + 1), ("owner_start", "1"), ("owner_boot", "another boot")):
        [(before,)] = execute(path, f"SELECT {column} FROM experiment")
        execute(path, f"UPDATE experiment SET {column} = ?", value)
        assert store.load().state == "interrupted"
        execute(path, f"UPDATE experiment SET {column} = ?", before)
    store.finish(SAMPLE.id, "failed", CREATED + 5)
    assert (store.load().state, store.load().finished) == ("failed", CREATED + 5)


@pytest.mark.variations
def test_process_that_is_not_waited_for_is_dead(path: Path) -> None:
    with run_child(WRITER, path, "zombie", 1) as child:
        read_lines(child, 1)
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with Store(path) as store:
            assert store.load().state == "interrupted"


def test_finish_removes_what_was_never_committed(store: Store, path: Path) -> None:
    store.begin(unstarted(SAMPLE))
    store.add_trials(SAMPLE.id, TRIAL)
    (kept,) = path.parent.rglob("*.gz")
    orphan = kept.with_name("0002-chess.gz")
    orphan.write_bytes(b"half")
    store.finish(SAMPLE.id, "complete", CREATED)
    assert [*path.parent.rglob("*.gz")] == [kept]


@pytest.mark.parametrize(("cell", "value"), [("raw", b"\xff"), ("raw", None), ("raw", "a"), ("experiment", "other")])
def test_a_raw_file_whose_trial_is_damaged_is_no_orphan(store: Store, path: Path, cell: str, value: object) -> None:
    store.begin(unstarted(SAMPLE))
    store.add_trials(SAMPLE.id, TRIAL)
    (kept,) = path.parent.rglob("*.gz")
    orphan = kept.with_name("0002-chess.gz")
    orphan.write_bytes(b"half")
    assert store.orphans() == [orphan]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE trial SET {cell} = ?", (value,))
        connection.commit()
    store.remove_orphans()
    assert store.orphans() == [] and kept.exists()


def test_raw_file_is_there_before_the_commit(store: Store, path: Path) -> None:
    seen: list[int] = []
    store.begin(unstarted(SAMPLE))
    sa.event.listen(store._database.engine, "commit", lambda _: seen.append(len([*path.parent.rglob("0001-*.gz")])))
    store.add_trials(SAMPLE.id, TRIAL)
    assert seen == [1]


def test_raw_file_that_cannot_be_synced_leaves_nothing(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.begin(unstarted(SAMPLE))
    with monkeypatch.context() as patched, pytest.raises(StoreError, match="no space left"):
        patched.setattr("os.fsync", fail)
        store.add_trials(SAMPLE.id, TRIAL)
    assert store.load().trials == ()
    assert not [*path.parent.rglob("*.gz")]


def test_writer_that_does_not_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtax.store.dialect.sqlite_engine.BUSY_SECONDS", 0.01)
    with Store(path) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        store.begin(unstarted(SAMPLE))
        other.execute("BEGIN IMMEDIATE")
        assert store.load() == unstarted(SAMPLE)
        with pytest.raises(StoreError, match="another process is writing"):
            store.add_trials(SAMPLE.id, TRIAL)


# Files and failures
