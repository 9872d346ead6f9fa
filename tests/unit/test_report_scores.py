"""The storage ranking in every report: what is shown, that emulated figures say so, and what the options refuse."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner, Result

from tests.answers import experiment_data
from tests.sample import sample_experiment
from tests.unit.test_report import check_golden, on_terminal, printed
from tests.unit.test_report_html import HOSTILE, Page
from tests.unit.test_scores import HAND, measured
from tools import reference
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.weight_profiles import PROFILES, asked
from vmtax.cli import app
from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment
from vmtax.report.render.formats import FORMATS, find
from vmtax.report.render.html import render_html
from vmtax.report.render.markdown import render_markdown
from vmtax.report.sections.scores import TITLE, section, storage
from vmtax.report.show import render
from vmtax.store import Store

WHOLE = sample_experiment(rounds=6, treatments=9)
SAMPLE = dataclasses.replace(WHOLE, trials=tuple(trial for trial in WHOLE.trials if trial.workload == "disk"))
DATABASE = PROFILES["database"]


def test_the_section_on_a_terminal() -> None:
    text = on_terminal(section(storage(Analysis(SAMPLE, DATABASE))))
    assert max(map(len, text.splitlines())) <= 80
    check_golden("show-storage.txt", text)


def test_every_report_has_it() -> None:
    analysis = Analysis(SAMPLE, DATABASE)
    terminal = printed(render(analysis, full=True), 120)
    page = Page(render_html(analysis)).prose()
    markdown = render_markdown(analysis)
    told = storage(analysis)
    assert [table.heading for table in told.tables][:2] == [
        "Storage for reads and writes, vm",
        "Storage for a database, vm",
    ]
    for text in (terminal, page, markdown):
        plain = " ".join(text.replace("\N{NO-BREAK SPACE}", " ").replace("\\", "").split())
        assert TITLE in plain
        assert all(table.heading in plain for table in told.tables)
        assert all(line.replace("_", "") in plain.replace("_", "") for line in told.lines)
    full = printed(render(analysis, full=True), 160)
    for text in (full, page, markdown):
        assert all(table.heading in " ".join(text.split()) for table in told.more)
    for line in (line for table in (*told.tables, *told.more) for line in table.lines):
        assert f"| {line.value} |" in markdown.replace("\\", "")


def test_without_three_treatments_of_a_layer_there_is_no_section() -> None:
    for experiment in (sample_experiment(rounds=2), measured({})):
        assert not storage(Analysis(experiment))
        assert TITLE not in render_html(Analysis(experiment)) and TITLE not in render_markdown(Analysis(experiment))
    asked_for = storage(Analysis(sample_experiment(rounds=2), DATABASE))
    assert asked_for.lines == ("nothing to rank: no layer of this run has 3 configurations or more",)


def test_what_is_sure_and_what_is_missing_is_reported() -> None:
    gaps = [500, None, 500, 500, None, 500]
    host = {**HAND["host"], "disk.read-1m.bytes_per_second": gaps}
    told = storage(Analysis(measured({**HAND, "host": host, "vm d": {}})))
    lines = " ".join(told.lines)
    assert "in 2 of 6 rounds it has no number, so the median of its others serves" in lines
    assert "vm: reads: not ranked, without a score in most rounds: vm d" in lines
    assert "first by the article's score: vm b (reads 375 B/s; both 303 B/s" in lines
    assert "first by the geometric mean: " in lines and "the same are first" not in lines
    assert "behind" in lines and "emulated" not in lines
    told = storage(Analysis(measured({name: row for name, row in HAND.items() if name != "host"})))
    assert "yardstick: vm a, for no bare metal was measured there, in the same round" in " ".join(told.lines)


def test_little_of_a_mix_is_said_to_be_little() -> None:
    profile = asked(measured(HAND), "build", "")
    lines = " ".join(storage(Analysis(measured(HAND), profile)).lines)
    assert "33 % of the weight remains: too little to be an answer" in lines


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.varied(2)
def test_names_are_text(text: str) -> None:
    experiment = measured({name.replace("vm a", f"vm {text}"): row for name, row in HAND.items()})
    page = Page(render_html(Analysis(experiment)))
    harmless = Page(render_html(Analysis(measured(HAND))))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]


def run(store: Path, monkeypatch: pytest.MonkeyPatch, experiment: Experiment, command: str) -> Result:
    for place in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{place}_HOME", str(store))
    with Store() as opened:
        opened.put(experiment)
    return CliRunner().invoke(app, command.split())


@pytest.mark.parametrize("options", ["", "--for database", "--weights disk.read-1m.bytes_per_second=2"])
@pytest.mark.varied(1)
def test_json_answers_are_what_the_schema_allows(options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    answer = json.loads(run(tmp_path, monkeypatch, SAMPLE, f"show --json {options}").stdout)
    jsonschema_rs.Draft202012Validator(schema).validate(answer)
    found = answer["data"]["scores"]["found"]
    metrics = {score["ranking"]["metric"] for score in found}
    extra = {"": set(), "--for": {"score.database"}, "--weights": {"score.weights"}}[options.partition(" ")[0]]
    assert metrics == {f"score.{k}{m}" for k in ("read", "write", "both") for m in ("", ".geometric")} | extra
    for score in found:
        assert {value["treatment"] for value in score["values"]} > {
            s["treatment"] for s in score["ranking"]["standings"]
        }
        assert all(value["emulated"] == (value["treatment"] != "host") for value in score["values"])


@pytest.mark.variations
def test_the_options_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(tmp_path, monkeypatch, SAMPLE, "show --for desktop").stdout
    assert "Storage for a desktop, vm" in shown and "a desktop weighs 4 disk.randread-4k-qd1.iops" in " ".join(
        shown.split()
    )
    target = tmp_path / "r.md"
    done = CliRunner().invoke(app, ["report", "--format", "markdown", "-o", str(target), "--for", "build"])
    assert done.exit_code == 0 and "## Storage for a build, vm" in target.read_text()
    bad = CliRunner().invoke(app, ["show", "--for", "databse"])
    assert "did you mean database?" in str(bad.exception)


def test_what_has_no_ranking_refuses_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name for name, format in FORMATS.items() if not format.ranks and not format.costs} == {"csv", "parquet"}
    done = run(tmp_path, monkeypatch, SAMPLE, "show --format csv --for desktop")
    assert isinstance(done.exception, BadInput) and "leave out --for and --weights" in str(done.exception)
    for format in (format for format in FORMATS.values() if not format.costs):  # which need two rounds
        assert format.render(Analysis(sample_experiment(rounds=1)))
    assert find("csv").render(Analysis(SAMPLE)).startswith(b"round,")


def test_a_run_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    started = dataclasses.replace(SAMPLE, trials=(), boots=(), finished=None, state="running")
    assert not storage(Analysis(started)) and experiment_data(Analysis(started))["scores"] == {
        "found": [],
        "missing": [],
    }
    first = dataclasses.replace(SAMPLE, trials=tuple(trial for trial in SAMPLE.trials if trial.round == 1))
    told = storage(Analysis(first))
    assert told.tables and not re.search(r"beaten by", " ".join(line.remark for line in told.tables[0].lines))
