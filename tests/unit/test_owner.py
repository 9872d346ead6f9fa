"""A run belongs to one process, which is not the next one with its number, nor one of another PID namespace."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sample import sample_experiment, unstarted, without_raw
from vmtax.core.records import State
from vmtax.store import Store, StoreError
from vmtax.store.owner import Owner, RunLocks, lock_number, this_process
from vmtax.store.schema import AGAIN

SAMPLE = sample_experiment(rounds=1)
TRIAL = next(trial for trial in SAMPLE.trials if trial.status == "ok")
HERE = this_process()
GONE = 2**22 + 1  # above the highest process id that Linux gives
BEGINS = """
import sys
from pathlib import Path
from tests.sample import sample_experiment, unstarted
from vmtax.store import Store
with Store(Path(sys.argv[1])) as store:
    store.begin(unstarted(sample_experiment(rounds=1), id="{id}"))
    print("begun", flush=True)
    sys.stdin.read()
"""


@contextmanager
def begun_elsewhere(path: Path, id: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs an experiment of this store; `before`: what starts it."""
    argv = [*before, sys.executable, "-c", BEGINS.format(id=id), str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("owner", "alive"),
    [
        (HERE, True),
        (replace(HERE, start="1"), False),
        (replace(HERE, start=""), False),
        (replace(HERE, boot="another boot"), False),
        (replace(HERE, pid=GONE), False),
    ],
    ids=["this process", "an earlier one of its number", "an unknown start", "before a reboot", "one that is gone"],
)
def test_a_run_is_running_while_the_process_that_owns_it_is(owner: Owner, alive: bool, tmp_path: Path) -> None:
    assert owner.alive() is alive
    state = RunLocks(tmp_path / "store").state("run", "running", owner)
    assert state == ("running" if alive else "interrupted")


@pytest.mark.parametrize("state", ["complete", "interrupted", "failed"])
def test_a_run_that_ended_stays_so_whoever_lives(state: State, tmp_path: Path) -> None:
    assert RunLocks(tmp_path / "store").state("run", state, HERE) == state


def test_an_owner_from_a_damaged_cell_is_nobody() -> None:
    damaged: Any = "not a number"
    assert not Owner(damaged, HERE.boot, HERE.start).alive()


def test_a_lock_says_that_a_run_is_running_whoever_seems_to_be_gone(tmp_path: Path) -> None:
    gone = replace(HERE, pid=GONE)
    ours, theirs = RunLocks(tmp_path / "store"), RunLocks(tmp_path / "store")
    assert ours.take("a") and ours.take("a")
    assert theirs.state("a", "running", gone) == ours.state("a", "running", gone) == "running"
    assert theirs.state("b", "running", gone) == "interrupted"
    assert not theirs.take("a") and theirs.take("b")
    ours.release("a")
    assert theirs.state("a", "running", gone) == "interrupted"
    assert theirs.take("a")
    theirs.release_all()
    assert not ours.is_taken("a") and not ours.is_taken("b")


def test_looking_for_a_lock_makes_no_file(tmp_path: Path) -> None:
    assert not RunLocks(tmp_path / "store").is_taken("a")
    assert not list(tmp_path.iterdir())


def test_the_number_of_a_lock_fits_a_file_s_offset_and_an_advisory_lock_of_a_database() -> None:
    numbers = {lock_number(f"20261126-{minute:04d}-quick-{minute:04x}") for minute in range(2000)}
    assert len(numbers) == 2000
    assert all(0 <= number < 2**62 for number in numbers)
    assert lock_number("\udcff") >= 0


@pytest.mark.parametrize("before", [(), ("unshare", "-pf", "--mount-proc")], ids=["beside us", "in a PID namespace"])
@pytest.mark.varied(1)
def test_a_run_of_another_process_is_neither_removed_nor_resumed(tmp_path: Path, before: tuple[str, ...]) -> None:
    path = tmp_path / "vmtax.sqlite"
    with begun_elsewhere(path, "theirs", *before) as process, Store(path) as store:
        assert [entry.state for entry in store.experiments()] == ["running"]
        assert store.load("theirs").state == "running"
        with pytest.raises(StoreError, match="theirs is running: end it first"):
            store.remove("theirs")
        with pytest.raises(StoreError, match="theirs is running and cannot be resumed"):
            store.resume("theirs")
        process.communicate()  # its input ends, and so does it
        assert store.load("theirs").state == "interrupted"
        store.resume("theirs")
        assert store.load("theirs").state == "running"


def test_nothing_is_recorded_of_a_run_that_another_process_has_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "vmtax.sqlite"
    with begun_elsewhere(path, "theirs") as process, Store(path) as store:
        for write in (
            lambda: store.add_trials("theirs", TRIAL),
            lambda: store.add_note("theirs", "words"),
            lambda: store.add_facts("theirs", "host", {}),
            lambda: store.finish("theirs", "complete", 1.0),
        ):
            with pytest.raises(StoreError, match="theirs is no longer run by this process"):
                write()
        process.kill()
        process.wait()
        assert store.load("theirs").trials == ()


def test_a_run_that_could_not_begin_holds_no_lock(tmp_path: Path) -> None:
    with Store(tmp_path / "vmtax.sqlite") as store:
        store.put(replace(SAMPLE, id="a"))
        with pytest.raises(StoreError, match="already stored"):
            store.begin(unstarted(SAMPLE, id="a"))
        assert not RunLocks(store.path).is_taken("a")
        store.begin(unstarted(SAMPLE, id="b"))
        with pytest.raises(StoreError, match="already stored"):
            store.begin(unstarted(SAMPLE, id="b"))
        assert RunLocks(store.path).is_taken("b")
        store.finish("b", "complete", 1.0)
        assert not RunLocks(store.path).is_taken("b")


def test_a_trial_has_one_result_and_may_fail_before_it(store: Store) -> None:
    failed = replace(TRIAL, status="failed", error="a guest was lost", measurements=())
    store.begin(unstarted(SAMPLE, id="a"))
    store.add_trials("a", failed, failed)
    store.add_trials("a", TRIAL)
    with pytest.raises(StoreError, match="nothing recorded: this trial has a result already"):
        store.add_trials("a", replace(TRIAL, iteration=2), TRIAL)
    assert len(store.load("a").trials) == 3
    store.add_trials("a", replace(TRIAL, iteration=2), replace(TRIAL, machine="host/vm-2"))
    assert len(store.load("a").trials) == 5


def test_of_an_imported_trial_with_two_results_the_first_counts(store: Store) -> None:
    store.put(replace(SAMPLE, id="a", trials=(TRIAL, replace(TRIAL, position=2))))
    first, second = store.load("a").trials
    assert first.status == "ok" and first.measurements
    assert (second.status, second.error, second.measurements) == ("refused", AGAIN, ())


def test_an_older_store_says_what_was_recorded_twice(path: Path) -> None:
    with Store(path) as store:
        store.put(replace(SAMPLE, id="a"))
        store.put(replace(SAMPLE, id="b"))
    with closing(sqlite3.connect(path)) as older, older:
        older.execute("DROP INDEX trial_result")
        older.execute("UPDATE meta SET value = '7' WHERE key = 'schema'")
        columns = [row[1] for row in older.execute("PRAGMA table_info(trial)") if row[1] not in ("id", "number")]
        kept = ", ".join(f'"{column}"' for column in columns)
        twice = "experiment = 'a' AND status = 'ok' AND round = 1"
        twice = f"SELECT {kept}, number + 1000 FROM trial WHERE {twice}"
        count = older.execute(f"INSERT INTO trial ({kept}, number) {twice}").rowcount
        older.execute(
            "INSERT INTO measurement SELECT t.id, m.ordinal, m.metric, m.value FROM trial t JOIN trial o ON"
            " o.number = t.number - 1000 AND o.experiment = 'a' JOIN measurement m ON m.trial = o.id"
            " WHERE t.experiment = 'a' AND t.number > 1000"
        )
    assert count
    with Store(path) as store:
        run = store.load("a")
        again = [trial for trial in run.trials if trial.error == AGAIN]
        assert len(again) == count
        assert all(trial.status == "refused" and not trial.measurements for trial in again)
        assert tuple(trial for trial in run.trials if trial.error != AGAIN) == without_raw(SAMPLE).trials
        assert run.notes[-1] == f"Trials that do not count, because {AGAIN}: {count}."
        assert store.load("b").notes == SAMPLE.notes


def test_a_host_is_measured_by_a_run_of_one_process(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as ours, Store(tmp_path / "a.sqlite") as theirs:
        assert ours.take_host("measures 1") and ours.take_host("measures 1")
        assert not theirs.take_host("measures 1") and theirs.take_host("measures 2")
    with Store(tmp_path / "a.sqlite") as later:
        assert later.take_host("measures 1")
