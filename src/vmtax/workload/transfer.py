"""Network of a Windows VM as it runs: a sender and receiver of our own over TCP, because iperf3 needs Cygwin there.

The far end is on the VM's host or, where that is a Windows, too, on the machine that runs vmtax. The layer's own end is
the client, for firewalls: it also asks for what it receives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from vmtax.core.layers import EXISTING
from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import CPU_PER_OPERATION, Measure, Parameters
from vmtax.workload.linked import Throughput
from vmtax.workload.output import BadOutput, json_of, number
from vmtax.workload.site import Site, link_of

PROGRAM = "vmtax-net"
TINY = 1e-6  # seconds; no time of a figure is shorter
Case = Literal["tcp-in", "tcp-out"]
VERBS = {"tcp-in": "receive", "tcp-out": "send"}
# What vmtax-net says -> the measure
ENDS = {"cpu_seconds": "local_seconds_per_byte", "far_cpu_seconds": "peer_seconds_per_byte"}


class TransferParameters(Parameters):
    cases: tuple[Case, ...] = Field(
        ("tcp-in", "tcp-out"), min_length=1, description="what to measure: traffic into the layer or out of it"
    )
    seconds: float = Field(10.0, ge=1, le=600, description="run length of each direction, in seconds")
    rate: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=10**6,
        description="Mbit that are sent in a second, the same on every layer; by default, as many as can be",
    )


class Transfer(Throughput[TransferParameters]):
    name = "transfer"
    describe = "network of a Windows VM that `--guest` names: TCP throughput in and out, with the CPU use of both ends"
    tool = PROGRAM
    title = "Network of the VM"
    headline = "transfer.tcp-in.bits_per_second"
    measures: ClassVar = {
        "bits_per_second": Measure("bits of payload that arrived in a second", "throughput"),
        ENDS["cpu_seconds"]: Measure(
            "CPU time of the program per byte, on the layer itself; a system's own work for interrupts is not in it",
            "CPU per GB, own end",
            "CPU time of the program per GB",
            least=0.0,
        ),
        ENDS["far_cpu_seconds"]: Measure(
            "CPU time of the program per byte, at the far end",
            "CPU per GB, far end",
            "CPU time of the program per GB at the far end",
            least=0.0,
        ),
        CPU_PER_OPERATION: Measure(
            "CPU time of the whole host per byte, while it ran, including that of the far end if that is on it",
            "host CPU per GB",
            "CPU time of the host per GB",
        ),
    }
    parameters_type = TransferParameters
    layers = frozenset({"host", EXISTING})

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(metric for case in self.parameters.cases for metric in (*_metrics(case), _of_host(case)))

    def command(self, site: Site, case: str) -> Sequence[str]:
        link = link_of(site)
        rate = () if self.parameters.rate is None else (str(round(self.parameters.rate * 1e6 / 8)),)
        to = (link.address, str(link.port), f"{self.parameters.seconds:g}")
        return (link.machine.os.program(PROGRAM), VERBS[case], *to, *rate)

    def seconds(self, case: str) -> float:
        return self.parameters.seconds + 0.5

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        said = _said(case, output)
        count, seconds = number(said, "bytes", least=1), number(said, "seconds", least=TINY)
        bits = 8 * count / seconds
        self.refuse_full_load(case, bits, self.parameters.rate)
        figures = (bits, *(number(said, name) / count for name in ENDS))
        return tuple(Measurement(metric, value) for metric, value in zip(_metrics(case), figures, strict=True))

    def operations(self, case: str, output: str) -> float | None:
        """Bytes of payload that arrived."""
        return number(_said(case, output), "bytes")

    def own_seconds(self, case: str, output: str) -> float | None:
        return number(_said(case, output), "seconds")


def _said(case: str, output: str) -> dict[str, Any]:
    said = json_of(output)
    if said.get("side") != VERBS[case]:
        raise BadOutput(f"{PROGRAM}: an answer of {VERBS[case]} was expected")
    return said


def _metrics(case: str) -> tuple[Metric, ...]:
    ends = (Metric(f"transfer.{case}.{measure}", "s/B", "lower") for measure in ENDS.values())
    return (Metric(f"transfer.{case}.bits_per_second", "bit/s", "higher"), *ends)


def _of_host(case: str) -> Metric:
    return Metric(f"transfer.{case}.{CPU_PER_OPERATION}", "s/B", "lower")
