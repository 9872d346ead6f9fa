"""Labels of runs: what can be one, and that every command takes one in place of an id."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment
from tests.unit.test_cli import vmtax
from vmtax.analysis.analysis import Analysis
from vmtax.cli.app import app, complete_run
from vmtax.core.records import Experiment, label_problem
from vmtax.report.wording.headline import in_few_words
from vmtax.store import Store
from vmtax.store.failure import NoSuchRun

MADE = sample_experiment(rounds=6)


def labelled(id: str, label: str, later: float) -> Experiment:
    return dataclasses.replace(MADE, id=id, label=label, created=MADE.created + later)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with Store() as made:
        for run in (labelled("one", "before", 0), labelled("two", "after", 1), labelled("three", "after", 2)):
            made.put(run)
    return made


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
def test_what_cannot_be_a_label_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    done = vmtax("run", f"--label={text}", "--yes", home=tmp_path)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


def test_a_label_goes_before_the_beginning_of_an_id_and_after_an_id(store: Store) -> None:
    with store:
        store.put(labelled("before-it", "one", 3))
        assert [store.resolve(wanted) for wanted in ("before", "one", "last")] == ["one", "one", "before-it"]
        assert store.load("before").label == "before"


def test_a_label_of_several_runs_lists_their_ids(store: Store) -> None:
    with store, pytest.raises(NoSuchRun) as raised:
        store.resolve("after")
    assert str(raised.value) == "2 runs have the label 'after': three, two: name one by its id"
    with store, pytest.raises(NoSuchRun, match=r"nearest: before$"):
        store.resolve("befor e")
    with store, pytest.raises(NoSuchRun, match=r"^no run 'xyz'; `vmtax runs` lists them all$"):
        store.resolve("xyz")


@pytest.mark.parametrize(
    "words",
    [("show",), ("compare", "two"), ("report", "-o", "r.html"), ("export", "-o", "r.run.gz"), ("runs", "rm", "--yes")],
)
def test_every_command_takes_a_label(store: Store, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "before"], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_an_exported_run_keeps_its_label(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CliRunner().invoke(app, ["export", "before", "-o", "b.run.gz"], catch_exceptions=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    CliRunner().invoke(app, ["import", "b.run.gz"], catch_exceptions=False)
    with Store() as other:
        assert other.load("before").id == "one"


def test_labels_are_completed_and_listed(store: Store) -> None:
    assert complete_run("") == ["after", "before", "three", "two", "one"]
    assert complete_run("be") == ["before"]
    with store:
        store.keep_headline("one", in_few_words(Analysis(store.load("one"))))
    done = CliRunner().invoke(app, ["runs"], catch_exceptions=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("one")]
    assert all(words in line for words in ("before", "emulated", "VM +42 % to 37×"))
    (other,) = [line for line in done.stdout.splitlines() if line.startswith("two")]
    assert "complete" in other, "of a run whose headline is not stored it is the state"
    told = {run["id"]: run for run in json.loads(CliRunner().invoke(app, ["runs", "--json"]).stdout)["data"]}
    assert (
        told["one"]["label"] == "before" and told["one"]["emulated"] is True and told["one"]["result"].startswith("VM")
    )
    assert told["one"]["seconds"] == MADE.took
