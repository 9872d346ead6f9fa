"""Markdown, CSV and Parquet: everything is in them, and nothing in them is obeyed by what opens them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import sys

import pyarrow.parquet
import pytest
from markdown_it import MarkdownIt

from tests.answers import experiment_data
from tests.sample import on_emulated_host, sample_experiment
from tests.unit.test_report import check_golden, renamed
from tests.unit.test_report_html import HOSTILE, Page, hostile
from vmtax.analysis.analysis import Analysis
from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.run import experiment as run_answer
from vmtax.report.render.formats import FORMATS, find
from vmtax.report.render.rows import ALWAYS

FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", " =1")


def made(format: str, experiment: Experiment) -> bytes:
    return find(format).render(Analysis(experiment))


def read_csv(experiment: Experiment) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(made("csv", experiment).decode(), newline="")))


def rendered(experiment: Experiment) -> str:
    """The Markdown as a page, by a renderer that would let HTML through."""
    return (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(made("markdown", experiment).decode())
    )


# --- the table of formats


def test_every_format_writes_every_experiment() -> None:
    started = dataclasses.replace(sample_experiment(), trials=(), boots=(), finished=None, state="running")
    for name, format in FORMATS.items():
        assert format.name == name and format.suffix.startswith(".")
        for experiment in (sample_experiment(rounds=2, failures=2), *(() if format.costs else (started,))):
            data = format.render(Analysis(experiment))
            assert data and (not format.text or data.decode().endswith("\n") or name == "html")


def test_an_unknown_format_is_reported_with_what_there_is() -> None:
    with pytest.raises(BadInput, match="did you mean parquet"):
        find("parket")
    with pytest.raises(BadInput, match="there are: html, markdown, json, csv, parquet"):
        find("pdf")


def test_json_is_what_show_json_prints() -> None:
    experiment = sample_experiment(rounds=2)
    assert made("json", experiment).decode() == envelope("experiment", run_answer(Analysis(experiment))) + "\n"


# --- Markdown


def test_markdown() -> None:
    check_golden("report.md", made("markdown", sample_experiment(treatments=4, failures=2)).decode())


@pytest.mark.parametrize(
    "text", (*HOSTILE, "a|b", "`a", "*a*", "[a](http://x)", "![a](b)", "\\", "- a", "# a", "&lt;", "a\n\n# b")
)
@pytest.mark.varied(2)
def test_names_are_text_in_markdown(text: str) -> None:
    page, harmless = Page(rendered(hostile(text))), Page(rendered(hostile("harmless")))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in harmless.elements]
    assert " ".join(text.split()) in page.prose()


def heads_of_numbers(experiment: Experiment) -> list[str]:
    """The heads over figures, of the tables that set layers side by side."""
    lines = made("markdown", experiment).decode().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| metric |") and " vm" in line]
    return [head for row in rows for head in row if head not in ("metric", "rounds", "against itself")]


def test_the_heads_of_emulated_columns_of_the_markdown_say_so() -> None:
    heads = heads_of_numbers(sample_experiment())
    assert len(heads) > 20
    assert all(head.endswith(" emulated") == (head != "host") for head in heads), heads
    assert "emulated" not in made("markdown", sample_experiment(emulated=False)).decode().lower()


def test_on_an_emulated_host_every_column_of_every_format_says_so() -> None:
    experiment = on_emulated_host(sample_experiment(emulated=False))
    heads = heads_of_numbers(experiment)
    assert "host emulated" in heads and all(head.endswith(" emulated") for head in heads)
    assert {row["emulated"] for row in read_csv(experiment)} == {"true"}
    data = experiment_data(Analysis(experiment))
    marks = [one["emulated"] for kind in ("treatments", "measurements", "comparisons") for one in data[kind]]
    assert len(marks) > 500 and all(marks)


# --- CSV and Parquet


def test_one_row_for_each_measurement() -> None:
    experiment = sample_experiment(treatments=4, failures=2)
    found = read_csv(experiment)
    first = experiment.trials[0]
    row, disturbance = found[0], first.disturbance
    assert disturbance is not None
    assert len(found) == sum(len(trial.measurements) for trial in experiment.trials)
    treatment = next(one for one in experiment.treatments if one.name == first.treatment)
    assert (row["treatment"], row["layer"]) == (treatment.name, treatment.layer)
    assert row["guest_mitigations"] == treatment.levels["guest.mitigations"]
    assert (row["metric"], row["unit"], row["better"]) == ("chess.one-thread.nodes_per_second", "1/s", "higher")
    assert float(row["value"]) == first.measurements[0].value  # exactly
    assert float(row["disturbance_busy_seconds"]) == disturbance.busy_seconds
    assert {r["emulated"] for r in found if r["layer"] == "host"} == {"false"}
    assert {r["emulated"] for r in found if r["layer"] != "host"} == {"true"}


def test_names_of_columns_are_words_and_no_column_is_the_same_in_all_rows() -> None:
    found = read_csv(sample_experiment(treatments=4, failures=2))
    assert all(re.fullmatch(r"[a-z]\w*", name) for name in found[0])
    assert not {"run", "plan", "host", "side"} & {*found[0]}, "these are of the whole run"
    assert all(len({row[name] for row in found}) > 1 for name in found[0] if name not in ALWAYS)
    alone = read_csv(sample_experiment(rounds=1))
    assert {*alone[0]} >= ALWAYS, "what a row cannot be understood without is always there"


def test_what_meters_read_has_columns() -> None:
    experiment = sample_experiment(rounds=1)
    first, *others = experiment.trials
    read = dataclasses.replace(first, readings={"host": {"vmstat.pgfault": 12.0}})
    found = read_csv(dataclasses.replace(experiment, trials=(read, *others)))
    assert found[0]["readings_host_vmstat_pgfault"] == "12.0" and found[-1]["readings_host_vmstat_pgfault"] == ""
    assert not any(None in row for row in found), "no cell is without a column"


def test_what_is_not_known_is_empty() -> None:
    experiment = sample_experiment(rounds=1)
    first, *others = experiment.trials
    row = read_csv(dataclasses.replace(experiment, trials=(dataclasses.replace(first, disturbance=None), *others)))[0]
    assert {value for name, value in row.items() if name.startswith("disturbance_")} == {""}
    trials = tuple(dataclasses.replace(trial, disturbance=None) for trial in experiment.trials)
    row = read_csv(dataclasses.replace(experiment, trials=trials))[0]
    assert not any(name.startswith("disturbance_") for name in row), "and where nothing is known there is no column"


@pytest.mark.parametrize("text", FORMULAS)
def test_text_is_no_formula_in_a_spreadsheet(text: str) -> None:
    experiment = renamed(sample_experiment(rounds=1), {"vm": text}, name=text, host=text)
    below_zero = dataclasses.replace(experiment.trials[0].measurements[0], value=-1.5)
    first = dataclasses.replace(experiment.trials[0], measurements=(below_zero,))
    found = read_csv(dataclasses.replace(experiment, trials=(first, *experiment.trials[1:])))
    assert f"'{text}" in {row["treatment"] for row in found}
    assert found[0]["value"] == "-1.5"  # a number is one


def test_a_row_stays_on_its_line() -> None:
    text = made("csv", renamed(sample_experiment(rounds=1), {"vm": "a\r\n=1\x1b[2J"})).decode()
    assert "\x1b" not in text and "\r" not in text
    assert text.count("\n") == 1 + len(read_csv(sample_experiment(rounds=1)))


def test_parquet_holds_the_rows_of_the_csv_with_their_types() -> None:
    experiment = sample_experiment(treatments=4, failures=1)
    table = pyarrow.parquet.read_table(io.BytesIO(made("parquet", experiment)))
    found = read_csv(experiment)
    assert table.column_names == [*found[0]]
    assert [str(row["value"]) for row in table.to_pylist()] == [row["value"] for row in found]
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert (types["round"], types["value"], types["emulated"], types["guest_mitigations"]) == (
        *("int64", "double", "bool", "string"),
    )


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/src/.venv", "/src/.venv/bin/python -m pip install pyarrow"),
        (
            "/usr",
            "as root, apt-get install python3-pip && /usr/bin/python -m pip install --break-system-packages pyarrow",
        ),
    ],
)
def test_parquet_without_pyarrow_names_the_cure(prefix: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "executable", f"{prefix}/bin/python")
    with pytest.raises(BadInput) as caught:
        made("parquet", sample_experiment(rounds=1))
    assert str(caught.value) == f"parquet needs pyarrow: {command}; csv has the same rows without it"


def test_json_and_csv_agree() -> None:
    experiment = sample_experiment(rounds=2)
    measurements = json.loads(made("json", experiment))["data"]["measurements"]
    assert [(m["metric"], m["value"]) for m in measurements] == [
        (row["metric"], float(row["value"])) for row in read_csv(experiment)
    ]
