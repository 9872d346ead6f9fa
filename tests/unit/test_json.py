"""The text of JSON answers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.part import AnswerRecord
from vmtax.report.answers.schema import comments, model
from vmtax.report.answers.shape import AnswerKey, Shape

LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
ANY = st.recursive(LEAVES, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=20)


@given(ANY)
def test_the_text_is_that_of_the_standard_library(data: Any) -> None:
    assert envelope("any", data) == json.dumps({"schema": "vmtax/1", "kind": "any", "data": data}, indent=2)


@dataclass(frozen=True)
class Inner(AnswerRecord):
    a: float


@dataclass(frozen=True)
class Outer(AnswerRecord):
    b: tuple[Inner, ...]
    c: str


@dataclass(frozen=True, slots=True)
class Slotted:
    c: str
    d: int


def test_a_record_is_its_fields_in_their_order_and_what_is_not_finite_is_null() -> None:
    made = Outer.of(Slotted("text", 3), b=(Inner(math.nan), Inner(math.inf), Inner(1.5)))
    assert json.loads(envelope("any", [made, Slotted("x", 1)]))["data"] == [
        {"b": [{"a": None}, {"a": None}, {"a": 1.5}], "c": "text"},
        {"c": "x", "d": 1},
    ]
    assert envelope("any", made).index('"b"') < envelope("any", made).index('"c"')


@dataclass(frozen=True, slots=True)
class Point:
    x: float  # how far east, in metres; NaN: unknown
    y: float

    @property
    def far(self) -> bool:
        """Whether it is far away."""
        return self.x > 100


@dataclass(frozen=True, slots=True)
class Way:
    points: tuple[Point, ...]  # where it leads
    first: Point
    secret: str = "no key"


POINT = Shape(
    Point, "far x on", {"on": AnswerKey(str | None, "name of the map", lambda _, context: context)}, name="Place"
)
WAY = Shape(Way, "start=first.x points length", {"length": AnswerKey(int, "in metres")}, parts=[POINT])


def test_a_shape_lists_the_keys_of_a_record() -> None:
    near = Point(1.5, 2.0)
    made = WAY.made(Way((near, Point(math.nan, 0.0)), near), "map", length=7)
    assert list(made) == ["start", "points", "length"] and (made["start"], made["length"]) == (1.5, 7)
    assert made["points"][0] == {"far": False, "x": 1.5, "on": "map"} and list(made["points"][1]) == ["far", "x", "on"]


def test_the_schema_takes_types_and_meanings_from_the_record() -> None:
    assert comments(model(WAY)) == {
        "start": "how far east, in metres; NaN: unknown",
        "points": "where it leads",
        "length": "in metres",
    }
    schema = TypeAdapter(model(WAY)).json_schema()
    number = {"anyOf": [{"type": "number"}, {"type": "null"}]}
    assert schema["properties"]["start"] == {"title": "Start", **number}
    assert schema["properties"]["points"]["items"] == {"$ref": "#/$defs/Place"}
    place = schema["$defs"]["Place"]
    assert place["properties"]["far"] == {"title": "Far", "type": "boolean"} and not place["additionalProperties"]
    assert comments(model(POINT))["far"] == "whether it is far away"
