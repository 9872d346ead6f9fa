"""Memory and scheduler: stress-ng's stream, page fault and context switch stressors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.records import Metric, Unit
from vmtax.workload.base import Measure, Parameters
from vmtax.workload.site import Site
from vmtax.workload.stress_ng import Stressing, Stressor

MIB = 2**20  # stress-ng's "MB" is 2^20 bytes (core-lib: #define MB)
ARRAYS, CACHES = 3, 4  # stress-ng's stream has three arrays, each as large as four caches
STREAM_MINIMUM_SECONDS = 6.0  # stress-ng reports no rate if its loops run for less than 4.5 s, without its start
STREAM_FILL_SECONDS = 6.0 / 16  # to fill the arrays, per MiB of cache, on a busy emulated machine
Case = Literal["stream", "faults", "switches", "forks"]


def _metric(case: Case, measure: str = "per_second", unit: Unit = "1/s") -> Metric:
    return Metric(f"memory.{case}.{measure}", unit, "higher")


class MemoryParameters(Parameters):
    cases: tuple[Case, ...] = Field(("stream", "faults", "switches"), min_length=1, description="what to measure")
    seconds: float = Field(
        5.0, ge=1, le=3600, description="run length of each case, in seconds; stream runs for at least 6"
    )
    # The size is given, never taken from the cache that the guest reports: stress-ng makes each array 4 × this size,
    # divided by the number of instances.
    stream_cache: Literal["4m", "16m", "64m", "256m"] = Field(
        "16m", description="size of the cache that the arrays of stream must exceed; m is MiB"
    )


class Memory(Stressing[MemoryParameters]):
    name = "memory"
    describe = "memory: stream bandwidth; page faults, context switches and forks per second (stress-ng)"
    title = "Memory"
    stressors: ClassVar = {
        "stream": Stressor(
            "stream",
            _metric("stream", "bytes_per_second", "B/s"),
            ("MB per sec memory read rate", "MB per sec memory write rate"),
            MIB,
            on_all=True,
        ),
        "faults": Stressor(
            "fault",
            _metric("faults"),
            ("minor page faults per sec", "major page faults per sec"),
            on_all=True,
        ),
        # One operation is one message between processes
        "switches": Stressor("switch", _metric("switches"), on_all=True),
        "forks": Stressor("fork", _metric("forks"), on_all=True),  # one operation is one process
    }
    headline = stressors["stream"].metric.name
    measures: ClassVar = {
        "bytes_per_second": Measure(
            "bytes read and written in a second in arrays larger than the cache, all vCPUs together",
            "bandwidth",
            "memory bandwidth",
        ),
        stressors["faults"].metric.name: Measure(
            "page faults served in a second, minor and major, all vCPUs together, in memory that is used again and"
            " again (of the first touch: workload touch)",
            "page faults",
            "page faults per second",
        ),
        stressors["switches"].metric.name: Measure(
            "messages passed between processes in a second; each one causes a context switch",
            "context switches",
            "context switches per second",
        ),
        stressors["forks"].metric.name: Measure(
            "processes started and ended in a second, all vCPUs together", "forks", "forks per second"
        ),
    }
    parameters_type = MemoryParameters

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    @property
    def array_bytes(self) -> int:
        """Memory that it fills in each machine: the three arrays of stream."""
        cache = int(self.parameters.stream_cache.removesuffix("m")) * MIB
        return ARRAYS * CACHES * cache if "stream" in self.parameters.cases else 0

    def command(self, site: Site, case: str) -> Sequence[str]:
        size = ("--stream-l3-size", self.parameters.stream_cache) if case == "stream" else ()
        return (*super().command(site, case), *size)

    def seconds(self, case: str) -> float:
        if case != "stream":
            return self.parameters.seconds
        # The time to fill the arrays is subtracted from the time in the loops.
        mib = int(self.parameters.stream_cache.removesuffix("m"))
        return max(STREAM_MINIMUM_SECONDS + self.emulated * STREAM_FILL_SECONDS * mib, self.parameters.seconds)
