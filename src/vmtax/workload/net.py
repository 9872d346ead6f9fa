"""Network: iperf3 over TCP and UDP, inward and outward, with the CPU time of both ends."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from vmtax.core.layers import LAYERS, OWNERS
from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import CPU_PER_OPERATION, HOST_SIDE, Counted, Measure, Parameters
from vmtax.workload.linked import WAYS, Throughput
from vmtax.workload.output import BadOutput, json_of, number
from vmtax.workload.site import TIMED, Access, PeerServer, Site, link_of

TEST = ("start", "test_start")  # where iperf3's JSON has its parameters
TINY = 1e-6  # seconds; no time of a figure is shorter
PORT = 5201  # iperf3's own
BLOCK_BITS = 8 * 128 * 2**10  # bits that iperf3 writes at once over TCP by default
MOST_BUSY = 64.0  # CPUs; iperf3 has a thread for each of at most 16 connections
UDP_BYTES = 1448  # of each datagram, on every layer; iperf3 would use 32 KiB on a loopback
Case = Literal["tcp-in", "tcp-out", "udp-in", "udp-out"]
INWARD = frozenset({"tcp-in", "udp-in"})
ENDS = {"local_cpu": "local_seconds_per_byte", "peer_cpu": "peer_seconds_per_byte"}
SPOKEN = {
    "bits_per_second": "Network throughput",
    "lost": "Share of datagrams lost",
    "jitter_seconds": "Jitter",
    "local_seconds_per_byte": "iperf3's CPU time per GB",
    "peer_seconds_per_byte": "iperf3's CPU time per GB at the far end",
    CPU_PER_OPERATION: "The host's CPU time per GB",
    HOST_SIDE: "The host's CPU time per GB outside guest code",
}


class NetParameters(Parameters):
    cases: tuple[Case, ...] = Field(
        ("tcp-in", "tcp-out"),
        min_length=1,
        description="what to measure: traffic into the layer or out of it; UDP needs `rate`, and root on the host",
    )
    seconds: float = Field(10.0, ge=1, le=3600, description="run length of each direction, in seconds")
    rate: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=10**6,
        description="Mbit that each machine is asked for in a second, the same on every layer; this shows the CPU time"
        " below full load; by default, as many as it can transfer",
    )
    streams: int = Field(
        1, strict=True, ge=1, le=16, description="TCP connections at once, which share the rate; UDP has one stream"
    )


class Net(Throughput[NetParameters]):
    name = "net"
    describe = "network: iperf3 TCP throughput in and out, with the CPU use of both ends; UDP loss at a fixed rate"
    tool = "iperf3"
    title = "Network"
    packages = ("iperf3",)
    headline = "net.tcp-in.bits_per_second"
    measures: ClassVar = {
        "bits_per_second": Measure("bits of payload that arrived in a second", "throughput"),
        "lost": Measure(
            "datagrams that did not arrive, as a fraction of those sent; if none was lost in some round, there is no"
            " ratio, and the throughput is compared instead",
            "loss",
            "share of datagrams lost",
            may_be_zero=True,
            most=1.0,
        ),
        "jitter_seconds": Measure(
            "how much the transit time varies from one datagram to the next (RFC 3550)", "jitter", "jitter", least=0.0
        ),
        "local_cpu": Measure(
            "CPUs that iperf3 kept busy on the layer itself", "CPUs busy, own end", least=0.0, most=MOST_BUSY
        ),
        "peer_cpu": Measure(
            "CPUs that iperf3 kept busy at the far end", "CPUs busy, far end", least=0.0, most=MOST_BUSY
        ),
        "local_seconds_per_byte": Measure(
            "CPU time of iperf3 per byte, on the layer itself",
            "CPU per GB, own end",
            "CPU time of iperf3 per GB",
            least=0.0,
        ),
        "peer_seconds_per_byte": Measure(
            "CPU time of iperf3 per byte, at the far end",
            "CPU per GB, far end",
            "CPU time of iperf3 per GB at the far end",
            least=0.0,
        ),
        HOST_SIDE: Measure(
            "CPU time per byte that the host spends on a guest on KVM outside of guest code: exits, QEMU, vhost and"
            " interrupts",
            "host CPU per GB outside guest code",
            "CPU time of the host per GB outside guest code",
        ),
        CPU_PER_OPERATION: Measure(
            "CPU time of the whole host per byte, while iperf3 ran, including that of a peer on the same host",
            "host CPU per GB",
            "CPU time of the host per GB",
        ),
    }
    parameters_type = NetParameters
    replaced = frozenset(ENDS)
    doubts = (r"^iperf3: ", r"OUT OF ORDER")
    networked = True
    layers = frozenset(LAYERS) - {*OWNERS}  # it has no card on the network under test

    def why_not(self, vcpus: int) -> str | None:
        case = next(filter(_is_udp, self.parameters.cases), None)
        if case is None or self.parameters.rate is not None:
            return None
        return f"{case} needs a rate, because UDP sends on however much is lost: set workloads.net.rate, in Mbit/s"

    @property
    def takes_bridge(self) -> str:
        return next((f"{self.name}'s case {case}" for case in self.parameters.cases if _is_udp(case)), "")

    @classmethod
    def spoken(cls, metric: Metric) -> str:
        way, words = WAYS.get(metric.case), SPOKEN.get(metric.measure)
        return f"{words}, {way}" if way and words else super().spoken(metric)

    @classmethod
    def derived(cls, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
        """CPU time per byte: the number of busy CPUs falls with the throughput, which would look like a gain."""
        rate = next((m.value / 8 for m in measurements if m.metric.measure == "bits_per_second"), 0.0)
        return tuple(
            Measurement(_for_each_byte(m.metric), m.value / rate)
            for m in measurements
            if rate and m.metric.measure in ENDS
        )

    @classmethod
    def derived_metrics(cls, reported: Collection[Metric]) -> tuple[Metric, ...]:
        return tuple(
            _for_each_byte(metric) for metric in reported if metric.workload == cls.name and metric.measure in ENDS
        )

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(m for case in self.parameters.cases for m in (*self._metrics(case), *_of_host(case)))

    def servers(self, address: str, port: int, access: Access) -> Sequence[PeerServer]:
        return (PeerServer((*TIMED, "iperf3", "--server", "--bind", address, "--port", str(port))),)

    def command(self, site: Site, case: str) -> Sequence[str]:
        link = link_of(site)
        # iperf3 sends from client to server unless --reverse is given.
        reverse = ("--reverse",) if (case in INWARD) != link.at_peer else ()
        seconds = round(self.parameters.seconds) + site.lead
        how: tuple[str, ...] = ("--omit", str(site.lead)) if site.lead else ()
        how += ("--udp", "--length", str(UDP_BYTES)) if _is_udp(case) else ()
        streams = 1 if _is_udp(case) else self.parameters.streams
        how += ("--parallel", str(streams)) if streams > 1 else ()
        if self.parameters.rate is not None:  # of each stream
            whole, rest = divmod(self.parameters.rate, streams)
            how += ("--bitrate", f"{whole}M" if not rest else str(round(self.parameters.rate * 1e6 / streams)))
        return (
            *("iperf3", "--client", link.address, "--port", str(link.port), "--time", str(seconds), *how),
            *("--connect-timeout", "5000", "--json", *reverse),
        )

    def seconds(self, case: str) -> float:
        return self.parameters.seconds + 0.5

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        report = _report(output)
        for word in ("error", "warning"):
            if word in report:
                raise BadOutput(f"iperf3: {report[word]}")
        arrived = sent = _total(report)["bits_per_second"]
        cpu = ("end", "cpu_utilization_percent")
        # Of the client and of the server
        ends = [number(report, *cpu, end) / 100 for end in ("host_total", "remote_total")]
        if bool(number(report, *TEST, "reverse")) != (case in INWARD):
            ends.reverse()  # the client was the peer
        if _is_udp(case):
            datagrams, sent = _datagrams(report), number(report, "end", "sum_sent", "bits_per_second")
        if arrived <= 0:
            raise BadOutput(f"iperf3 carried nothing for {case}")
        asked = self.parameters.rate
        # One block of each connection may still be in transit at the end.
        late = 0.0 if _is_udp(case) else self.parameters.streams * BLOCK_BITS / self.parameters.seconds
        self.refuse_full_load(case, sent, asked, late)
        # At a fixed rate, the rate is no result; CPU time per byte is.
        figures = [arrived, *ends] if asked is None else [8 * end / arrived for end in ends]
        if _is_udp(case):
            figures = [arrived, *datagrams, *figures]
        return tuple(Measurement(metric, value) for metric, value in zip(self._metrics(case), figures, strict=True))

    def _metrics(self, case: str) -> tuple[Metric, ...]:
        rate, *ends = _metrics(case)
        held = tuple(map(_for_each_byte, ends))
        if _is_udp(case):
            lost = Metric(f"net.{case}.lost", "1", "lower")
            return (rate, lost, Metric(f"net.{case}.jitter_seconds", "s", "lower"), *held)
        return (rate, *ends) if self.parameters.rate is None else held

    def operations(self, case: str, output: str) -> float | None:
        """Bytes of payload that arrived during the time that counts."""
        total = _total(_report(output))
        return total["bits_per_second"] / 8 * total["seconds"] if "seconds" in total else None

    def own_seconds(self, case: str, output: str) -> float | None:
        """The receiver's time, from which `parse` calculates the rate; it may be a few ms longer than the sender's."""
        return _total(_report(output)).get("seconds")

    def counted(self, case: str, output: str) -> Counted | None:
        own = self.own_seconds(case, output)
        lead = _lead(_report(output))
        return None if own is None else Counted(own, lead, 0 if _is_udp(case) else lead)


def _is_udp(case: str) -> bool:
    return case.startswith("udp-")


def _datagrams(report: dict[str, Any]) -> tuple[float, float]:
    """(share that was lost, jitter in seconds)."""
    end = ("end", "sum")
    packets = number(report, *end, "packets", least=1)
    lost = number(report, *end, "lost_packets", most=packets)
    if "lost_percent" in report["end"]["sum"]:
        number(report, *end, "lost_percent", most=100)
    return lost / packets, number(report, *end, "jitter_ms") / 1000


def _report(output: str) -> dict[str, Any]:
    return json_of(output)


def _total(report: dict[str, Any]) -> dict[str, float]:
    """The receiver's totals. If there was a lead: for TCP, the client's totals without the lead and an equal time at
    the end, from its intervals of about one second; for UDP, everything after the lead, which is also what the loss
    refers to.
    """
    lead = _lead(report)
    if not lead or report["start"]["test_start"]["protocol"] == "UDP":
        total = ("end", "sum_received")
        rate = {"bits_per_second": number(report, *total, "bits_per_second")}
        return {**rate, "seconds": number(report, *total, "seconds", least=TINY)} if _has_seconds(report) else rate
    last = number(report, *TEST, "duration") - lead
    sums = [each["sum"] for each in report["intervals"] if not each["sum"]["omitted"]]
    counted = [each for each in sums if number(each, "end") < last + 0.5]
    if not counted:
        raise BadOutput(f"iperf3 reported no interval within the {last:g} s that count")
    seconds = math.fsum(number(each, "seconds", least=TINY) for each in counted)
    bits = 8 * math.fsum(number(each, "bytes") for each in counted)
    return {"seconds": seconds, "bits_per_second": bits / seconds}


def _lead(report: dict[str, Any]) -> float:
    """Seconds before those that count."""
    return number(report, *TEST, "omit") if "omit" in report["start"]["test_start"] else 0.0


def _has_seconds(report: dict[str, Any]) -> bool:
    return "seconds" in report["end"]["sum_received"]


def _of_host(case: str) -> tuple[Metric, ...]:
    return tuple(Metric(f"net.{case}.{measure}", "s/B", "lower") for measure in (CPU_PER_OPERATION, HOST_SIDE))


def _for_each_byte(metric: Metric) -> Metric:
    return Metric(f"net.{metric.case}.{ENDS[metric.measure]}", "s/B", "lower")


def _metrics(case: str) -> tuple[Metric, Metric, Metric]:
    return (
        Metric(f"net.{case}.bits_per_second", "bit/s", "higher"),
        Metric(f"net.{case}.local_cpu", "1", "lower"),  # CPUs kept busy by iperf3 on the layer itself
        Metric(f"net.{case}.peer_cpu", "1", "lower"),  # CPUs kept busy by iperf3 at the peer
    )
