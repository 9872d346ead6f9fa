"""Labels of runs: what can be one, and that every command takes one in place of an id."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment
from tests.stores import store_of
from tests.unit.test_cli import vmtax
from vmtax.analysis.analysis import Analysis
from vmtax.cli.app import app
from vmtax.cli.options import complete_run
from vmtax.core.names import RUN_ID, label_problem, new_id
from vmtax.core.records import Experiment
from vmtax.experiment.archive import Imported, export, import_
from vmtax.plan.schema import from_data
from vmtax.report.wording.headline import in_few_words
from vmtax.store import Store, names
from vmtax.store.choice import RESULTS
from vmtax.store.failure import NoSuchRun

MADE = sample_experiment(rounds=6)
ONE, TWO, THREE = (f"20261121-0412-quick-000{number}" for number in (1, 2, 3))


def labelled(id: str, label: str, later: float) -> Experiment:
    return dataclasses.replace(MADE, id=id, label=label, created=MADE.created + later)


HERE = (labelled(ONE, "before", 0), labelled(TWO, "after", 1), labelled(THREE, "after", 2))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Store(store_of(tmp_path / "vmtax", *HERE))


@pytest.mark.parametrize("text", ["before", "6.12 kernel", "2026", "größer"])
def test_what_can_be_a_label(text: str) -> None:
    assert label_problem(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 41, "from 1 to 40 characters"),
        ("a\tb", "must be printable"),
        (" a", "neither begin nor end with a space"),
        ("a,b", "hold a comma"),
        ("-x", "begin with a hyphen"),
        ("last", "always means the newest run"),
        ("20261122-0101-quick", "looks like a run's id"),
        ("20261122", "looks like a run's id"),
    ],
)
@pytest.mark.varied(4)
def test_what_cannot_be_a_label_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    done = vmtax("run", f"--label={text}", "--yes", home=tmp_path)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


def test_a_label_goes_before_the_beginning_of_an_id(store: Store) -> None:
    with store:
        store.put(labelled("20261121-0412-quick-0004", "2026", 3))
        assert [store.resolve(wanted) for wanted in ("before", "2026", ONE)] == [ONE, "20261121-0412-quick-0004", ONE]
        assert store.load("before").label == "before"


def test_a_label_of_several_runs_lists_their_ids(store: Store) -> None:
    with store, pytest.raises(NoSuchRun) as raised:
        store.resolve("after")
    assert str(raised.value) == f"2 runs have the label 'after': {THREE}, {TWO}: name one by its id"
    with store, pytest.raises(NoSuchRun, match=r"nearest: before$"):
        store.resolve("befor e")
    with store, pytest.raises(NoSuchRun, match=r"^no run 'xyz'; `vmtax runs` lists them all$"):
        store.resolve("xyz")


@pytest.mark.parametrize(
    "words",
    [("show",), ("compare", TWO), ("report", "-o", "r.html"), ("export", "-o", "r.run.gz"), ("runs", "rm", "--yes")],
)
@pytest.mark.varied(1)
def test_every_command_takes_a_label(store: Store, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "before"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.mark.variations
def test_an_exported_run_keeps_its_label(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CliRunner().invoke(app, ["export", "before", "-o", "b.run.gz"], catch_exceptions=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    CliRunner().invoke(app, ["import", "b.run.gz"], catch_exceptions=False)
    with Store() as other:
        assert other.load("before").id == ONE


def test_labels_are_completed_and_listed(store: Store) -> None:
    assert complete_run("") == ["after", "before", THREE, TWO, ONE]
    assert complete_run("be") == ["before"]
    with store:
        store.keep_headline(ONE, in_few_words(Analysis(store.load(ONE))))
    done = CliRunner().invoke(app, ["runs"], catch_exceptions=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(ONE)]
    assert all(words in line for words in ("before", "emulated", "VM +42 % to 37×"))
    (other,) = [line for line in done.stdout.splitlines() if line.startswith(TWO)]
    assert "complete" in other, "of a run whose headline is not stored it is the state"
    told = {run["id"]: run for run in json.loads(CliRunner().invoke(app, ["runs", "--json"]).stdout)["data"]}
    assert told[ONE]["label"] == "before" and told[ONE]["emulated"] is True and told[ONE]["result"].startswith("VM")
    assert told[ONE]["seconds"] == MADE.took


# Runs that come from elsewhere


FAR, FAR_TOO = (f"20261125-0001-quick-000{number}" for number in (8, 9))


def imported(id: str, label: str = "", **changes: object) -> Experiment:
    """As an import of an earlier version stored it, whatever its names."""
    run = dataclasses.replace(labelled(id, label, 9), host="kestrel, imported", options={"imported": True})
    return dataclasses.replace(run, **changes)  # type: ignore[arg-type]  # fields of the record


def carried(store: Store, run: Experiment, place: Path) -> Imported:
    """The run exported from another store, imported into this one."""
    with Store(place / f"{run.id}.sqlite") as there:
        there.put(dataclasses.replace(run, plan=from_data(run.plan).model_dump(mode="json")))
        file = export(there, run.id, place / f"{run.id}.gz").file
    with store:
        return import_(store, file)


def named(store: Store, wanted: str) -> list[str]:
    with store._database.reading() as connection:
        return names.candidates(connection, wanted)


@pytest.mark.parametrize("label", ["before", "after", "2026", "2"])
@pytest.mark.varied(1)
def test_an_imported_run_does_not_bring_a_label_that_means_something_here(
    store: Store, tmp_path: Path, label: str
) -> None:
    with store:
        meant = named(store, label)
    added = carried(store, labelled(FAR, label, 9), tmp_path)
    assert added.dropped.startswith(f"its label {label!r} is left out: here it means run 2026")
    with store:
        assert named(store, label) == [*([FAR] if label[0] == "2" else []), *meant], "a beginning of its id is no label"
        assert store.load(FAR).label == ""


@pytest.mark.variations
def test_an_imported_run_keeps_a_label_that_is_free(store: Store, tmp_path: Path) -> None:
    assert carried(store, labelled(FAR, "elsewhere", 9), tmp_path).dropped == ""
    assert carried(store, labelled(FAR_TOO, "", 9), tmp_path).dropped == ""
    with store:
        assert store.resolve("elsewhere") == FAR


def test_the_command_says_that_a_label_was_left_out(store: Store, tmp_path: Path) -> None:
    with Store(tmp_path / "there.sqlite") as there:
        there.put(dataclasses.replace(labelled(FAR, "before", 9), plan=from_data(MADE.plan).model_dump(mode="json")))
        export(there, FAR, tmp_path / "far.gz")
    done = CliRunner().invoke(app, ["import", "far.gz"], catch_exceptions=False)
    assert done.exit_code == 0 and done.stderr == f"vmtax: its label 'before' is left out: here it means run {ONE}\n"


@pytest.mark.parametrize(
    ("stored", "wanted", "means"),
    [
        ([imported("before")], "before", ONE),  # an id that is somebody's label
        ([imported("befor")], "befor", "befor"),
        ([imported("before")], "bef", "before"),  # so it can still be named
        ([imported(FAR, "before")], "before", ONE),
        ([imported(FAR, "before"), imported(FAR_TOO, "before")], "before", ONE),
        ([imported(FAR, "other")], "other", FAR),
        ([imported("other"), imported(FAR, "other")], "other", FAR),
        ([imported("2026112")], "2026112", "2026112"),
        ([imported(FAR, "later", created=8e9)], "later", FAR),
        ([labelled(FAR, "other", 1), imported(FAR_TOO, "other")], "other", FAR),
    ],
)
@pytest.mark.varied(3)
def test_in_stores_of_earlier_versions_a_name_means_the_run_that_was_measured_here(
    store: Store, stored: list[Experiment], wanted: str, means: str
) -> None:
    with store:
        for run in stored:
            store.put(run)
        assert store.resolve(wanted) == store.choose(wanted, RESULTS).run.id == means
        assert store.load(means).id == means, "an id that was resolved is not taken for a label"
        assert store.remove(store.resolve(wanted)) == means


@pytest.mark.variations
def test_two_runs_that_were_imported_under_one_label_are_listed(store: Store) -> None:
    with store:
        for run in (imported(FAR, "other"), imported(FAR_TOO, "other")):
            store.put(run)
        with pytest.raises(NoSuchRun, match=f"2 runs have the label 'other': {FAR_TOO}, {FAR}"):
            store.resolve("other")


@pytest.mark.parametrize("ahead", [0.0, 80_000.0])
@pytest.mark.varied(1)
def test_last_is_the_run_that_came_last_whatever_a_file_says(store: Store, tmp_path: Path, ahead: float) -> None:
    far = dataclasses.replace(labelled(FAR, "", 0), created=time.time() + ahead)
    carried(store, far, tmp_path)
    with store:
        assert store.choose("last", RESULTS).run.id == store.resolve("last") == FAR
        store.put(labelled(own := "20261126-0900-quick-0001", "", 0))
        assert store.choose("last", RESULTS).run.id == store.resolve("last") == own


@pytest.mark.parametrize(
    "plan", ["quick", "é", "A b/../c", "x" * 64, "9", "a.b_c-d", "last", "--", "storage-2013", "x" * 31 + "-y"]
)
def test_every_id_that_is_made_has_the_form_that_an_import_takes(plan: str) -> None:
    for when in (0.0, 1.8e9, 2.0**33 - 1):
        made = new_id(plan, when)
        assert RUN_ID.fullmatch(made) and label_problem(made[:40]), made
