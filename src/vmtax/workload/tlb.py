"""The reach of the TLB: stress-ng follows pointers over memory of growing size, and makes other CPUs forget theirs.

Behind a guest's page table stands the host's: an address that is in no TLB costs up to 24 reads instead of 4, and fewer
where pages are larger on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload import stress_ng
from vmtax.workload.base import BadOutput, Command, Measure, Parameters
from vmtax.workload.site import Site

NANOSECOND = 1e-9
PAGE = 4096
Case = Literal["chase-1m", "chase-16m", "chase-64m", "chase-256m", "shootdown"]
PAGES = {f"chase-{mib}m": mib * 2**20 // PAGE for mib in (1, 16, 64, 256)}
SHOOTDOWN = "shootdown"
METRICS = {
    **{case: Metric(f"tlb.{case}.access_seconds", "s", "lower") for case in PAGES},
    SHOOTDOWN: Metric("tlb.shootdown.per_second", "1/s", "higher"),
}


class TlbParameters(Parameters):
    cases: tuple[Case, ...] = Field(
        ("chase-1m", "chase-16m", "chase-64m", "chase-256m", "shootdown"),
        min_length=1,
        description="what to measure; the guest must have more memory than the largest, in MiB",
    )
    seconds: float = Field(3.0, ge=1, le=3600, description="run length of each, in seconds")


class Tlb(Command[TlbParameters]):
    """One instance follows pointers, so that only its own memory is in the way; shootdowns take one on each CPU."""

    name = "tlb"
    describe = "TLB: the time of a read at random in 1 to 256 MiB, and TLB shootdowns between CPUs (stress-ng)"
    tool = "stress-ng"
    title = "TLB"
    packages = (stress_ng.PACKAGE,)
    headline = METRICS["chase-64m"].name
    measures: ClassVar = {
        "access_seconds": Measure(
            "mean time to follow a pointer to a page at random, on one CPU",
            "read at random",
            "time of a read at random",
        ),
        METRICS[SHOOTDOWN].name: Measure(
            "times in a second that a CPU changed memory and made the others forget where it was, all vCPUs together",
            "TLB shootdowns",
            "TLB shootdowns per second",
        ),
    }
    parameters_type = TlbParameters

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(METRICS[case] for case in self.parameters.cases)

    def command(self, site: Site, case: str) -> Sequence[str]:
        if case == SHOOTDOWN:
            return stress_ng.command("tlb-shootdown", site.vcpus, self.parameters.seconds)
        return stress_ng.command("ptr-chase", 1, self.parameters.seconds, "--ptr-chase-pages", str(PAGES[case]))

    def seconds(self, case: str) -> float:
        return self.parameters.seconds

    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        stressor = _stressor(case)
        stress_ng.passed(stressor, output)
        if case == SHOOTDOWN:
            value = stress_ng.operations_per_second(stressor, output)
        else:
            value = stress_ng.figure(stressor, "nanosec per pointer", output) * NANOSECOND
        if value <= 0:
            raise BadOutput(f"stress-ng reports {value} for {METRICS[case].name}")
        return (Measurement(METRICS[case], value),)

    def own_seconds(self, case: str, output: str) -> float | None:
        return stress_ng.own_seconds(_stressor(case), output)


def _stressor(case: str) -> str:
    return "tlb-shootdown" if case == SHOOTDOWN else "ptr-chase"
