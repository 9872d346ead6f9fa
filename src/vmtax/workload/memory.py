"""Memory and scheduler: stress-ng's stream, page fault and context switch stressors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload import stress_ng
from vmtax.workload.base import BadOutput, Command, Measure, Parameters
from vmtax.workload.site import Site

MIB = 2**20  # stress-ng's "MB" is 2^20 bytes (core-lib: #define MB)
STREAM_MINIMUM_SECONDS = 5.0  # stress-ng reports no rate from less than 4.5 s inside its loops
STREAM_FILL_SECONDS = 3.0 / 16  # to fill the arrays for each MiB of cache, on a busy machine that is emulated
Case = Literal["stream", "faults", "switches", "forks"]
STRESSORS = {"stream": "stream", "faults": "fault", "switches": "switch", "forks": "fork"}
COUNTED = ("switches", "forks")  # an operation is one message from process to process, or one process
FIGURES = {
    "stream": (("MB per sec memory read rate", MIB), ("MB per sec memory write rate", MIB)),
    "faults": (("minor page faults per sec", 1), ("major page faults per sec", 1)),
}
METRICS = {
    "stream": Metric("memory.stream.bytes_per_second", "B/s", "higher"),
    "faults": Metric("memory.faults.per_second", "1/s", "higher"),
    "switches": Metric("memory.switches.per_second", "1/s", "higher"),
    "forks": Metric("memory.forks.per_second", "1/s", "higher"),
}


class MemoryParameters(Parameters):
    cases: tuple[Case, ...] = Field(("stream", "faults", "switches"), min_length=1, description="what to measure")
    seconds: float = Field(5.0, ge=1, le=3600, description="run length of each, in seconds; stream takes 5 or more")
    # The size is given, never taken from the cache that the guest reports: stress-ng makes each array 4 × this size,
    # divided by the number of instances.
    stream_cache: Literal["4m", "16m", "64m", "256m"] = Field(
        "16m", description="stream: cache size to exceed; m is MiB"
    )


class Memory(Command[MemoryParameters]):
    name = "memory"
    describe = "memory: stream bandwidth; page faults, context switches and forks per second (stress-ng)"
    tool = "stress-ng"
    title = "Memory"
    packages = (stress_ng.PACKAGE,)
    headline = METRICS["stream"].name
    measures: ClassVar = {
        "bytes_per_second": Measure(
            "bytes read and written in a second in arrays larger than the cache, all vCPUs together",
            "bandwidth",
            "memory bandwidth",
        ),
        METRICS["faults"].name: Measure(
            "page faults served in a second, minor and major, all vCPUs together",
            "page faults",
            "page faults per second",
        ),
        METRICS["switches"].name: Measure(
            "messages passed from process to process in a second: each switches context",
            "context switches",
            "context switches per second",
        ),
        METRICS["forks"].name: Measure(
            "processes begun and ended in a second, all vCPUs together", "forks", "forks per second"
        ),
    }
    parameters_type = MemoryParameters

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(METRICS[case] for case in self.parameters.cases)

    def command(self, site: Site, case: str) -> Sequence[str]:
        stressor = STRESSORS[case]
        size = ("--stream-l3-size", self.parameters.stream_cache) if case == "stream" else ()
        return stress_ng.command(stressor, site.vcpus, self.seconds(case), *size)

    def seconds(self, case: str) -> float:
        if case != "stream":
            return self.parameters.seconds
        # What the arrays take to be filled comes off the time in the loops.
        mib = int(self.parameters.stream_cache.removesuffix("m"))
        return max(STREAM_MINIMUM_SECONDS + self.emulated * STREAM_FILL_SECONDS * mib, self.parameters.seconds)

    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        stressor = STRESSORS[case]
        instances = stress_ng.passed(stressor, output)
        if case in COUNTED:
            value = stress_ng.operations_per_second(stressor, output)
        else:
            # These figures are means over the instances (one on each vCPU): what the layer does is their sum.
            figures = (stress_ng.figure(stressor, label, output) * scale for label, scale in FIGURES[case])
            value = instances * sum(figures)
        if value <= 0:
            raise BadOutput(f"stress-ng reports {value} for {METRICS[case].name}")
        return (Measurement(METRICS[case], value),)

    def own_seconds(self, case: str, output: str) -> float | None:
        return stress_ng.own_seconds(STRESSORS[case], output)
