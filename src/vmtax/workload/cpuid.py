"""VM exits: stress-ng's x86cpuid. A guest cannot run cpuid: each one leaves to its hypervisor, which answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload import stress_ng
from vmtax.workload.base import BadOutput, Command, Measure, Parameters
from vmtax.workload.site import Site

STRESSOR = "x86cpuid"
NANOSECOND = 1e-9
INSTRUCTION = Metric("cpuid.instruction_seconds", "s", "lower")


class CpuidParameters(Parameters):
    seconds: float = Field(2.0, ge=1, le=3600, description="run length, in seconds")


class Cpuid(Command[CpuidParameters]):
    """One instance, so that no exit waits for another's."""

    name = "cpuid"
    describe = "VM exits: the time of a cpuid instruction, which a guest leaves to its hypervisor (stress-ng)"
    tool = "stress-ng"
    title = "VM exits"
    packages = (stress_ng.PACKAGE,)
    headline = INSTRUCTION.name
    measures: ClassVar = {
        INSTRUCTION.name: Measure(
            "mean time of a cpuid instruction on one CPU; in a guest, that of a VM exit and the way back",
            "one cpuid instruction",
            "a cpuid instruction, in a guest a VM exit",
        )
    }
    parameters_type = CpuidParameters

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return (INSTRUCTION,)

    def command(self, site: Site, case: str) -> Sequence[str]:
        return stress_ng.command(STRESSOR, 1, self.parameters.seconds)

    def seconds(self, case: str) -> float:
        return self.parameters.seconds

    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        stress_ng.passed(STRESSOR, output)
        nanoseconds = stress_ng.figure(STRESSOR, "nanosecs per cpuid instruction", output)
        if nanoseconds <= 0:
            raise BadOutput(f"stress-ng reports {nanoseconds} for {INSTRUCTION.name}")
        return (Measurement(INSTRUCTION, nanoseconds * NANOSECOND),)

    def own_seconds(self, case: str, output: str) -> float | None:
        return stress_ng.own_seconds(STRESSOR, output)
