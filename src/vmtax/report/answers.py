"""What every `--json` answer holds, kind by kind. Base units: seconds, bytes, bits, operations; times since the epoch.

docs/reference has it as a JSON Schema, made by tools/reference.py; a test holds the real answers to it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from vmtax.doctor.check import Check
from vmtax.plan import Plan
from vmtax.report.json import SCHEMA
from vmtax.result import Better, Boot, Disturbance, Json, State, Verdict
from vmtax.store import ExperimentSummary


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Treatment(_Part):
    """One layer and one level of each factor."""

    name: str
    layer: Literal["host", "vm", "nested"]
    levels: dict[str, str] = Field(description="every factor's level")
    emulated: bool = Field(description="any boot of it ran on an emulated CPU")


class _Place(_Part):
    treatment: str
    workload: str
    case: str = Field(description="part of the workload; empty where there is only one")
    round: int = Field(description="from 1")
    position: int = Field(description="of the treatment within its round, from 1")
    iteration: int = Field(description="within the boot, from 1")
    started: float
    wall_seconds: float = Field(description="of the command, seen from outside")
    warnings: list[str]
    disturbance: Disturbance | None = Field(description="what else happened on the host under test; null: not read")


class Measurement(_Place):
    """One number of one trial that may be compared."""

    metric: str
    unit: str
    better: Better
    value: float
    emulated: bool


class Failure(_Place):
    """A trial without a number: what it ran did not work, or must not be compared."""

    status: Literal["failed", "refused"]
    error: str | None


class Overhead(_Part):
    """Lost rate, 1 - ratio, where higher is better; added time, ratio - 1, where lower is better."""

    estimate: float | None
    low: float | None
    high: float | None


class Comparison(_Part):
    """One metric of one treatment against a baseline; null bounds: too few rounds for an interval."""

    metric: str
    unit: str
    better: Better
    baseline: str
    treatment: str
    ratio: float | None = Field(description="exp of the Hodges-Lehmann estimate of ln(treatment / baseline)")
    low: float | None
    high: float | None
    overhead: Overhead
    rounds: int = Field(description="rounds in which both sides have a value")
    verdict: Verdict
    emulated: bool = Field(description="either side is")
    warnings: list[str]


class Experiment(_Part):
    """One run of a plan."""

    id: str
    name: str = Field(description="the plan's")
    host: str
    command: str = Field(description="what repeats it")
    created: float
    finished: float | None
    state: State
    plan: Json
    notes: list[str] = Field(description="what was not measured, and why; what a reader must know")
    facts: dict[str, Any] = Field(description="machine path to the facts of that machine; null: not to be found out")
    treatments: list[Treatment]
    boots: list[Boot]
    measurements: list[Measurement]
    failures: list[Failure]
    comparisons: list[Comparison]
    ledger: list[Any] = Field(description="who used the host's CPU; empty in this version")


class PlanLine(_Part):
    """A built-in plan."""

    name: str
    describe: str = Field(description="the question that it answers")


class Diagnosis(_Part):
    """What `vmtax doctor` found."""

    host: str
    about: str
    measurable: bool = Field(description="host and VM can be measured")
    checks: list[Check]


KINDS: dict[str, Any] = {  # kind -> type of its data
    "experiment": Experiment,
    "runs": list[ExperimentSummary],
    "plan": Plan,
    "plans": list[PlanLine],
    "plan-check": list[str],
    "doctor": Diagnosis,
}


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
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, "oneOf": envelopes, **shared}
