"""The lines of jq in docs/how-to/share-a-run.md do what stands above them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.answers import as_read, experiment_data
from tests.sample import sample_experiment, with_repeat
from vmtax.analysis.analysis import Analysis
from vmtax.cli import app
from vmtax.report.answers.summary import summary
from vmtax.store import Store

PAGE = (Path(__file__).parents[2] / "docs/how-to/share-a-run.md").read_text()
LINES = dict(re.findall(r"^# (.*)\n(vmtax .*)$", PAGE, re.MULTILINE))
RUN = with_repeat(sample_experiment(failures=1))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    with Store(home / "vmtax/vmtax.sqlite") as store:
        store.put(RUN)
    return home


def answered(home: Path, line: str) -> list[str]:
    asked, _, filtered = line.partition(" | ")
    answer = CliRunner(env={"XDG_DATA_HOME": str(home)}).invoke(app, shlex.split(asked)[1:])
    assert answer.exit_code == 0, answer.output
    done = subprocess.run(shlex.split(filtered), input=answer.stdout, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.variations
def test_the_page_has_five_lines_and_each_answers(home: Path) -> None:
    assert len(LINES) == 5
    assert all(answered(home, line) for line in LINES.values())


def test_the_answers_are_what_the_page_says(home: Path) -> None:
    cost, largest, worse, believed, values = (answered(home, line) for line in LINES.values())
    assert any(re.fullmatch(r"network, inbound \d+\.\d+", line) for line in cost)
    ratios = [one["ratio"] for one in json.loads("\n".join(largest))]
    assert len(ratios) == 5 and ratios == sorted(ratios, reverse=True)
    assert "disk.randread-4k-qd1.iops" in worse
    assert any(line.startswith("failed: ") for line in believed)
    assert len(values) == len({trial.round for trial in RUN.trials}) * 3 and all('"' in line for line in values)


def test_a_part_of_the_answer_is_what_all_of_it_has() -> None:
    analysis = Analysis(RUN)
    data = experiment_data(analysis)
    assert data["summary"] == as_read(summary(analysis))
    assert data["created_iso"] == "2026-11-21T04:12:00Z"
    assert {m["started_iso"][:10] for m in data["measurements"]} == {"2026-11-21"}


@pytest.mark.parametrize("words", [["--json=all"], ["--json="], ["--json=summary", "--full"]])
def test_another_part_is_refused(home: Path, words: list[str]) -> None:
    done = CliRunner(env={"XDG_DATA_HOME": str(home)}).invoke(app, ["show", *words])
    assert done.exit_code != 0
