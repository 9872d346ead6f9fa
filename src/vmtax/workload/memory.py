"""Memory and scheduler: stress-ng's stream, page fault and context switch stressors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import BadOutput, Command, Parameters
from vmtax.workload.site import Site

MIB = 2**20  # stress-ng's "MB" is 2^20 bytes (core-lib: #define MB)
STREAM_MINIMUM_SECONDS = 5.0  # stress-ng reports no rate from less than 4.5 s inside its loops
STREAM_EMULATED_SECONDS = 8.0
Case = Literal["stream", "faults", "switches"]
STRESSORS = {"stream": "stream", "faults": "fault", "switches": "switch"}
FIGURES = {
    "stream": (("MB per sec memory read rate", MIB), ("MB per sec memory write rate", MIB)),
    "faults": (("minor page faults per sec", 1), ("major page faults per sec", 1)),
}
METRICS = {
    "stream": Metric("memory.stream.bytes_per_second", "B/s", "higher"),
    "faults": Metric("memory.faults.per_second", "1/s", "higher"),
    "switches": Metric("memory.switches.per_second", "1/s", "higher"),
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
    describe = "memory: stream bandwidth, page faults and context switches per second (stress-ng)"
    tool = "stress-ng"
    meanings: ClassVar = {
        "bytes_per_second": "bytes read and written in a second in arrays larger than the cache, all vCPUs together",
        "memory.faults.per_second": "page faults served in a second, minor and major, all vCPUs together",
        "memory.switches.per_second": "messages passed from process to process in a second: each switches context",
    }
    parameters_type = MemoryParameters

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(METRICS[case] for case in self.parameters.cases)

    def command(self, site: Site, case: str) -> Sequence[str]:
        stressor = STRESSORS[case]
        size = ("--stream-l3-size", self.parameters.stream_cache) if case == "stream" else ()
        return (
            *("stress-ng", f"--{stressor}", str(site.vcpus), *size),
            *("--timeout", f"{self.seconds(case):.0f}", "--metrics", "--temp-path", "/tmp"),
        )

    def seconds(self, case: str) -> float:
        if case != "stream":
            return self.parameters.seconds
        # Emulated, a busy machine takes seconds to fill the arrays, which come off the time in the loops.
        return max(STREAM_EMULATED_SECONDS if self.emulated else STREAM_MINIMUM_SECONDS, self.parameters.seconds)

    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        stressor = STRESSORS[case]
        passed = re.search(rf"passed: (\d+): {stressor} ", output)
        if passed is None or not re.search(r"failed: 0$", output, re.MULTILINE):
            raise BadOutput(f"stress-ng does not say 'passed: N: {stressor}' and 'failed: 0'")
        if case == "switches":
            value = _bogo_rate(stressor, output)
        else:
            # These figures are means over the instances (one on each vCPU): what the layer does is their sum.
            value = int(passed[1]) * sum(_figure(stressor, label, output) * scale for label, scale in FIGURES[case])
        if value <= 0:
            raise BadOutput(f"stress-ng reports {value} for {METRICS[case].name}")
        return (Measurement(METRICS[case], value),)

    def own_seconds(self, case: str, output: str) -> float | None:
        """The column "real time (secs)"."""
        found = re.search(rf"metrc: \[\d+\] {STRESSORS[case]} +\d+ +([0-9.]+) ", output)
        return float(found[1]) if found else None


def _figure(stressor: str, label: str, output: str) -> float:
    found = re.search(rf"{stressor} +([0-9.]+) {label} \(harmonic mean", output)
    if found is None:
        raise BadOutput(f"stress-ng prints no '{label}' for {stressor}")
    return float(found[1])


def _bogo_rate(stressor: str, output: str) -> float:
    """The column "bogo ops/s (real time)": of `switch`, one operation is one message from process to process."""
    found = re.search(rf"metrc: \[\d+\] {stressor} +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +([0-9.]+)", output)
    if found is None:
        raise BadOutput(f"stress-ng prints no line of metrics for {stressor}")
    return float(found[1])
