"""What reports say of what survived a power cut, and `show --why`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner, Result

from tests.sample_durability import (
    DIRECTSYNC,
    NONE,
    QCOW2,
    UNSAFE,
    WRITEBACK,
    durability_experiment,
    experiment,
    found,
    trial,
    with_trials,
)
from tests.sample_storage import storage_experiment
from tests.unit.test_report import printed
from tests.unit.test_report_html import Page
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.durability import NEEDED_STATES
from vmtax.cli import app
from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.run import experiment as answered
from vmtax.report.answers.schema import json_schema
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections import durability as section
from vmtax.report.sections.next_steps import next_steps
from vmtax.report.show import evidence, render
from vmtax.report.wording import durability
from vmtax.report.wording.headline import in_few_words
from vmtax.store import Store


def test_the_first_screen_of_a_run_that_is_about_nothing_else() -> None:
    text = printed(render(Analysis(durability_experiment())))
    assert max(map(len, text.splitlines())) <= 80
    assert (
        "Of 5 configurations, 2 lost nothing in any state of a power cut; 1 lost\nacknowledged data"
        " (vm disk.cache=unsafe); 2 are not shown to be durable." in text
    )
    assert "Nothing can be compared" not in text
    assert "The control of vm disk.cache=none disk.format=qcow2" in text
    assert "--why durable" in text and "Not modelled" in text


def test_the_first_screen_of_disk_and_durability_begins_with_what_contradicts_documentation() -> None:
    text = printed(render(Analysis(with_trials(storage_experiment(2, few=True), writeback=3))))
    assert text.index("is documented as durable") < text.index("Recommendation") < text.index(section.TITLE)
    assert "Of 12 configurations" not in text, "it is about more"


@pytest.mark.parametrize("emulated", [False, True])
def test_every_report_has_the_same_sentences(emulated: bool) -> None:
    analysis = Analysis(durability_experiment(emulated=emulated))
    full, file = printed(render(analysis, full=True)), render_markdown(analysis)
    page = Page(render_html(analysis)).prose()
    for text in (" ".join(one.split()) for one in (full, page, file)):
        assert "2 lost nothing in any state of a power cut" in text
        assert "0 of 2,142" in text and "≤ 0.14 %" in text
        assert "its control, which never flushes, lost nothing in 2,070 states either" in text
        assert "Not modelled: the drive's own cache" in text
        assert ("An emulated CPU makes the writers slow" in text) == emulated
        assert text.count("Not modelled") == 1
    assert "1,200 of 2,052" in full and "control (never flushes)" in full


def test_one_configuration_is_named_in_the_headline() -> None:
    shown = found(trial(DIRECTSYNC.name, 1, states=50, control=9))
    text = "is not shown to be durable: 0 of 50 states"
    assert section.headline(shown, {}).startswith(f"vm disk.cache=directsync {text}")
    plan = {"factors": {"disk.format": ["qcow2"], "disk.cache": ["none", "directsync"]}}
    assert section.headline(shown, plan).startswith(f"vm disk.cache=directsync (disk.format=qcow2) {text}")
    assert durability.in_few_words(shown) == "not shown to be durable"
    assert in_few_words(Analysis(durability_experiment())) == "2 durable, 1 not, 2 not shown"


def test_the_answer_is_as_the_schema_says() -> None:
    answer = json.loads(envelope("experiment", answered(Analysis(durability_experiment()))))
    jsonschema_rs.Draft202012Validator(json_schema()).validate(answer)
    states = answer["data"]["summary"]["durable"]
    assert (states[UNSAFE.name], states[WRITEBACK.name], states[DIRECTSYNC.name]) == ("no", "yes", "not shown")
    data = answer["data"]["durability"]
    assert (data["needed_states"], data["confidence"], data["proves"]) == (300, 0.95, True)
    assert data["blind"] == [QCOW2.name] and data["disagreements"] == []
    by_name = {one["treatment"]: one for one in data["evidence"]}
    assert {name: one["state"] for name, one in by_name.items()} == {
        NONE.name: "yes",
        WRITEBACK.name: "yes",
        UNSAFE.name: "no",
        DIRECTSYNC.name: "not shown",
        QCOW2.name: "not shown",
    }
    cut = next(end for end in by_name[UNSAFE.name]["ends"] if end["end"] == "power-cut")
    assert (cut["states"], cut["lost"], cut["file_system_damaged"], cut["image_damaged"]) == (2280, 1536, 93, None)
    assert cut["control"]["lost"] == 2100 and {"append-fsync-4k", "sqlite-wal"} < {w["name"] for w in cut["writers"]}


def test_too_few_states_are_cured_by_more_rounds() -> None:
    steps = next_steps(Analysis(durability_experiment()))
    assert steps[0][0] == "vmtax run durability --rounds 8", "120 states in 3 rounds"
    enough = experiment(trial(NONE.name, 1, states=NEEDED_STATES))
    assert not [command for command, _ in next_steps(Analysis(enough)) if "--rounds" in command]


# `show --why`.


def why(run: Experiment, feature: str) -> str:
    return printed(evidence(Analysis(run), feature))


def test_why_lists_the_evidence_writer_by_writer() -> None:
    text = why(durability_experiment(), "durable")
    assert "Documented  no: cache=unsafe ignores the guest's flushes." in text
    assert "append-fsync-4k               0 of 3   930 of 2,052   36     ≥ 43 %" in text
    assert text.startswith("What the trials show\n  Of 5 configurations") and "Not modelled" in text


def test_why_lists_what_else_was_tried() -> None:
    text = why(storage_experiment(1, few=True), "savevm")
    assert "vm disk.format=qcow2: yes (savevm)" in text
    assert "lets the guest's state be saved into the image" in text


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--why", "durable"], "tried no power cut, so what is durable is as documented"),
        (["--why", "durabel"], "unknown feature 'durabel'; did you mean durable?"),
        (["--why", "thin"], "measure again with `give_ups: true`"),
        (["--why", "durable", "--json"], "--why prints the evidence as text"),
    ],
)
def test_why_refuses_in_one_line(tmp_path: Path, words: list[str], answer: str) -> None:
    done = show(tmp_path, storage_experiment(1, features=False, few=True), *words)
    assert isinstance(done.exception, BadInput) and not done.output
    assert answer in str(done.exception) and "\n" not in str(done.exception)


def test_why_on_the_command_line(tmp_path: Path) -> None:
    done = show(tmp_path, durability_experiment(), "last", "--why", "durable")
    assert (done.exit_code, done.output) == (0, why(durability_experiment(), "durable"))


def show(home: Path, run: Experiment, *words: str) -> Result:
    with Store(home / "vmtax/vmtax.sqlite") as store:
        store.put(replace(run, trials=tuple(replace(trial, raw="") for trial in run.trials)))
    return CliRunner(env={"XDG_DATA_HOME": str(home)}).invoke(app, ["show", *words])
