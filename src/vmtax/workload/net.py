"""Network: iperf3 over TCP and UDP, inward and outward, with the CPU time of both ends."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from vmtax.core.machines import Machine
from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import (
    CPU_PER_OPERATION,
    HOST_SIDE,
    LEAST_OF_RATE,
    BadOutput,
    Command,
    Counted,
    Measure,
    Parameters,
)
from vmtax.workload.site import Site, link_of

PORT = 5201  # iperf3's own
BLOCK_BITS = 8 * 128 * 2**10  # bits that iperf3 writes at once over TCP by default
UDP_BYTES = 1448  # of each datagram, on every layer; iperf3 would use 32 KiB on a loopback
Case = Literal["tcp-in", "tcp-out", "udp-in", "udp-out"]
INWARD = frozenset({"tcp-in", "udp-in"})
ENDS = {"local_cpu": "local_seconds_per_byte", "peer_cpu": "peer_seconds_per_byte"}
WAYS = {"tcp-in": "inbound", "tcp-out": "outbound", "udp-in": "inbound UDP", "udp-out": "outbound UDP"}
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


class Net(Command[NetParameters]):
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
        ),
        "jitter_seconds": Measure(
            "how much the transit time varies from one datagram to the next (RFC 3550)", "jitter", "jitter"
        ),
        "local_cpu": Measure("CPUs that iperf3 kept busy on the layer itself", "CPUs busy, own end"),
        "peer_cpu": Measure("CPUs that iperf3 kept busy at the far end", "CPUs busy, far end"),
        "local_seconds_per_byte": Measure(
            "CPU time of iperf3 per byte, on the layer itself", "CPU per GB, own end", "CPU time of iperf3 per GB"
        ),
        "peer_seconds_per_byte": Measure(
            "CPU time of iperf3 per byte, at the far end",
            "CPU per GB, far end",
            "CPU time of iperf3 per GB at the far end",
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
    networked = True

    def why_not(self, vcpus: int) -> str | None:
        case = next(filter(_is_udp, self.parameters.cases), None)
        if case is None or self.parameters.rate is not None:
            return None
        return f"{case} needs a rate, because UDP sends on however much is lost: set workloads.net.rate, in Mbit/s"

    @property
    def takes_bridge(self) -> str:
        return next((f"{self.name}'s case {case}" for case in self.parameters.cases if _is_udp(case)), "")

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        way = WAYS.get(metric.case)
        if way and metric.measure == "bits_per_second":
            return f"{way} network throughput"
        words = cls.measure(metric).phrase
        return f"{words}, {way}" if way and words else super().phrase(metric)

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

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        link = link_of(site)
        return link.machine, link.prefix

    def servers(self, address: str, port: int) -> Sequence[Sequence[str]]:
        return (("iperf3", "--server", "--bind", address, "--port", str(port)),)

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

    def parse(self, case: str, output: str) -> tuple[Measurement, ...]:
        try:
            report = _report(output)
            if "error" in report:
                raise BadOutput(f"iperf3: {report['error']}")
            arrived = sent = float(_total(report)["bits_per_second"])
            cpu = report["end"]["cpu_utilization_percent"]
            ends = [cpu["host_total"] / 100, cpu["remote_total"] / 100]  # of the client and of the server
            if bool(report["start"]["test_start"]["reverse"]) != (case in INWARD):
                ends.reverse()  # the client was the peer
            if _is_udp(case):
                datagrams, sent = _datagrams(report), float(report["end"]["sum_sent"]["bits_per_second"])
        except (ValueError, LookupError, TypeError, ZeroDivisionError) as problem:
            raise BadOutput("no JSON with end.sum_received in what iperf3 printed") from problem
        if arrived <= 0:
            raise BadOutput(f"iperf3 carried nothing for {case}")
        asked = self.parameters.rate
        # One block of each connection may still be in transit at the end.
        late = 0.0 if _is_udp(case) else self.parameters.streams * BLOCK_BITS / self.parameters.seconds
        if asked is not None and sent < LEAST_OF_RATE * asked * 1e6 - late:
            raise BadOutput(
                f"{case}: {sent / 1e6:.3g} Mbit/s were reached of the {asked} that were asked for, so this is full"
                " load; lower workloads.net.rate"
            )
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
        return float(total["bits_per_second"]) / 8 * float(total["seconds"]) if "seconds" in total else None

    def own_seconds(self, case: str, output: str) -> float | None:
        """The receiver's time, from which `parse` calculates the rate; it may be a few ms longer than the sender's."""
        seconds = _total(_report(output)).get("seconds")
        return None if seconds is None else float(seconds)

    def counted(self, case: str, output: str) -> Counted | None:
        own = self.own_seconds(case, output)
        lead = _report(output)["start"]["test_start"].get("omit", 0)
        return None if own is None else Counted(own, lead, 0 if _is_udp(case) else lead)


def _is_udp(case: str) -> bool:
    return case.startswith("udp-")


def _datagrams(report: dict[str, Any]) -> tuple[float, float]:
    """(share that was lost, jitter in seconds). ZeroDivisionError if none was sent."""
    end = report["end"]["sum"]
    return end["lost_packets"] / end["packets"], end["jitter_ms"] / 1000


def _report(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
    return found


def _total(report: dict[str, Any]) -> dict[str, Any]:
    """The receiver's totals. If there was a lead: for TCP, the client's totals without the lead and an equal time at
    the end, from its intervals of about one second; for UDP, everything after the lead, which is also what the loss
    refers to.
    """
    start = report["start"]["test_start"]
    lead = start.get("omit", 0)
    if not lead or start["protocol"] == "UDP":
        total: dict[str, Any] = report["end"]["sum_received"]
        return total
    last = start["duration"] - lead
    sums = [each["sum"] for each in report["intervals"] if not each["sum"]["omitted"]]
    counted = [each for each in sums if each["end"] < last + 0.5]
    if not counted:
        raise BadOutput(f"iperf3 reported no interval within the {last} s that count")
    seconds = math.fsum(each["seconds"] for each in counted)
    return {"seconds": seconds, "bits_per_second": 8 * math.fsum(each["bytes"] for each in counted) / seconds}


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
