"""The JSON Schema of every answer, made from the records of the answers. Only docs and tests load this module."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, field, is_dataclass, make_dataclass
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from vmtax.core.records import Json
from vmtax.plan.schema import Plan
from vmtax.report.answers.calibration import CALIBRATION
from vmtax.report.answers.change import CHANGE
from vmtax.report.answers.checked import PlanCheck
from vmtax.report.answers.claims import ClaimCheck, ClaimLine, ShownClaim
from vmtax.report.answers.envelope import SCHEMA
from vmtax.report.answers.existing import GuestAnswer
from vmtax.report.answers.fleet import FLEET
from vmtax.report.answers.fleet_change import FLEET_CHANGE
from vmtax.report.answers.history import HISTORY
from vmtax.report.answers.lab import LabState
from vmtax.report.answers.others import DIAGNOSIS, Error, PlanLine, Removed, StoredImage
from vmtax.report.answers.part import AnswerRecord
from vmtax.report.answers.run import EXPERIMENT
from vmtax.report.answers.runs import Run
from vmtax.report.answers.shape import Shape
from vmtax.report.answers.summary import SUMMARY

CHANGES = (
    "keys, kinds and identifiers (codes, features, workloads, metrics) may be added, so ignore those that you do not"
    " know; sentences for people may be reworded; computed numbers may gain digits. What does not change: no key is"
    " removed or renamed, none changes its type or unit, and no identifier changes its meaning. Tests hold this version"
    " to answers that earlier ones gave."
)


@functools.cache
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
            shape["properties"][name].setdefault("description", _for_json(text))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": f"What may change within {SCHEMA}: {CHANGES}",
        "oneOf": envelopes,
        **shared,
    }


@functools.cache
def model(shape: Shape) -> type:
    """A dataclass with the keys of a shape, their types and their meanings."""
    keys = []
    for name, path in shape.paths.items():
        own = shape.own.get(name)
        kind, meaning = (own.kind, own.meaning) if own else _attribute(shape.record, path)
        if "NaN:" in meaning:  # the envelope writes null
            kind |= None
        keys.append((name, _public(kind, shape), field(metadata={"meaning": meaning})))
    text = shape.about or inspect.getdoc(shape.record) or ""
    return make_dataclass(shape.name, keys, bases=(AnswerRecord,), namespace={"__doc__": text}, frozen=True)


def _attribute(record: type, path: str) -> tuple[Any, str]:
    """(type, meaning) of a field or property, or of one of its own: "metric.name"."""
    name, _, rest = path.partition(".")
    attribute = getattr(record, name, None)
    getter = attribute.func if isinstance(attribute, cached_property) else getattr(attribute, "fget", None)
    kind = get_type_hints(getter)["return"] if getter else get_type_hints(record)[name]
    if rest:
        return _attribute(kind, rest)
    if getter is None:
        return kind, comments(record)[name]
    text = " ".join((inspect.getdoc(getter) or "").partition("\n\n")[0].split()).removesuffix(".")
    return kind, text[:1].lower() + text[1:]


def _public(kind: Any, shape: Shape) -> Any:
    """A type in which models replace the records that have a shape."""
    if kind in shape.parts:
        return model(shape.parts[kind])
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        named = [one for one in inner if isinstance(one, Shape)]
        return model(named[0]) if named else _public(inner[0], shape)
    parts = tuple(_public(one, shape) for one in inner)
    if origin in (UnionType, Union):
        return functools.reduce(operator.or_, parts)
    return origin[parts] if parts and inner != parts else kind


@functools.cache
def comments(record: type) -> dict[str, str]:
    """Field -> the comment beside it, with its continuation on the lines below; in a model, its meaning."""
    fields: Mapping[str, Field[Any]] = getattr(record, "__dataclass_fields__", {})
    if fields and all("meaning" in one.metadata for one in fields.values()):
        return {name: one.metadata["meaning"] for name, one in fields.items()}
    described = (one for one in reversed(record.__mro__) if is_dataclass(one) or hasattr(one, "_fields"))
    pattern = r"^    (\w+): [^#\n]*#\s+(.+(?:\n    #\s+.+)*)$"
    found = [pair for one in described for pair in re.findall(pattern, inspect.getsource(one), re.MULTILINE)]
    return {name: re.sub(r"\n    #\s+", " ", text) for name, text in found}


def _for_json(text: str) -> str:
    return re.sub(r"\b(None|NaN)\b", "null", text)


def _records(data: Any) -> Iterator[type]:
    """Every dataclass in a type, including those in the fields of others."""
    if isinstance(data, type) and is_dataclass(data):
        yield data
        for kind in get_type_hints(data).values():
            yield from _records(kind)
    for kind in get_args(data):
        yield from _records(kind)


KINDS: dict[str, Any] = {  # kind -> type of its data
    "experiment": model(EXPERIMENT),
    "summary": model(SUMMARY),
    "comparison": model(CHANGE),
    "history": model(HISTORY),
    "fleet": model(FLEET),
    "fleet-change": model(FLEET_CHANGE),
    "runs": list[Run],
    "plan": Plan,
    "plans": list[PlanLine],
    "plan-check": PlanCheck,
    "doctor": model(DIAGNOSIS),
    "calibration": model(CALIBRATION),
    "claim": ShownClaim,
    "claims": list[ClaimLine],
    "claim-check": ClaimCheck,
    "lab": LabState,
    "labs": list[LabState],
    "guest": GuestAnswer,
    "images": list[StoredImage],
    "removed": list[Removed],
    "error": Error,
}
