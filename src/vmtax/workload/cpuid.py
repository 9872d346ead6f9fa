"""VM exits: stress-ng's x86cpuid. A guest cannot run cpuid itself: each one exits to its hypervisor, which answers
it.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vmtax.core.records import Metric
from vmtax.workload.base import Measure, Parameters
from vmtax.workload.stress_ng import NANOSECOND, Stressing, Stressor

INSTRUCTION = Metric("cpuid.instruction_seconds", "s", "lower")
LEAVES = 66  # CPUID instructions in each operation of stress-ng 0.19, the image's version


class CpuidParameters(Parameters):
    seconds: float = Field(2.0, ge=1, le=3600, description="run length, in seconds")


class Cpuid(Stressing[CpuidParameters]):
    """Runs one instance, so that no exit waits for another instance's."""

    name = "cpuid"
    describe = "VM exits: the time of a cpuid instruction, which makes a guest exit to its hypervisor (stress-ng)"
    title = "VM exits"
    headline = INSTRUCTION.name
    stressors: ClassVar = {
        "": Stressor("x86cpuid", INSTRUCTION, ("nanosecs per cpuid instruction",), NANOSECOND, each=LEAVES)
    }
    measures: ClassVar = {
        INSTRUCTION.name: Measure(
            "mean time of a cpuid instruction on one CPU; in a guest, the time of a VM exit and of the way back",
            "one cpuid instruction",
            "a cpuid instruction, in a guest a VM exit",
        )
    }
    parameters_type = CpuidParameters

    def seconds(self, case: str) -> float:
        return self.parameters.seconds
