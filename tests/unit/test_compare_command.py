"""`vmtax compare` at its entry point: exit codes, and what a person, a pull request and a CI system are shown."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner, Result

from tests.unit.test_report import printed
from tests.unit.test_report_html import HOSTILE
from tests.unit.test_sessions import calibrations, five, only, session, with_facts
from vmtax.analysis import sessions
from vmtax.analysis.sessions import Change, MetricChange
from vmtax.cli import app
from vmtax.core.errors import DONE, UNDECIDED, WORSE
from vmtax.core.records import Metric
from vmtax.report.document import Detail
from vmtax.report.render.formats import CHANGE_FORMATS, find_change
from vmtax.report.render.terminal import whole
from vmtax.report.sections.change import document
from vmtax.report.wording.change import amount, verdict
from vmtax.store import Store

METRIC = Metric("chess.nodes_per_second", "1/s", "higher")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("home")
    with Store(path / "vmtax/vmtax.sqlite") as store:
        for experiment in (*five(0x10), *five(0x20), *five(0x30, -0.2)):
            store.put(only(experiment, "vm"))
    return path


def ids(first: int, count: int = 5) -> str:
    return ",".join(f"20261121-0412-quick-{first + i:04x}" for i in range(count))


def compare(home: Path, monkeypatch: pytest.MonkeyPatch, *argv: str) -> Result:
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    return CliRunner().invoke(app, ["compare", *argv])


@pytest.mark.parametrize(
    ("before", "after", "options", "code"),
    [
        (ids(0x10), ids(0x20), ("--fail-if-worse", "3%"), DONE),
        (ids(0x10), ids(0x30), ("--fail-if-worse", "3%"), WORSE),
        (ids(0x30), ids(0x10), ("--fail-if-worse", "3%"), DONE),
        (ids(0x10, 1), ids(0x30, 1), ("--fail-if-worse", "3%"), UNDECIDED),
        (ids(0x10), ids(0x20), ("--fail-if-worse", "0.01%"), UNDECIDED),
        (ids(0x10), ids(0x30), (), DONE),
        (ids(0x10, 1), ids(0x20, 1), (), DONE),
    ],
)
@pytest.mark.varied(3)
def test_the_exit_code_shows_the_result_of_the_limit(
    before: str,
    after: str,
    options: tuple[str, ...],
    code: int,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = compare(home, monkeypatch, before, after, *options)
    assert done.exit_code == code and done.stdout, done.exception


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ((), 0.03),
        (("--fail-if-worse", "10%"), 0.1),
        (("--fail-if-worse", "10%", "--same-within", "1%"), 0.01),
        (("--fail-if-worse", "10%", "--same-within", "0%"), 0.0),
    ],
)
def test_what_the_gate_allows_counts_as_the_same_if_nothing_else_is_said(
    options: tuple[str, ...], same: float, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = compare(home, monkeypatch, ids(0x10, 1), ids(0x20, 1), "--json", *options)
    assert json.loads(done.stdout)["data"]["same_within"] == same


def test_calibrations_in_the_store_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "vmtax/vmtax.sqlite") as store:
        for experiment in (*calibrations(5), session(0x10), session(0x11, -0.3)):
            store.put(experiment)
    done = compare(tmp_path, monkeypatch, ids(0x10, 1), ids(0x11, 1), "--json", "--fail-if-worse", "3%")
    answer = json.loads(done.stdout)["data"]
    assert (done.exit_code, answer["gate"]) == (WORSE, "failed")
    assert {line["method"] for line in answer["lines"] if line["primary"]} == {"stored"}


def test_a_file_is_written_instead(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "compare.txt"
    done = compare(home, monkeypatch, ids(0x10), ids(0x30), "-o", str(file), "--fail-if-worse", "3%", "--full")
    assert (done.exit_code, done.stdout) == (WORSE, f"{file}\n")
    assert "worse by over 3 %" in file.read_text() and "\x1b" not in file.read_text()


@pytest.mark.parametrize(("format", "start"), [("markdown", "### "), ("junit", "<?xml"), ("json", "{")])
@pytest.mark.varied(1)
def test_every_format_is_printed_and_ends_with_the_same_code(
    format: str, start: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = compare(home, monkeypatch, ids(0x10), ids(0x30), "--fail-if-worse", "3%", "--format", format)
    assert done.exit_code == WORSE and done.stdout.startswith(start)


def a_line(**changes: Any) -> MetricChange:
    line = MetricChange(METRIC, "vm", True, 0.95, 0.94, 0.96, (5, 5), "welch", "worse", None, False, None)
    return dataclasses.replace(line, **changes)


def a_change(*lines: MetricChange, limit: float | None = None, **changes: Any) -> Change:
    change = Change(("a",), ("b",), ("local", "local"), ("example", "merlin"), (), lines, (), 0.03, limit, ())
    return dataclasses.replace(change, **changes)


@pytest.mark.parametrize(
    ("low", "high", "limit", "words", "gate"),
    [
        (0.90, 0.95, None, "worse", None),
        (0.90, 0.95, 0.03, "worse by over 3 %", "failed"),
        (0.95, 0.99, 0.03, "worse, over 3 %: undecided", "undecided"),
        (0.975, 0.99, 0.03, "same within 3 %", "passed"),
        (0.94, 0.99, 0.08, "worse by 8 % or less", "passed"),
        (0.98, 1.05, 0.03, "not worse by over 3 %", "passed"),
        (0.96, 1.05, 0.03, "undecided", "undecided"),
        (0.96, 1.05, None, "undecided", None),
        (1.01, 1.05, 0.03, "better", "passed"),
        (0.975, 1.01, 0.01, "same within 3 %, over 1 %: undecided", "undecided"),
        (None, None, 0.03, "undecided", "undecided"),
    ],
)
def test_verdict_and_gate_follow_from_the_interval(
    low: float | None, high: float | None, limit: float | None, words: str, gate: str | None
) -> None:
    from vmtax.analysis.sessions import change as module

    costs = (None, None) if low is None or high is None else (1 - high, 1 - low)
    judged = module.outcome(*costs, 0.03)
    line = a_line(low=low, high=high, verdict=judged, gate=None if limit is None else module._gate(*costs, limit))
    assert (verdict(line, a_change(line, limit=limit)), line.gate) == (words, gate)


def test_the_worst_primary_line_is_the_gate() -> None:
    passed, failed, undecided = (a_line(gate=gate) for gate in ("passed", "failed", "undecided"))
    exploratory = a_line(primary=False, gate=None)
    assert a_change(passed, failed, undecided).gate == "failed"
    assert a_change(passed, undecided, exploratory).gate == "undecided"
    assert a_change(passed, exploratory).gate == "passed"
    assert a_change(a_line(gate=None)).gate is None


def test_junit_shows_worse_as_failure_and_undecided_as_skipped() -> None:
    why = "one session: repeat"
    lines = (
        a_line(treatment="host", gate="passed", verdict="same"),
        a_line(treatment="vm", gate="failed"),
        a_line(treatment="nested", gate="undecided", verdict="undecided", low=None, high=None, why=why, emulated=True),
        a_line(treatment="vm against host", primary=False),
    )
    facts = (sessions.FactChange("host", "kernel_release", "6.1", "6.12"),)
    root = ET.fromstring(find_change("junit")(a_change(*lines, limit=0.03, facts=facts), False))
    (suite,) = root
    assert root.tag == "testsuites"
    for element in (root, suite):
        counted = {key: element.get(key) for key in ("tests", "failures", "errors", "skipped")}
        assert counted == {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
    outcomes = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert outcomes == {"host": ["system-out"], "vm": ["failure", "system-out"], "nested": ["skipped", "system-out"]}
    (skipped,) = suite.iter("skipped")
    assert "emulated" in (skipped.get("message") or "") and skipped.text == why
    properties = {entry.get("name"): entry.get("value") for entry in suite.iter("property")}
    assert properties["host kernel_release"] == "6.1 → 6.12"
    assert (properties["before"], properties["after"]) == ("a on example", "b on merlin")
    without = ET.fromstring(find_change("junit")(a_change(a_line(), a_line(verdict="undecided")), False))
    assert (without.get("failures"), without.get("skipped")) == ("1", "1")


def on_terminal(change: Change, detail: Detail = Detail.BRIEF) -> str:
    return printed(whole(document(change, detail), detail))


def hostile_change() -> Change:
    """Everything that somebody could name, named to be obeyed."""
    before, after = five(1), five(11)
    named = [with_facts(one, kernel_release=f"{HOSTILE} \x1b[31m|`*[x](y)") for one in after]
    return sessions.compared(before, [dataclasses.replace(one, host=f"ssh://{HOSTILE}") for one in named])


def test_nothing_that_was_named_is_obeyed() -> None:
    change = hostile_change()
    for format in CHANGE_FORMATS:
        assert "\x1b" not in find_change(format)(change, True)
    assert "\x1b" not in on_terminal(change, Detail.FULL)
    ET.fromstring(find_change("junit")(change, False))
    text = find_change("markdown")(change, False)
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert "<script" not in page and "<img" not in page and 'href="y"' not in page
    groups = [{line.metric for line in change.lines if line.primary is primary} for primary in (True, False)]
    headed = sum(map(len, groups)) + len({fact.path for fact in change.facts})
    assert page.count("<tr>") == len(change.lines) + len(change.facts) + headed + 3  # three heads


def emulated_change() -> Change:
    sides = ([only(session(n, emulated=True), "vm", "nested") for n in numbers] for numbers in ((1, 2, 3), (4, 5, 6)))
    return sessions.compared(*sides)


@pytest.mark.parametrize("format", ["terminal", "markdown"])
def test_the_head_of_a_column_says_that_all_in_it_is_emulated(format: str) -> None:
    text = " ".join(find_change(format)(emulated_change(), True).split())
    assert len(re.findall(r"cost of the change(?: Primary figures| Exploratory figures)? emulated", text)) == 2


@pytest.mark.parametrize("format", ["markdown", "junit"])
def test_every_emulated_number_says_so(format: str) -> None:
    change = emulated_change()
    real = a_line(treatment="host", ratio=math.nan)  # so that no column is emulated as a whole
    text = find_change(format)(dataclasses.replace(change, lines=(real, *change.lines[:4])), True)
    numbers = re.findall(r"\d(?:×| %) \([^)]*\d\)( emulated)?", text)
    assert len(numbers) > 3 and all(numbers)
    assert amount(a_line(ratio=math.nan, low=None, high=None)) == "not measured on one side"
    assert amount(a_line(low=None, high=None, emulated=True)) == "+5.3 % (no interval) emulated"


def test_the_terminal_fits_80_columns_and_shows_the_primary_lines_first() -> None:
    change = sessions.compared(
        five(1), [with_facts(one, kernel_release="6.18.2") for one in five(11, -0.2)], limit=0.03
    )
    text = on_terminal(change)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    order = ["Of 6 primary figures: 6 worse by over 3 %.", "What differs", "6.18.2", "Primary", "Exploratory", "--full"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert len(text.splitlines()) < 70 < len(on_terminal(change, Detail.FULL).splitlines())
