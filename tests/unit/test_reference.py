"""docs/reference says what the code says, and real answers are what its JSON Schema allows."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from tests.sample import sample_experiment, with_repeat
from tests.stores import store_of
from tools import reference
from vmtax.cli import app
from vmtax.lab.home import Record, Software, lab, write
from vmtax.lab.spec import Size
from vmtax.report.answers.schema import KINDS, json_schema
from vmtax.workload import WORKLOADS

GUEST = Path(__file__).parent.parent / "existing/proxmox/example.conf"
ANSWERS = {  # kind -> the commands that give it
    "experiment": ["show --json", "show --format json"],
    "summary": ["show --json=summary"],
    "comparison": ["compare 20261121-0412-quick-0000 last --json --fail-if-worse 3%"],
    "history": ["history --json"],
    "fleet": ["fleet show --json"],
    "fleet-change": ["fleet compare before after --json"],
    "runs": ["runs --json"],
    "plan": ["plan show quick --json", "plan show layers --json", "plan show disk-cache --json"],
    "plans": ["plan list --json"],
    "plan-check": ["plan check disk-cache --json"],
    "doctor": ["doctor --json"],
    "calibration": ["calibrate --show last --json"],
    "lab": ["lab status --json"],
    "labs": ["lab list --json"],
    "images": ["image list --json"],
    "guest": [f"plan from {GUEST} --json", f"doctor {GUEST} --json"],
    "claims": ["claim list --json"],
    "claim": ["claim show nesting-2016 --json", "claim show nesting-2016 last --json"],
    "claim-check": ["claim check nesting-2016 --json", "claim check tu-berlin --format json"],
    "removed": ["clean --images --yes --json", "runs rm last --yes --json"],
}


STORED = (
    dataclasses.replace(sample_experiment(rounds=2, failures=2), label="before"),
    dataclasses.replace(sample_experiment(rounds=3, seed=2), label="after"),
    dataclasses.replace(with_repeat(sample_experiment(rounds=7, failures=2, seed=1)), name="calibrate"),
)


@functools.cache
def pages() -> Mapping[str, str]:
    return reference.pages()


@pytest.mark.parametrize("file", sorted(path.name for path in reference.DIRECTORY.iterdir()))
def test_a_page_is_what_the_code_says(file: str) -> None:
    written = (reference.DIRECTORY / file).read_text(encoding="utf-8")
    assert written == pages().get(file), "make reference"


def test_no_page_is_missing() -> None:
    assert {path.name for path in reference.DIRECTORY.iterdir()} == pages().keys()


def test_every_command_and_parameter_says_what_it_is() -> None:
    found = reference.documented()
    assert {"vmtax", "vmtax run", "vmtax doctor", "vmtax plan check", "vmtax image import"} <= {
        name for name, _ in found
    }
    for name, command in found:
        assert command.help, name
        assert all(text and "None" not in typed for typed, text in reference.parameters(command)), name


def test_every_metric_parameter_and_field_says_what_it_is() -> None:
    for name, kind in WORKLOADS.items():
        assert kind.tool
        every = kind(kind.parameters_type()).metrics()
        assert all({metric.name, metric.measure} & kind.measures.keys() for metric in every), name
        assert kind.headline in [metric.name for metric in every]
        assert all(field.description for field in kind.parameters_type.model_fields.values()), name
    for name, shape in json_schema()["$defs"].items():
        assert shape["description"], name
        assert [key for key, value in shape["properties"].items() if not value.get("description")] == [], name
        texts = [value["description"] for value in shape["properties"].values()]
        assert [text for text in texts if re.search(r"\w+: \w+:", text)] == [], f"{name}: a value without a meaning"


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.varied(3)
def test_real_answers_are_what_the_schema_allows(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{place}_HOME", str(tmp_path))
    store_of(tmp_path / "vmtax", *STORED)
    home = lab()
    home.directory.mkdir(parents=True)
    write(home.directory / "lab.json", Record(Size(), Software("10.0.2", "0123456789ab", "6.12.1", None, "tcg")))
    (tmp_path / "vmtax/images/.building-1").mkdir(parents=True)
    assert KINDS.keys() - ANSWERS.keys() == {"error"}, "test_cli.py has it"
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    for command in ANSWERS[kind]:
        answer = json.loads(CliRunner().invoke(app, command.split()).stdout)
        assert answer["kind"] == kind
        validator.validate(answer)
        for changed in ({**answer, "data": {"surprise": 1}}, {**answer, "kind": "other"}, {**answer, "more": 1}):
            assert not validator.is_valid(changed)


@pytest.mark.parametrize("argv", [["groff", "-man", "-ww", "-z"], ["mandoc", "-Tlint", "-Werror"]])
def test_the_man_page_is_good_roff(argv: list[str]) -> None:
    page = reference.DIRECTORY / "vmtax.1"
    if shutil.which(argv[0]):  # neither is needed for vmtax; whoever has one checks with it
        done = subprocess.run([*argv, str(page)], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = page.read_text()
    assert [line for line in text.splitlines() if line[:1] in ("'", "`") or len(line) > 100] == []
