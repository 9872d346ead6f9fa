"""What every `--json` answer holds, kind by kind. Base units: seconds, bytes, bits, operations; times since the epoch.

docs/reference has it as a JSON Schema, made by tools/reference.py; a test holds the real answers to it. What a
field means stands beside it: in its description, or in a record's comment.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from vmtax.core.checks import Check
from vmtax.core.records import Boot, Disturbance, Json
from vmtax.plan.schema import Plan
from vmtax.report.render.envelope import SCHEMA
from vmtax.report.schema.calibration import Calibration
from vmtax.report.schema.change import Change
from vmtax.report.schema.lab import LabState
from vmtax.report.schema.part import Part
from vmtax.report.schema.run import Experiment
from vmtax.report.schema.summary import Summary
from vmtax.store import ExperimentSummary


class PlanLine(Part):
    """A built-in plan."""

    name: str = Field(description="what `vmtax run` takes")
    describe: str = Field(description="the question that it answers")


class Diagnosis(Part):
    """What `vmtax doctor` found."""

    host: str = Field(description="as given: local, ssh://[user@]host or lab[:NAME]")
    about: str = Field(description="processor, memory, system; one line")
    measurable: bool = Field(description="host and VM can be measured")
    checks: list[Check] = Field(description="one for each thing looked at")


class StoredImage(Part):
    """A root image in the cache, a pack, or what is left of either."""

    what: Literal["image", "ZFS pack", "kernel pack", "not whole"] = Field(
        description="the last: half made, damaged, or of another version of vmtax"
    )
    name: str = Field(description="what `image remove` takes; of a pack the version of ZFS")
    path: str = Field(description="where it is")
    usable: bool = Field(description="of the present recipe; of a pack: an image here can use it")
    kernel: str | None = Field(description="release; null, as what follows, where it is not whole")
    bytes: int | None = Field(description="of all its files")
    packages: int | None = Field(description="how many Debian packages are in it; null: it is a pack")


@dataclass(frozen=True, slots=True)
class Run(ExperimentSummary):
    """One line of `vmtax runs`."""

    created_iso: str | None = None  # created in UTC as ISO 8601 writes it; null of a damaged run
    finished_iso: str | None = None  # None: not finished


class Removed(Part):
    """What was removed."""

    what: str = Field(description="its kind, for people")
    text: str = Field(description="which: the id of a run, a path, a command that undid something")


class Error(Part):
    """Why there is no other answer."""

    code: int = Field(description="exit code of the program, of those in exit-codes.md")
    message: str = Field(description="what is wrong, and what would be right; the same text is on stderr")


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
RECORDS = (Boot, Check, Disturbance, Run)


def json_schema() -> Json:
    """JSON Schema (2020-12) of every answer: one envelope for each kind."""
    inputs = [(kind, "serialization", TypeAdapter(data)) for kind, data in KINDS.items()]
    by_kind, shared = TypeAdapter.json_schemas(inputs)  # type: ignore[arg-type]
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
    for record in RECORDS:
        for name, text in comments(record).items():
            shared["$defs"][record.__name__]["properties"][name].setdefault("description", text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, "oneOf": envelopes, **shared}


def comments(record: type) -> dict[str, str]:
    """Field -> the comment beside it. Records have no descriptions, for whoever uses them need not load pydantic."""
    sources = "".join(inspect.getsource(one) for one in reversed(record.__mro__[:-1]))
    found = re.findall(r"^    (\w+): [^#\n]*#\s+(.+)$", sources, re.MULTILINE)
    return {name: text.replace("None:", "null:") for name, text in found}  # as JSON calls it
