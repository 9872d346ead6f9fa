"""Network latency: sockperf's ping-pong, round trips of small messages between the layer and its peer.

sockperf reads the CPU's time-stamp counter, and calibrates its rate within a tenth of a second. So the duration that it
reports is compared with the requested time, after which a kernel timer ends the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from vmtax.core.layers import LAYERS, OWNERS
from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import Counted, Measure, Parameters
from vmtax.workload.linked import Linked
from vmtax.workload.output import BadOutput, only
from vmtax.workload.site import TIMED, Access, PeerServer, Site, link_of

PORTS_APART = 1000  # from iperf3's port of a machine to sockperf's
START_SECONDS = 2.3  # it sleeps for two seconds of them
WARM_UP_SECONDS = 0.4  # not counted at the start of a run; at its end, a twentieth of a second
MOST_WRONG = 0.05  # share by which its reported duration may differ from the requested time
MOST_AT_ONCE = 1_000_000  # messages per second; one client sends fewer, even to itself
MICROSECOND = 1e-6
MINIMUM_TAIL = 10  # round trips beyond a percentile; with fewer, it is not reported (METHOD.md)
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
SOME = {"p50": "half of the", "p99": "99 of 100", "p999": "999 of 1,000"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages, and how many are sent before an answer is awaited."""

    protocol: Literal["TCP", "UDP"]
    at_once: int = 1

    def __str__(self) -> str:
        waiting = "one at a time" if self.at_once == 1 else f"{self.at_once} at once"
        return f"{self.protocol} round trips ({waiting})"


EXCHANGES = {
    "tcp-rr": Exchange("TCP"),
    "udp-rr": Exchange("UDP"),
    "tcp-rr-16": Exchange("TCP", 16),
    "udp-rr-16": Exchange("UDP", 16),
}


class LatencyParameters(Parameters):
    reporting: ClassVar = frozenset({"percentiles"})
    cases: tuple[Literal["tcp-rr", "udp-rr", "tcp-rr-16", "udp-rr-16"], ...] = Field(
        ("tcp-rr", "udp-rr", "udp-rr-16"),
        min_length=1,
        description="what to measure: round trips, one at a time, or 16 at once for the rate of small packets",
    )
    bytes: int = Field(64, strict=True, ge=14, le=1400, description="bytes of each message, in both directions")
    seconds: int = Field(
        5,
        strict=True,
        ge=2,
        le=10,
        description="run length of each case, in seconds; for each of them sockperf needs up to 30 MB of memory",
    )
    percentiles: tuple[Literal["p50", "p99", "p999"], ...] = Field(
        ("p50", "p99", "p999"),
        description="percentiles of round trips to report: p50 needs 20 round trips in a run, p99 1,000, p999 10,000",
    )


class Latency(Linked[LatencyParameters]):
    """Messages go to the peer and come back: a guest pays for both ways."""

    name = "latency"
    describe = "network latency: sockperf, round trips of small messages over TCP and UDP, with percentiles"
    tool = "sockperf"
    title = "Network latency"
    packages = ("sockperf",)
    headline = "latency.udp-rr.p50_seconds"
    networked = True
    layers = frozenset(LAYERS) - {*OWNERS}  # it has no card on the network under test
    takes_bridge = "latency"
    measures: ClassVar = {
        "per_second": Measure("messages that were sent and answered in a second", "round trips"),
        "mean_seconds": Measure("mean time from a message to its answer", "mean latency"),
        **{
            f"{name}_seconds": Measure(
                f"{SOME[name]} round trips took at most this long; reported if there were"
                f" {MINIMUM_TAIL / (1 - share):,.0f} or more",
                f"p{100 * share:g} latency",
            )
            for name, share in PERCENTILES.items()
        },
    }
    doubts = (
        r"sockperf: (?:\S*WARNING|Warning:)",
        r"# (?:duplicated|out-of-order) messages = +(?!0\b)",
    )
    parameters_type = LatencyParameters

    @classmethod
    def operations_of(cls, case: str) -> str:
        return str(EXCHANGES[case]) if case in EXCHANGES else ""

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        return cls.spoken(metric) or super().phrase(metric)

    @classmethod
    def spoken(cls, metric: Metric) -> str:
        trips = cls.operations_of(metric.case)
        return trips if not trips or metric.measure == "per_second" else f"{trips}, {cls.measure(metric).label}"

    def cases(self) -> Sequence[str]:
        return self.parameters.cases

    def metrics(self) -> Sequence[Metric]:
        return tuple(metric for case in self.parameters.cases for metric in self._metrics(case).values())

    def servers(self, address: str, port: int, access: Access) -> Sequence[PeerServer]:
        protocols = dict.fromkeys(EXCHANGES[case].protocol for case in self.parameters.cases)
        return [PeerServer((*TIMED, "sockperf", "server", *_where(address, port, each))) for each in protocols]

    def command(self, site: Site, case: str) -> Sequence[str]:
        link, exchange = link_of(site), EXCHANGES[case]
        return (
            *("sockperf", "ping-pong", *_where(link.address, link.port, exchange.protocol)),
            *("--msg-size", str(self.parameters.bytes), "--burst", str(exchange.at_once)),
            *("--time", str(self.parameters.seconds), "--full-rtt", *_most(exchange)),
        )

    def seconds(self, case: str) -> float:
        return self.parameters.seconds + START_SECONDS

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        run = _Run.of(output)
        asked = self.parameters.seconds
        if abs(run.whole_seconds - asked) > MOST_WRONG * asked:
            raise BadOutput(
                f"sockperf counted {run.whole_seconds:.2f} s in a run of {asked} s: its clock is wrong, and so are its"
                " times"
            )
        if run.dropped:
            raise BadOutput(f"{run.dropped} messages of {case} were lost, and sockperf waited for their answers")
        figures = {"per_second": run.round_trips / run.seconds, "mean_seconds": run.mean_seconds}
        reached = dict(self.latencies(case, output))
        for name in self.parameters.percentiles:
            if PERCENTILES[name] in reached:
                figures[f"{name}_seconds"] = reached[PERCENTILES[name]]
        metrics = self._metrics(case)
        return tuple(Measurement(metrics[name], value) for name, value in figures.items())

    def operations(self, case: str, output: str) -> float | None:
        """Those of the whole run: the host's CPU also worked for those of the warm-up."""
        return _Run.of(output).answered

    def own_seconds(self, case: str, output: str) -> float | None:
        return _Run.of(output).seconds

    def counted(self, case: str, output: str) -> Counted | None:
        run = _Run.of(output)
        return Counted(run.seconds, WARM_UP_SECONDS, max(0.0, run.whole_seconds - WARM_UP_SECONDS - run.seconds))

    def latencies(self, case: str, output: str) -> tuple[tuple[float, float], ...]:
        return tuple(sorted(_supported(output, _Run.of(output).round_trips)))

    def _metrics(self, case: str) -> dict[str, Metric]:
        """Metrics by measure; the case's main measure comes first."""
        names = [*(f"{name}_seconds" for name in PERCENTILES if name in self.parameters.percentiles), "mean_seconds"]
        rate = {"per_second": Metric(f"latency.{case}.per_second", "1/s", "higher")}
        times = {name: Metric(f"latency.{case}.{name}", "s", "lower") for name in names}
        return {**times, **rate} if EXCHANGES[case].at_once == 1 else {**rate, **times}


@dataclass(frozen=True, slots=True)
class _Run:
    """sockperf's report of a run."""

    whole_seconds: float  # including its warm-up
    answered: int  # messages during all of it
    seconds: float  # the time that its figures cover
    round_trips: int  # during that time
    mean_seconds: float
    dropped: int

    @staticmethod
    def of(output: str) -> _Run:
        """Raises BadOutput, with sockperf's own complaint if it has one."""
        found = [only(pattern, output) for pattern in _LINES]
        match found:
            case [whole, valid, mean, dropped] if whole and valid and mean and dropped:
                run = _Run(
                    *(float(whole[1]), int(whole[2]), float(valid[1]), int(valid[2])),
                    *(float(mean[1]) * MICROSECOND, int(dropped[1])),
                )
                if run.round_trips and run.seconds and run.mean_seconds:
                    return run
        complaint = re.search(r"sockperf: (?:ERROR: )?((?:Can.t|No messages).{1,200})", output)
        if complaint:
            raise BadOutput(f"sockperf: {complaint[1].rstrip()}")
        raise BadOutput("no '[Valid Duration]' with messages and no round trip in what sockperf printed")


_LINES = (
    r"\[Total Run\] RunTime=(\d{1,9}\.\d+) sec;.*ReceivedMessages=(\d{1,15})",
    r"\[Valid Duration\] RunTime=(\d{1,9}\.\d+) sec;.*ReceivedMessages=(\d{1,15})",
    r"avg-rtt=(\d{1,12}\.\d+)",
    r"# dropped messages = (\d{1,15})",
)


def _most(exchange: Exchange) -> tuple[str, ...]:
    """Option for the number of messages that sockperf stores: by default it takes 0.2 GB per second for 16 at once,
    which a small guest does not have.
    """
    return ("--mps", str(MOST_AT_ONCE)) if exchange.at_once > 1 else ()


def _where(address: str, port: int, protocol: str) -> tuple[str, ...]:
    how = ("--tcp",) if protocol == "TCP" else ()
    return ("--ip", address, "--port", str(port + PORTS_APART), *how)


def _supported(output: str, round_trips: int) -> Iterator[tuple[float, float]]:
    """(share, seconds) of each percentile that enough round trips lie beyond."""
    enough = round(1 - MINIMUM_TAIL / round_trips, 6)
    for percent, microseconds in re.findall(r"percentile (\d{1,2}\.\d{3}) = +(\d{1,12}\.\d+)", output, re.ASCII):
        share = round(float(percent) / 100, 6)
        if share <= enough:
            yield share, float(microseconds) * MICROSECOND
