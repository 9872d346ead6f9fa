"""No text does anything but give a Plan or a PlanError."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from vmtax.plan import rules
from vmtax.plan.schema import Plan, PlanError, builtin_plans, from_data, parse
from vmtax.workload import WORKLOADS

KEYS = st.sampled_from(
    [*Plan.model_fields, "vcpus", "memory", "min", "max", "disk.cache", "cpu.mitigations", *WORKLOADS]
)


SCALARS = (
    st.sampled_from(["vm", "nested", "none", "off", "1GiB", "2%", "20m", "disk", "randread-4k-qd1", "lab", "16m"])
    | st.integers()
    | st.floats()
    | st.booleans()
    | st.none()
    | st.text(max_size=8)
)


DATA = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


PLANS = st.dictionaries(KEYS, DATA, max_size=8).map(lambda data: {"name": "a", "workloads": ["chess"], **data})


WAYS: list[Callable[[object], object]] = [
    lambda value: value,
    lambda value: [value],
    lambda value: {"memory": value, "min": value, "worse_than": value, "disk.bus": value},
    lambda value: [{"disk.bus": value}],
    lambda value: [{"disk": {"seconds": value, "size": value, "patterns": [value]}}],
]


PARAMETERS = st.sampled_from(
    [(name, key) for name, kind in WORKLOADS.items() for key in [*kind.parameters_type.model_fields, "x"]]
)


def gives_plan_or_error(text: str) -> None:
    try:
        assert isinstance(parse(text, "p.yaml"), Plan)
    except PlanError as error:
        assert error.problems
        assert all(line.startswith("p.yaml:") and line.isprintable() for line in error.problems)


@given(st.text(max_size=60) | st.text(alphabet="a:-[]{}&*!|>'\"%@`,?# \n\t0\\Uu", max_size=40))
def test_any_text(text: str) -> None:
    gives_plan_or_error(text)


@given(PLANS)
def test_any_data_under_known_keys(data: dict[str, Any]) -> None:
    gives_plan_or_error(yaml.safe_dump(data, allow_unicode=True))


@given(KEYS, st.sampled_from([10**400, -(10**4000), 2**63, "x" * 70_000]), st.sampled_from(WAYS))
def test_any_size_in_data_of_an_archive(key: str, value: object, way: Callable[[object], object]) -> None:
    try:
        from_data({"name": "a", "workloads": ["chess"], key: way(value)}, "p.yaml")
    except PlanError as error:
        assert all(len(line) <= 1000 and line.isprintable() for line in error.problems)


@given(PARAMETERS, DATA)
def test_any_workload_parameter(parameter: tuple[str, str], value: object) -> None:
    workload, key = parameter
    gives_plan_or_error(yaml.safe_dump({"name": "a", "workloads": [{workload: {key: value}}]}, allow_unicode=True))


@given(st.sampled_from(builtin_plans()), st.data())
def test_any_slip_of_the_hand_in_a_plan(name: str, data: st.DataObject) -> None:
    text = Path(rules.__file__).with_name("builtin").joinpath(f"{name}.yaml").read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    gives_plan_or_error(text[:start] + data.draw(st.text(max_size=3)) + text[end:])
