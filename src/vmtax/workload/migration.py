"""Live migration: a guest moves while its peer exchanges numbered packets with it, at a fixed rate.

The packets are ICMP echoes. The guest's kernel answers them itself, so that the delay of a guest program that waits for
a CPU is not included. All times are from one clock, the peer's.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from vmtax.core.records import Measurement, Metric, Moved
from vmtax.workload.base import LEAST_OF_RATE, Measure, Parameters, Workload
from vmtax.workload.output import BadOutput, reading

MINIMUM_TAIL = 10  # round trips beyond a percentile; with fewer, it is not reported (METHOD.md)
GRACE_SECONDS = 1.0  # to wait for the last answers
MOST_PACKETS = 2_000_000  # for these the peer prints less than the limit of a pipe's output
MICROSECOND = 1e-6
PYTHON = "/usr/bin/python3"  # the image's
BEGIN, STOP = "begin", "stop"  # lines that the peer gets: the migration begins; print everything
# Run at the peer, with the image's Python. $1: the guest's address, $2: packets per second, $3: seconds to wait for the
# last answers. Prints the time of each line that it gets, and for each packet its number, when it was sent, and how
# long its answer took; in microseconds. Constant text.
WATCH = """
import os, select, socket, struct, sys, time
address, rate, grace = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
icmp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
icmp.setblocking(False)
icmp.connect((address, 0))
ours = os.urandom(8)
began, sent, answers, marks, said, last = time.monotonic(), [], {}, [], b"", None

def echo(number):
    body = struct.pack("!HHQ", 1, number & 65535, number) + ours
    total = 8 * 256 + sum(struct.unpack("!10H", body))
    total = (total >> 16) + (total & 65535)
    return struct.pack("!BBH", 8, 0, ~(total + (total >> 16)) & 65535) + body

while last is None or time.monotonic() < last:
    now = time.monotonic()
    while last is None and len(sent) < (now - began) * rate:
        sent.append(time.monotonic())
        try:
            icmp.send(echo(len(sent) - 1))
        except OSError:
            pass  # it is lost
    due = last if last is not None else began + len(sent) / rate
    ready = select.select([icmp] if last is not None else [icmp, 0], [], [], max(0.0, due - time.monotonic()))[0]
    if icmp in ready:
        try:
            while True:
                packet = icmp.recv(2048)
                now = time.monotonic()
                packet = packet[4 * (packet[0] & 15):]
                if packet[:2] == b"\\0\\0" and packet[16:] == ours:
                    answers.setdefault(struct.unpack("!Q", packet[8:16])[0], now)
        except OSError:
            pass  # there is no other yet
    if 0 in ready:
        got = os.read(0, 4096)
        if not got:
            sys.exit("its input was closed")
        now = time.monotonic()
        *lines, said = (said + got).split(b"\\n")
        marks += [(line.decode(), now) for line in lines]
        last = now + grace if b"stop" in lines else None
out = ["mark %s %d" % (name, (at - began) * 1e6) for name, at in marks]
for number, at in enumerate(sent):
    took = "%d" % ((answers[number] - at) * 1e6) if number in answers else "-"
    out.append("%d %d %s" % (number, (at - began) * 1e6, took))
print("\\n".join(out))
"""
# Run in a guest, with its Python. $1: MiB per second, $2: a file that gets the rate that it reached, once a second. It
# writes one byte of each page of a quarter of the guest's memory, one MiB after the other. Constant text.
LOAD = """
import mmap, os, sys, time
rate, report = float(sys.argv[1]), sys.argv[2]
pages = os.sysconf("SC_PHYS_PAGES") // 4 // 256
memory = mmap.mmap(-1, pages << 20)
written = 0

def write():
    global written
    start = (written % pages) << 20
    memory[start:start + (1 << 20):4096] = bytes([written // pages % 255 + 1]) * 256
    written += 1

while written < pages:
    write()
first, began, said = written, time.monotonic(), 0
while True:
    now = time.monotonic()
    if now - began >= said + 1:
        with open(report + ".new", "w") as file:
            file.write("%.3f" % ((written - first) / (now - began)))
        os.rename(report + ".new", report)
        said = now - began
    if written - first < (now - began) * rate:
        write()
    else:
        time.sleep(min(0.005, 1 / rate))
"""
LOAD_REPORT = "/run/vmtax-load"
WINDOWS = {name: f"{name} the migration" for name in ("before", "during", "after")}
RATE, EMULATED_RATE = 1000, 100  # packets per second, if the plan does not set the rate
SHARES = {"p50": 0.5, "p99": 0.99}
SOME = {"p50": "half of the", "p99": "99 of 100"}


class MigrationParameters(Parameters):
    rate: int | None = Field(
        None,
        strict=True,
        ge=10,
        le=5000,
        description="packets per second from the peer to the guest and back; by default, as many as suit the machine:"
        f" {RATE}, or {EMULATED_RATE} if a layer is emulated",
    )
    seconds: float = Field(
        5.0, ge=1, le=600, description="seconds of exchanging packets before the guest moves, and again after it"
    )
    limit: float = Field(120.0, ge=1, le=3600, description="seconds after which vmtax gives up on a migration")
    load: int = Field(
        0,
        strict=True,
        ge=0,
        le=10**5,
        description="MiB of memory whose pages a program in the guest writes to in a second, again and again over a"
        " quarter of the guest's memory; 0: the guest is idle",
    )
    bandwidth: int | None = Field(
        None,
        strict=True,
        ge=1,
        le=10**6,
        description="MiB that QEMU may send in a second; by default QEMU's own limit, which is 128; with postcopy,"
        " there is no limit once the guest runs at its destination",
    )

    @model_validator(mode="after")
    def _few_packets(self) -> MigrationParameters:
        """The peer prints a line for each."""
        packets = (self.rate or RATE) * (2 * self.seconds + self.limit)
        if packets > MOST_PACKETS:
            raise ValueError(
                f"rate x (2 x seconds + limit) is {packets:,.0f} packets, and {MOST_PACKETS:,} are the most: lower"
                " one of them"
            )
        return self


class Migration(Workload[MigrationParameters]):
    """Has no command: each guest's migration is its trial."""

    name = "migration"
    describe = "live migration: how long a guest is silent, and how long packets take, by echoes that its peer counts"
    tool = "vmtax"
    title = "Migration"
    headline = "migration.downtime_seconds"
    measures: ClassVar = {
        "migration.downtime_seconds": Measure(
            "longest time between two answers of the guest, as measured by its peer", "downtime", "downtime"
        ),
        "migration.total_seconds": Measure(
            "time from the beginning of the migration to its end, as reported by QEMU's query-migrate",
            "duration",
            "its duration",
        ),
        "migration.qemu_downtime_seconds": Measure(
            "downtime as reported by QEMU, in whole milliseconds; it ends before packets arrive again",
            "downtime as QEMU says",
            "downtime by QEMU's own account",
            may_be_zero=True,
        ),
        "migration.lost_packets": Measure(
            "packets sent since the beginning of the migration that were not answered; packets are numbered",
            "loss of packets",
            "lost packets",
            may_be_zero=True,
        ),
        "migration.sent_bytes": Measure("bytes that QEMU sent for the migration", "bytes sent", "bytes sent"),
        **{
            f"migration.{window}_{name}_seconds": Measure(
                f"{SOME[name]} round trips {when} took at most this long; packets without an answer are left out;"
                f" reported if there were {MINIMUM_TAIL / (1 - share):,.0f} or more",
                f"{name} round trip {window}",
                f"{name} of the round trips {when}",
            )
            for window, when in WINDOWS.items()
            for name, share in SHARES.items()
        },
    }
    parameters_type = MigrationParameters
    layers = frozenset({"vm"})
    networked = True
    takes_bridge = "migration"

    def settled(self) -> Mapping[str, Any]:
        return {"rate": self._rate}

    @property
    def _rate(self) -> int:
        return self.parameters.rate or (EMULATED_RATE if self.emulated else RATE)

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return tuple(METRICS.values())

    def seconds(self, case: str) -> float:
        return 2 * self.parameters.seconds + GRACE_SECONDS + 5.0

    def watching(self, address: str) -> tuple[str, ...]:
        """The argv of the program that exchanges packets with the guest, inside the peer's userland."""
        return (PYTHON, "-I", "-S", "-c", WATCH, address, str(self._rate), f"{GRACE_SECONDS:g}")

    def loaded(self, load: int | None) -> Migration:
        """The same with a guest that writes to `load` MiB of memory in a second; None: as the plan's parameter says."""
        if load is None:
            return self
        return Migration(self.parameters.model_copy(update={"load": load}), emulated=self.emulated)

    def loading(self) -> tuple[str, ...] | None:
        """The argv of the program that writes to the guest's memory; None: the guest is idle."""
        load = self.parameters.load
        return (PYTHON, "-I", "-S", "-c", LOAD, str(load), LOAD_REPORT) if load else None

    def check_load(self, report: str) -> None:
        """Raises BadOutput if the guest writes less than it should. `report`: from LOAD."""
        reached = float(report) if re.fullmatch(r"\d{1,9}\.\d{3}", report) else 0.0
        if reached < LEAST_OF_RATE * self.parameters.load:
            raise BadOutput(
                f"the guest wrote to {reached:.0f} MiB/s of memory of the {self.parameters.load} that were asked for;"
                " lower workloads.migration.load"
            )

    def measured(self, moved: Moved, output: str) -> tuple[Measurement, ...]:
        """Pure. `output`: from WATCH. Raises BadOutput, and nothing else."""
        with reading(self.tool):
            return self._read(moved, output)

    def _read(self, moved: Moved, output: str) -> tuple[Measurement, ...]:
        seen = Seen.of(output, moved.total_seconds)
        if seen.rate < LEAST_OF_RATE * self._rate:
            raise BadOutput(
                f"the peer sent {seen.rate:.0f} packets in a second of the {self._rate} that were asked for;"
                " lower workloads.migration.rate"
            )
        figures = {
            "downtime_seconds": seen.longest_gap,
            "total_seconds": moved.total_seconds,
            "qemu_downtime_seconds": moved.downtime_seconds,
            "lost_packets": float(seen.lost),
            "sent_bytes": moved.sent_bytes,
            **dict(seen.round_trips()),
        }
        measurements = tuple(Measurement(METRICS[name], value) for name, value in figures.items())
        self.refuse_impossible(measurements)
        return measurements


UNITS: dict[str, Literal["1", "B"]] = {"lost_packets": "1", "sent_bytes": "B"}
METRICS = {
    name: Metric(f"migration.{name}", UNITS.get(name, "s"), "lower")
    for name in (measure.partition(".")[2] for measure in Migration.measures)
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the peer observed; times in seconds since it began."""

    begin: float  # begin of the migration
    end: float
    # When it was sent, and how long the answer took; None: there was no answer
    packets: tuple[tuple[float, float | None], ...]

    @staticmethod
    def of(output: str, seconds: float) -> Seen:
        """`seconds`: duration of the migration. Raises BadOutput."""
        marks = {
            name: int(at) * MICROSECOND
            for name, at in re.findall(rf"^mark ({BEGIN}|{STOP}) (\d{{1,15}})$", output, re.ASCII | re.M)
        }
        rows = re.findall(r"^(\d{1,9}) (\d{1,15}) (\d{1,15}|-)$", output, re.ASCII | re.M)
        if marks.keys() != {BEGIN, STOP} or [int(number) for number, _, _ in rows] != list(range(len(rows))):
            raise BadOutput("the peer's program printed no beginning and end with a line for each packet")
        packets = tuple(
            (int(at) * MICROSECOND, None if took == "-" else int(took) * MICROSECOND) for _, at, took in rows
        )
        seen = Seen(marks[BEGIN], marks[BEGIN] + seconds, packets)
        for window in WINDOWS:
            if window != "during" and not seen.answered(window):
                raise BadOutput(f"the guest answered no packet {WINDOWS[window]}")
        return seen

    @property
    def rate(self) -> float:
        """Packets per second."""
        return (len(self.packets) - 1) / max(self.packets[-1][0] - self.packets[0][0], MICROSECOND)

    @property
    def lost(self) -> int:
        """Packets without an answer, from the beginning of the migration on."""
        return sum(took is None for at, took in self.packets if at >= self.begin)

    @property
    def longest_gap(self) -> float:
        """The longest time between two answers in seconds, starting with the last answer before the migration."""
        times = sorted(at + took for at, took in self.packets if took is not None)
        before = max((at for at in times if at < self.begin), default=times[0])
        counted = [at for at in times if at >= before]
        return round(max(second - first for first, second in itertools.pairwise(counted)), 6)

    def answered(self, window: str) -> list[float]:
        """Round trips of packets that were sent during one of WINDOWS; sorted, in seconds."""
        low, high = {"before": (0.0, self.begin), "during": (self.begin, self.end), "after": (self.end, math.inf)}[
            window
        ]
        return sorted(took for at, took in self.packets if took is not None and low <= at < high)

    def round_trips(self) -> Iterator[tuple[str, float]]:
        """(measure, seconds) of each percentile that enough round trips lie beyond."""
        for window in WINDOWS:
            trips = self.answered(window)
            for name, share in SHARES.items():
                if len(trips) * (1 - share) >= MINIMUM_TAIL - MICROSECOND:
                    yield f"{window}_{name}_seconds", trips[math.ceil(share * len(trips)) - 1]
