"""docs/reference says what the code says, and real answers are what its JSON Schema allows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.sample import sample_experiment
from tools import reference
from vmtax import compare
from vmtax.doctor.check import Check, Diagnosis
from vmtax.plan import builtin_plans, check, describe, load
from vmtax.report.answers import KINDS
from vmtax.report.doctor import diagnosis_data
from vmtax.report.json import envelope, experiment_data
from vmtax.store import Store


@pytest.mark.parametrize("file", reference.every_page())
def test_a_page_is_what_the_code_says(file: str) -> None:
    written = (reference.DIRECTORY / file).read_text(encoding="utf-8")
    assert written == reference.every_page()[file], "make reference"


def test_every_command_and_parameter_says_what_it_is() -> None:
    found = [(name, command) for name, command in reference.commands() if not hasattr(command, "commands")]
    assert {"vmtax run", "vmtax doctor", "vmtax plan check", "vmtax image import"} <= {name for name, _ in found}
    for name, command in found:
        assert command.help, name
        assert all(text and "None" not in typed for typed, text in reference.parameters(command)), name


def answers(directory: Path) -> dict[str, Any]:
    """kind -> data, made by what the commands use."""
    experiment = sample_experiment(failures=2)
    with Store(directory / "store.sqlite") as store:
        store.put(experiment)
        runs = [asdict(entry) for entry in store.experiments()]
    checks = (Check("need", "QEMU", "missing", "there is none", "apt-get install qemu-system-x86"),)
    return {
        "experiment": experiment_data(experiment, compare.of(experiment)),
        "runs": runs,
        "plan": load("layers").model_dump(mode="json"),
        "plans": [{"name": name, "describe": describe(name)} for name in builtin_plans()],
        "plan-check": check(load("disk-cache")),
        "doctor": diagnosis_data(Diagnosis("local", "a CPU", checks)),
    }


def test_real_answers_are_what_the_schema_allows(tmp_path: Path) -> None:
    schema = json.loads((reference.DIRECTORY / "vmtax-1.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    found = answers(tmp_path)
    assert found.keys() == KINDS.keys()
    for kind, data in found.items():
        answer = json.loads(envelope(kind, data))
        (problem, *_) = [*validator.iter_errors(answer), None]
        assert problem is None, f"{kind}: {jsonschema.exceptions.best_match(validator.iter_errors(answer))}"
        answer["data"] = {"surprise": 1}
        assert not validator.is_valid(answer)
