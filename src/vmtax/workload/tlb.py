"""The reach of the TLB: stress-ng follows pointers through memory of growing size, and makes other CPUs flush theirs.

A guest's page table is translated by the host's: an address that is in no TLB costs up to 24 reads instead of 4, and
fewer if either side uses larger pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.records import Metric
from vmtax.workload.base import Measure, Parameters
from vmtax.workload.stress_ng import NANOSECOND, Stressing, Stressor

PAGE = 4096
MIB = 2**20
SIZES = ("chase-1m", "chase-16m", "chase-64m", "chase-256m")
Case = Literal["chase-1m", "chase-16m", "chase-64m", "chase-256m", "shootdown"]


def _chase(mib: int) -> Stressor:
    metric = Metric(f"tlb.chase-{mib}m.access_seconds", "s", "lower")
    pages = ("--ptr-chase-pages", str(mib * MIB // PAGE))
    return Stressor("ptr-chase", metric, ("nanosec per pointer",), NANOSECOND, options=pages)


class TlbParameters(Parameters):
    cases: tuple[Case, ...] = Field(
        ("chase-1m", "chase-16m", "chase-64m", "chase-256m", "shootdown"),
        min_length=1,
        description="what to measure; numbers are sizes in MiB; a guest must have 128 MiB more than the largest",
    )
    seconds: float = Field(3.0, ge=1, le=3600, description="run length of each case, in seconds")


class Tlb(Stressing[TlbParameters]):
    """Pointers are followed by one instance, so that only its own memory competes for the TLB; shootdowns need one on
    each CPU.
    """

    name = "tlb"
    describe = "TLB: the time of a random read in 1 to 256 MiB of memory, and TLB shootdowns between CPUs (stress-ng)"
    title = "TLB"
    stressors: ClassVar = {
        **{f"chase-{mib}m": _chase(mib) for mib in (1, 16, 64, 256)},
        "shootdown": Stressor("tlb-shootdown", Metric("tlb.shootdown.per_second", "1/s", "higher"), on_all=True),
    }
    headline = stressors["chase-64m"].metric.name
    measures: ClassVar = {
        "access_seconds": Measure(
            "mean time to follow a pointer to a random page, on one CPU",
            "read at random",
            "time of a read at random",
        ),
        stressors["shootdown"].metric.name: Measure(
            "times in a second that a CPU changed a mapping of memory and made the others drop it from their TLBs, all"
            " vCPUs together",
            "shootdowns",
            "TLB shootdowns per second",
        ),
    }
    parameters_type = TlbParameters

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    @property
    def array_bytes(self) -> int:
        """Memory that it fills in each machine: the largest that pointers lead through."""
        sizes = (case.removeprefix("chase-").removesuffix("m") for case in self.parameters.cases if case in SIZES)
        return max(map(int, sizes), default=0) * MIB

    def seconds(self, case: str) -> float:
        return self.parameters.seconds
