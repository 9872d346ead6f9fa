"""`vmtax runs`: lists what is in the store, says which run is damaged, and removes what is no longer needed."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment
from vmtax.cli.app import app
from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment, Trial
from vmtax.experiment import archive
from vmtax.report.render.rows import ALWAYS
from vmtax.store import Store, StoreError, default_path
from vmtax.store.failure import DamagedRun

MADE = sample_experiment(rounds=1)
CARRIED = "20261125-0001-quick-0008"
KEPT = dataclasses.replace(MADE, id="kept", trials=MADE.trials[:3])
GONE = dataclasses.replace(MADE, id="gone", trials=MADE.trials[:2], created=MADE.created + 1)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the store with both runs lies."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with Store() as store:
        store.put(KEPT)
        store.put(GONE)
    return default_path().parent


def changed(statement: str) -> None:
    with closing(sqlite3.connect(default_path())) as connection:
        connection.execute(statement)
        connection.commit()


def listed() -> dict[str, str]:
    """Id -> state."""
    done = CliRunner().invoke(app, ["runs", "--json"], catch_exceptions=False)
    return {run["id"]: run["state"] for run in json.loads(done.stdout)["data"]}


def test_a_removed_run_leaves_nothing(data: Path) -> None:
    done = CliRunner().invoke(app, ["runs", "rm", "go", "--yes"], catch_exceptions=False)
    assert done.exit_code == 0 and "removed gone" in done.stdout
    assert listed() == {"kept": "complete"}
    assert [path.name for path in (data / "raw").iterdir()] == ["kept"]
    with closing(sqlite3.connect(default_path())) as connection:
        for table in ("boot", "trial", "treatment", "facts", "note"):
            assert connection.execute(f"SELECT DISTINCT experiment FROM {table}").fetchall() in ([("kept",)], [])
        rest = "SELECT count(*) FROM measurement WHERE trial NOT IN (SELECT id FROM trial)"
        assert connection.execute(rest).fetchone() == (0,)


def test_nothing_is_removed_unasked(data: Path) -> None:
    with pytest.raises(BadInput, match="--yes"):
        CliRunner().invoke(app, ["runs", "rm", "gone"], catch_exceptions=False)
    assert set(listed()) == {"kept", "gone"}


def test_a_running_run_is_not_removed(data: Path) -> None:
    with Store() as store:
        running = dataclasses.replace(MADE, id="runs", state="running", boots=(), trials=(), finished=None)
        store.begin(running)
        with pytest.raises(StoreError, match="runs is running"):
            store.remove("runs")
        assert store.load("runs") == running


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("UPDATE trial SET warnings = '[' WHERE experiment = 'gone'", "trials.0.warnings"),
        ("UPDATE trial SET round = 'abc' WHERE experiment = 'gone'", "trials.0.round"),
        ("UPDATE facts SET facts = '5' WHERE experiment = 'gone'", "facts.host"),
        ("UPDATE experiment SET plan = '[]' WHERE id = 'gone'", "plan"),
        ("UPDATE experiment SET created = 'abc' WHERE id = 'gone'", "created"),
        ("UPDATE experiment SET label = x'00' WHERE id = 'gone'", "label"),
        ("UPDATE experiment SET label = '20261122-0101' WHERE id = 'gone'", "label"),
        ("UPDATE experiment SET seconds = 'abc' WHERE id = 'gone'", "seconds"),
        ("UPDATE boot SET treatment = 'other' WHERE experiment = 'gone'", "no configuration is called 'other'"),
    ],
)
@pytest.mark.varied(4)
def test_a_damaged_run_is_named_with_the_cure_and_the_other_is_usable(data: Path, cell: str, words: str) -> None:
    changed(cell)
    with Store() as store:
        with pytest.raises(DamagedRun) as caught:
            store.load("gone")
        for part in ("run gone is damaged", words, "`vmtax runs rm gone` removes it"):
            assert part in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        assert len(store.load("kept").trials) == 3
        assert [run.id for run in store.load_all(lambda run: True)] == ["kept"]
    assert listed() == {"gone": "damaged" if "experiment SET" in cell else "complete", "kept": "complete"}
    assert CliRunner().invoke(app, ["runs", "rm", "gone", "--yes"]).exit_code == 0
    assert listed() == {"kept": "complete"}


def test_raw_outputs_of_no_trial_are_found_and_removed(data: Path) -> None:
    orphans = [data / "raw/kept/0009-chess.gz", data / "raw/never/0001-chess.gz"]
    orphans[1].parent.mkdir()
    for orphan in orphans:
        orphan.write_bytes(b"")
    with Store() as store:
        assert store.orphans() == orphans
        store.remove_orphans()
        assert store.orphans() == []
        assert store.load("kept", with_raw=True).trials == KEPT.trials
    assert not orphans[1].parent.exists()


def failed(trial: Trial) -> Trial:
    return dataclasses.replace(trial, status="failed", error="did not work", measurements=(), latencies=())


def test_parquet_of_a_run_in_which_nothing_worked_has_its_columns(data: Path, tmp_path: Path) -> None:
    nothing: Experiment = dataclasses.replace(KEPT, id="nothing", trials=tuple(map(failed, KEPT.trials)))
    with Store() as store:
        store.put(nothing)
    sizes = {}
    for id in ("nothing", "kept"):
        file = tmp_path / id
        argv = ["report", id, "--format", "parquet", "-o", str(file)]
        assert CliRunner().invoke(app, argv, catch_exceptions=False).exit_code == 0
        table = pyarrow.parquet.read_table(file)
        sizes[id] = (table.num_rows, table.schema.names)
    assert sizes["nothing"] == (0, [name for name in sizes["kept"][1] if name in ALWAYS]) and sizes["kept"][0] > 0


def test_an_imported_run_has_its_headline(data: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "elsewhere.sqlite") as store:
        store.put(dataclasses.replace(sample_experiment(rounds=7), id=CARRIED))
        file = archive.export(store, "last", tmp_path / "carried").file
    assert CliRunner().invoke(app, ["import", str(file)]).exit_code == 0
    with Store() as store:
        assert next(run.result for run in store.experiments() if run.id == CARRIED).startswith("VM ")
