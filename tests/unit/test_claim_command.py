"""`vmtax claim`: what the commands print, their exit codes, and published figures beside those of a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.sample import sample_experiment
from tests.stores import store_of
from tests.unit.test_report_at_once import experiment
from vmtax.analysis.analysis import Analysis
from vmtax.claims.beside import own_figures, own_ratios
from vmtax.claims.checked import checked
from vmtax.claims.schema import load, parse
from vmtax.cli import app
from vmtax.core.errors import BAD_INPUT, CLAIM_FAILS, DONE
from vmtax.core.records import Experiment

RUN = experiment(rounds=10, spread=0.01)
OTHER = replace(sample_experiment(rounds=2), id="20261122-0412-quick-0000")
MINE = """source: my page
year: null
unit: s
better: lower
rows:
  metal: {value: 362}
  VM: {value: 474}
derived:
  - {of: VM, base: metal, word: share, printed: PRINTED}
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for place in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{place}_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    yield store_of(tmp_path / "vmtax", OTHER, RUN)


def run(command: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command))


def data(command: str) -> Any:
    return json.loads(run(f"{command} --json").stdout)["data"]


def analysis(run: Experiment = RUN) -> Analysis:
    return Analysis(run)


@pytest.mark.parametrize(("printed", "code"), [("76.4", DONE), ("76", DONE), ("75", CLAIM_FAILS)])
def test_check_takes_a_file_and_ends_with_4_if_a_number_is_wrong(store: Path, printed: str, code: int) -> None:
    Path("mine.yaml").write_text(MINE.replace("PRINTED", printed))
    result = run("claim check mine.yaml")
    assert result.exit_code == code
    assert ("printed 75 %, but the figures give 76.37 %" in " ".join(result.stdout.split())) is (code == CLAIM_FAILS)


def test_doubts_alone_do_not_fail(store: Path) -> None:
    result = run("claim check microvm-boot-2026")
    assert result.exit_code == DONE and "p = 0.46" in " ".join(result.stdout.split())


def test_check_as_json_and_markdown_say_the_same(store: Path) -> None:
    found = data("claim check nesting-2016")
    assert found["verdict"] == "wrong" and found["findings"][0]["rule"] == "R1"
    number = next(one for one in found["numbers"] if one["printed"] == 21.38)
    assert (number["verdict"], round(number["recomputed"], 2), round(number["other_base"], 2)) == (
        "wrong",
        19.84,
        24.75,
    )
    text = run("claim check nesting-2016 --format markdown").stdout
    assert "| four VMs: loss, of host | 21.38 % | 19.84 % | 24.75 % |" in text.replace("**", "")
    assert all(one["rule"] in text for one in found["findings"])


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("claim check nesting-2015", "unknown claim 'nesting-2015'; did you mean nesting-2016?"),
        ("claim check none.yaml", "none.yaml: cannot be read: No such file or directory"),
        ("claim check bad.yaml", "bad.yaml:3:1: unit: unknown key 'unti'"),
        ("claim show nesting-2016 nothing", "nothing"),
        ("claim check nesting-2016 --format pdf", "unknown format 'pdf'; there are: terminal, markdown, json"),
        ("claim check nesting-2016 --json --format markdown", "are two formats: leave out one of them"),
        ("claim run tu-berlin --yes", "tu-berlin: no plan repeats it; claims that have one: build-2020, nesting-2016"),
    ],
)
def test_bad_input_gets_one_line(store: Path, command: str, line: str) -> None:
    Path("bad.yaml").write_text(MINE.replace("unit", "unti"))
    result = run(command)
    error = result.exception
    assert result.stdout == "" and getattr(error, "exit_code", BAD_INPUT) == BAD_INPUT
    assert line.replace("unit: ", "unti: ") in str(error)


def test_tables_have_their_titles_in_markdown_too(store: Path) -> None:
    found = run("claim show nesting-2016 --format markdown").stdout
    assert "| network, NTttcp with 8 threads (higher is better) | published | said of it |" in found


def test_a_run_stands_beside_its_claim(store: Path) -> None:
    text = run(f"claim show nesting-2016 {RUN.id}").stdout
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert max(map(len, text.splitlines())) <= 80
    (four,) = [line for line in lines if line.startswith("four VMs, of host ")]
    assert four.split()[4:10] == ["80.2", "%", "78.62", "%", "80.1", "%"] or "80." in four
    assert four.endswith("same yes")
    (one,) = [line for line in lines if line.startswith("one VM, of host ")]
    assert "30.0 %" in one and one.endswith("other no")  # here, one guest does more than a quarter of the host's
    assert any(line.startswith("here: host ") for line in lines) and "published: host" in text
    assert "What is done differently" in text


def test_a_run_of_something_else_says_what_to_do(store: Path) -> None:
    text = " ".join(run(f"claim show sriov-2012 {OTHER.id}").stdout.split())
    assert "has no configuration and metric of this claim: vmtax claim run sriov-2012" in text


def test_run_measures_the_claims_plan_and_shows_both(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def carry_out(plan: str, options: object) -> str:
        asked.append(plan)
        return RUN.id

    monkeypatch.setattr("vmtax.cli.claim_run.carry_out", carry_out)
    assert f"nesting-2016 beside run {RUN.id}" in run("claim run nesting-2016 --budget 1h --yes").stdout
    assert "has no configuration" in run("claim run sriov-2012 --yes").stdout
    assert run("claim run nesting-2016 --yes --json").stdout == ""  # the run's own answer is one JSON text
    run("claim run nesting-2016 --resume --yes")
    assert asked == ["nesting-2016", "sriov", "nesting-2016", ""]


def test_own_ratios_are_of_otherwise_equal_configurations() -> None:
    found = {(one.derived.of, one.derived.base): one for one in own_ratios(load("nesting-2016").tables, analysis())}
    four = found["four VMs", "host"]
    assert four.own == pytest.approx(373_178 / 465_536, rel=0.02)  # of the host with four at once
    assert found["one VM", "host"].own == pytest.approx(139_634 / (465_536 / 4), rel=0.02)  # of the host alone
    assert four.low is not None and four.high is not None and four.low < four.own < four.high
    assert four.is_inside is True and four.same_direction is True


def test_a_ratio_of_times_is_turned_into_one_of_speeds() -> None:
    text = """source: a
year: 2026
unit: s
better: lower
metric: disk\\.randwrite-4k-qd32\\.p99_seconds
rows:
  host: {value: 2, layer: host}
  VM: {value: 4, layer: vm, levels: {guest.count: "1"}}
derived:
  - {of: VM, base: host, word: WORD}
"""
    speed, time = (own_ratios(parse(text.replace("WORD", word)).tables, analysis())[0] for word in ("share", "more"))
    assert (speed.published, time.published) == (0.5, 2.0)
    assert speed.own == pytest.approx(1 / time.own)
    assert speed.low == pytest.approx(1 / time.high) and speed.high == pytest.approx(1 / time.low)


@pytest.mark.parametrize(("of", "base"), [("12", "0"), ("0", "12"), ("-3", "12"), ("12", "-3"), ("0", "0.0")])
def test_a_difference_of_a_figure_that_is_not_above_0_is_no_ratio(of: str, base: str) -> None:
    rows = f"{{host: {{value: '{base}', layer: host}}, VM: {{value: '{of}', layer: vm}}}}"
    difference = f"rows: {rows}\nderived: [{{of: VM, base: host, word: difference, printed: {of}}}]"
    claim = parse(f"source: a\nyear: 2026\nunit: s\nbetter: lower\nmetric: .*\n{difference}")
    assert not [one for one in checked(claim).findings if one.rule == "R9"]
    assert own_figures(claim, analysis()) and not own_ratios(claim.tables, analysis())


def test_single_figures_stand_beside_the_runs_own() -> None:
    names = {one.name for one in own_figures(load("nesting-2016"), analysis())}
    assert names == {"host", "one VM", "four VMs", "one nested VM", "four nested VMs"}


def test_list_shows_every_claim_with_its_verdict(store: Path) -> None:
    found = data("claim list")
    assert len(found) == 25 and {one["verdict"] for one in found} == {"wrong", "doubtful"}
    text = run("claim list").stdout
    assert all(one["name"] in text for one in found) and max(map(len, text.splitlines())) <= 80
