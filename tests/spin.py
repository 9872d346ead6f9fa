"""A workload whose parameters the tests of plans own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from vmtax.core.records import Metric
from vmtax.plan.schema import Plan, from_data
from vmtax.workload import Parameters, Workload


class SpinParameters(Parameters):
    cases: tuple[Literal["short", "long"], ...] = Field(("short",), min_length=1)
    seconds: float = 4.0


class Spin(Workload[SpinParameters]):
    """A workload whose parameters these tests own."""

    name = "spin"
    describe = "spins"
    parameters_type = SpinParameters

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return [
            Metric(f"{self.name}.{case}.{m}", "1/s", "higher") for case in self.cases() for m in ("turns", "stalls")
        ]

    def seconds(self, case: str) -> float:
        return self.parameters.seconds


class Start(Spin):
    name = "start"
    layers = frozenset({"vm", "nested"})


def spin_plan(**fields: Any) -> Plan:
    return from_data({"name": "p", "workloads": ["spin"]} | fields)
