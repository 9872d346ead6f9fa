"""The JSON Schema of every answer, made from the records of the answers. Only docs and tests load this module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from vmtax.core.records import Json
from vmtax.plan.schema import Plan
from vmtax.report.answers.calibration import Calibration
from vmtax.report.answers.change import Change
from vmtax.report.answers.envelope import SCHEMA
from vmtax.report.answers.lab import LabState
from vmtax.report.answers.others import Diagnosis, Error, PlanLine, Removed, StoredImage
from vmtax.report.answers.run import Experiment
from vmtax.report.answers.runs import Run
from vmtax.report.answers.summary import Summary

CHANGES = (
    "keys, kinds and identifiers (codes, features, workloads, metrics) may be added, so ignore those that you do not"
    " know; sentences for people may be reworded; computed numbers may gain digits. What does not change: no key is"
    " removed or renamed, none changes its type or unit, and no identifier changes its meaning. Tests hold this version"
    " to answers that earlier ones gave."
)
KINDS: dict[str, Any] = {  # kind -> type of its data
    "experiment": Experiment,
    "summary": Summary,
    "comparison": Change,
    "runs": list[Run],
    "plan": Plan,
    "plans": list[PlanLine],
    "plan-check": list[str],
    "doctor": Diagnosis,
    "calibration": Calibration,
    "lab": LabState,
    "labs": list[LabState],
    "images": list[StoredImage],
    "removed": list[Removed],
    "error": Error,
}


def json_schema() -> Json:
    """The JSON Schema (2020-12) of every answer, with one envelope for each kind."""
    mode: JsonSchemaMode = "serialization"
    inputs = [(kind, mode, TypeAdapter(data)) for kind, data in KINDS.items()]
    by_kind, shared = TypeAdapter.json_schemas(inputs)
    envelopes = [
        {
            "title": kind,
            "type": "object",
            "properties": {"schema": {"const": SCHEMA}, "kind": {"const": kind}, "data": data},
            "required": ["schema", "kind", "data"],
            "additionalProperties": False,
        }
        for (kind, _), data in by_kind.items()
    ]
    for record in dict.fromkeys(record for data in KINDS.values() for record in _records(data)):
        shape = shared["$defs"][record.__name__]
        shape["description"] = _for_json(shape["description"])
        for name, text in comments(record).items():
            shape["properties"][name].setdefault("description", text)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": f"What may change within {SCHEMA}: {CHANGES}",
        "oneOf": envelopes,
        **shared,
    }


def comments(record: type) -> dict[str, str]:
    """Field -> the comment beside it, with its continuation on the lines below."""
    sources = (inspect.getsource(one) for one in reversed(record.__mro__) if is_dataclass(one))
    pattern = r"^    (\w+): [^#\n]*#\s+(.+(?:\n    #\s+.+)*)$"
    found = [pair for source in sources for pair in re.findall(pattern, source, re.MULTILINE)]
    return {name: _for_json(re.sub(r"\n    #\s+", " ", text)) for name, text in found}


def _for_json(text: str) -> str:
    return text.replace("None:", "null:")


def _records(data: Any) -> Iterator[type]:
    """Every dataclass in a type, including those in the fields of others."""
    if isinstance(data, type) and is_dataclass(data):
        yield data
        for kind in get_type_hints(data).values():
            yield from _records(kind)
    for kind in get_args(data):
        yield from _records(kind)
