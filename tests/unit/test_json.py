"""The text of JSON answers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.part import Part

LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
ANY = st.recursive(LEAVES, lambda below: st.lists(below) | st.dictionaries(st.text(), below), max_leaves=20)


@given(ANY)
def test_the_text_is_that_of_the_standard_library(data: Any) -> None:
    assert envelope("any", data) == json.dumps({"schema": "vmtax/1", "kind": "any", "data": data}, indent=2)


@dataclass(frozen=True)
class Inner(Part):
    a: float


@dataclass(frozen=True)
class Outer(Part):
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
