"""Disk: fio with direct I/O on a file (host) or block device (guest) that was written in full beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from vmtax.core.quantities import Quantity
from vmtax.core.records import Better, Measurement, Metric, Trial, Unit
from vmtax.core.units import parse_bytes
from vmtax.workload.base import CPU_PER_OPERATION, LEAST_OF_RATE, Command, Counted, Measure, Parameters
from vmtax.workload.output import BadOutput, json_at, number, within
from vmtax.workload.site import Site


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way of reading or writing."""

    rw: str  # fio's rw=
    block: str  # fio's bs=
    depth: int  # fio's iodepth=
    fsync: bool = False  # an fsync after every write
    fresh: bool = False  # on a disk that was never written: write all of it once, and then once more

    def __str__(self) -> str:
        """For tables and titles: "4 KiB random writes (one at a time)"."""
        if self.fresh:
            return f"first {self._ways} of {self._size}"
        waiting = {1: " (one at a time)"}.get(self.depth, f" ({self.depth} at once)") if self.is_random else ""
        return f"{self._size} {self._order} {self._ways}{' (each with fsync)' if self.fsync else waiting}"

    @property
    def phrase(self) -> str:
        """For sentences: "random 4 KiB writes per second at depth 32"."""
        if self.fresh:
            return f"first {self._ways} of {self._size} per second"
        depth = f" at depth {self.depth}" if self.is_random and self.depth > 1 else ""
        order = "" if self.fsync and self.is_random else f"{self._order} "
        return f"{'synchronous ' if self.fsync else ''}{order}{self._size} {self._ways} per second{depth}"

    @property
    def is_random(self) -> bool:
        return self.rw.startswith("rand")

    @property
    def _order(self) -> str:
        return "mixed random" if self.side == "mixed" else "random" if self.is_random else "sequential"

    @property
    def _ways(self) -> str:
        return "reads and writes" if self.side == "mixed" else f"{self.side}s"

    @property
    def _size(self) -> str:
        """The block size for people: "4 KiB"."""
        number, unit = (self.block[:-1], self.block[-1]) if self.block[-1] in _SIZES else (self.block, "")
        return f"{number} {_SIZES[unit]}"

    @property
    def side(self) -> str:
        """The key of the figures in fio's JSON; both together if reads and writes are mixed."""
        return "mixed" if self.rw == "randrw" else "write" if "write" in self.rw else "read"


SMALLEST = "512"  # bytes: a sector of most disks, and less than one of some
_SIZES = {"": "B", "k": "KiB", "m": "MiB"}
# fio's options for data that no lower layer can compress or deduplicate: new for every block, and in every run.
INCOMPRESSIBLE = ("--refill_buffers=1", "--randrepeat=0")
PATTERNS = {
    "randread-4k-qd1": Pattern("randread", "4k", 1),
    "randread-4k-qd32": Pattern("randread", "4k", 32),
    "randwrite-4k-qd1": Pattern("randwrite", "4k", 1),
    "randwrite-4k-qd32": Pattern("randwrite", "4k", 32),
    "randwrite-4k-fsync": Pattern("randwrite", "4k", 1, fsync=True),
    "write-4k-fsync": Pattern("write", "4k", 1, fsync=True),  # like a database's log
    "randrw-4k-qd8": Pattern("randrw", "4k", 8),
    "randread-512-qd1": Pattern("randread", SMALLEST, 1),
    "randwrite-512-qd1": Pattern("randwrite", SMALLEST, 1),
    "randread-64k-qd8": Pattern("randread", "64k", 8),
    "randwrite-64k-qd8": Pattern("randwrite", "64k", 8),
    "randread-1m-qd8": Pattern("randread", "1m", 8),
    "randwrite-1m-qd8": Pattern("randwrite", "1m", 8),
    "read-1m": Pattern("read", "1m", 8),
    "write-1m": Pattern("write", "1m", 8),
    "first-write-64k": Pattern("randwrite", "64k", 8, fresh=True),
    "first-write-4k": Pattern("randwrite", "4k", 8, fresh=True),
}
READ_SHARE = 70  # percent of the operations of randrw
REWRITE = "rewrite"  # name of fio's second job on the fresh disk
PERCENTILES = (  # name, share of the operations, the same in words, fio's key
    ("p50", 0.5, "half of the", "50.000000"),
    ("p99", 0.99, "99 of 100", "99.000000"),
    ("p999", 0.999, "999 of 1,000", "99.900000"),
)
NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class WriteRates:
    """Bytes per second that a disk writes for each I/O in flight, for estimates before a run: orders of magnitude."""

    sync: float  # 4 KiB with fsync
    random: float  # 4 KiB
    sequential: float  # also the most that it writes


FAST = WriteRates(50e6, 200e6, 3e9)  # a good NVMe disk
USUAL = WriteRates(4e6, 100e6, 500e6)  # a SATA SSD
MOST_CPU = 120.0  # percent of one thread; ticks are rounded in a short run
TINY = 1e-6  # operations per second; no rate is smaller
MINIMUM_TAIL = 10  # samples beyond a percentile; with fewer, it is not reported (METHOD.md)

if TYPE_CHECKING:
    PatternName = str
else:
    PatternName = Literal[tuple(PATTERNS)]
LONGEST = "max"  # beside the percentiles, the longest of all
Percentile = Literal["p50", "p99", "p999", "max"]  # the names of PERCENTILES, and LONGEST
Size = Annotated[str, Quantity(parse_bytes, "16MiB", "64TiB", "1GiB", as_text=True)]


class DiskParameters(Parameters):
    reporting: ClassVar = frozenset({"percentiles"})
    patterns: tuple[PatternName, ...] = Field(
        ("randread-4k-qd1", "randwrite-4k-qd1", "randwrite-4k-qd32", "randwrite-4k-fsync", "read-1m", "write-1m"),
        min_length=1,
        description="what to measure: access pattern, block size, and queue depth (qd) or an fsync after every write;"
        " randrw: 70 % reads; first-write: the whole of a disk that was never written, in a VM",
    )
    size: Size = Field("1GiB", description="size of the file or disk under test")
    fresh_size: Size = Field("128MiB", description="size of the disk for first-write")
    seconds: float = Field(10.0, ge=1, le=3600, description="run length of each pattern, in seconds")
    rate: int | None = Field(
        None,
        strict=True,
        ge=10,
        le=10**9,
        description="operations that each machine is asked for in a second, the same on every layer; this shows"
        " latencies below full load; by default, as many as it can do",
    )
    percentiles: tuple[Percentile, ...] = Field(
        ("p50", "p99", "p999"),
        description="percentiles of latency to report: p50 needs 20 operations in a run, p99 1,000, p999 10,000; max:"
        " the longest wait, which few runs show alike",
    )

    @property
    def size_bytes(self) -> int:
        return parse_bytes(self.size)

    @property
    def fresh_bytes(self) -> int:
        """Bytes of the disk that is made anew for each boot; 0 if no pattern needs it."""
        return parse_bytes(self.fresh_size) if any(PATTERNS[name].fresh for name in self.patterns) else 0


def _metric(case: str, measure: str, unit: Unit, better: Better) -> Metric:
    return Metric(f"disk.{case}.{measure}", unit, better)


def _tails() -> Iterator[tuple[str, Measure]]:
    """The percentiles of PERCENTILES as measures."""
    for prefix, operations, what in (("", "operations", ""), ("fsync_", "fsyncs", "fsync ")):
        for name, share, part, _ in PERCENTILES:
            meaning = (
                f"{part} {operations} took at most this long; reported if there were"
                f" {MINIMUM_TAIL / (1 - share):,.0f} or more"
            )
            yield f"{prefix}{name}_seconds", Measure(meaning, f"p{100 * share:g} {what}latency")
        longest = Measure(f"the slowest of all {operations} took this long", f"longest {what}wait".replace("  ", " "))
        yield f"{prefix}{LONGEST}_seconds", longest


class Disk(Command[DiskParameters]):
    name = "disk"
    describe = "disk: fio, 4 KiB random and 1 MiB sequential, IOPS, bandwidth and latency percentiles"
    tool = "fio"
    title = "Disk"
    packages = ("fio",)
    headline = "disk.randread-4k-qd1.iops"
    measures: ClassVar = {
        "iops": Measure("reads or writes completed in a second", "operations"),
        "bytes_per_second": Measure("bytes read or written in a second", "bandwidth"),
        "mean_seconds": Measure(
            "mean time of an operation, from request to answer; with fsync, of a write and its fsync together",
            "mean latency",
        ),
        CPU_PER_OPERATION: Measure("CPU time of the whole host per operation, while fio ran", "host CPU per operation"),
        "rewrite_iops": Measure(
            "writes completed in a second when the whole disk is written for the second time", "rewrite iops"
        ),
        "of_rewrite": Measure("rate of the first write, as a fraction of the rate of the second", "of rewrite"),
        **dict(_tails()),
    }
    parameters_type = DiskParameters
    # Not how a file is laid out, nor that the two jobs of a fresh disk write the same blocks, one after the other
    doubts = (r"^fio: (?!.*fallocate|multiple writers|file hash not empty)", r"^verify: ")

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        pattern = PATTERNS.get(metric.case)
        if pattern is not None and metric.measure == "iops":
            return pattern.phrase
        if pattern is not None and metric.measure == "bytes_per_second" and not pattern.is_random:
            return f"sequential {pattern.side} bandwidth"
        return super().phrase(metric)

    @classmethod
    def operations_of(cls, case: str) -> str:
        return str(PATTERNS[case]) if case in PATTERNS else ""

    @classmethod
    def bytes_of(cls, case: str) -> int | None:
        pattern = PATTERNS.get(case)
        return None if pattern is None or pattern.is_random or pattern.fsync else parse_bytes(pattern.block)

    @classmethod
    def same_as(cls, metric: Metric) -> str:
        hidden, shown = ("iops", "bytes_per_second") if cls.bytes_of(metric.case) else ("bytes_per_second", "iops")
        is_same = metric.measure == hidden and metric.case in PATTERNS
        return f"{metric.name.removesuffix(hidden)}{shown}" if is_same else ""

    @property
    def filled_bytes(self) -> int:
        return self.parameters.size_bytes

    @property
    def fresh_bytes(self) -> int:
        return self.parameters.fresh_bytes

    def cases(self) -> Sequence[str]:
        return self.parameters.patterns

    def metrics(self) -> Sequence[Metric]:
        return tuple(metric for case in self.parameters.patterns for metric in self._metrics(case))

    def command(self, site: Site, case: str) -> Sequence[str]:
        pattern = PATTERNS[case]
        if pattern.fresh:
            return self._first_write(site, case)
        if site.disk is None:
            raise ValueError(f"{site.machine.path} has no disk under test")
        job = (
            *(f"--filename={escaped(site.disk)}", f"--size={self.parameters.size_bytes}"),
            *(f"--rw={pattern.rw}", f"--bs={pattern.block}", f"--iodepth={pattern.depth}"),
            *(("--fsync=1",) if pattern.fsync else ()),
            *((f"--rwmixread={READ_SHARE}", "--unified_rw_reporting=1") if pattern.side == "mixed" else ()),
            # write, then fsync, as a database does; with libaio the two overlap, and their times cannot be added.
            *site.machine.os.fio_engine(waits=pattern.fsync),
            # To flush a device's cache takes a capability that programs in a userland lack. It is bypassed anyway.
            *(("--invalidate=0",) if site.prefix and site.disk.startswith("/dev/") else ()),
            # Direct, so that the layer's own page cache is not what is measured.
            *("--direct=1", "--time_based", *INCOMPRESSIBLE, "--norandommap=1", "--lat_percentiles=1"),
        )
        seconds = self.parameters.seconds
        lead: tuple[str, ...] = ()
        if self.parameters.rate is not None:
            job = (*job, f"--rate_iops={_rates(pattern, self.parameters.rate)}")
        if site.lead:  # a first report, about the time after the ramp, while the same work continues
            lead = (f"--ramp_time={site.lead}", f"--status-interval={1000 * seconds:.0f}ms")
        timed = (f"--runtime={seconds + site.lead:g}", *lead)
        return (site.machine.os.program("fio"), f"--name={case}", *job, *timed, "--output-format=json")

    def _first_write(self, site: Site, case: str) -> Sequence[str]:
        pattern = PATTERNS[case]
        if site.fresh_disk is None:
            raise ValueError(f"{site.machine.path} has no disk that was never written")
        every = (f"--filename={site.fresh_disk}", f"--size={self.parameters.fresh_bytes}", f"--rw={pattern.rw}")
        how = (f"--bs={pattern.block}", f"--iodepth={pattern.depth}", "--ioengine=libaio", "--direct=1")
        # Each block once in each job: fio keeps a map of the blocks it has written.
        job = (*every, *how, *INCOMPRESSIBLE, "--lat_percentiles=1")
        return (
            *("fio", f"--name={case}", *job, f"--name={REWRITE}", "--stonewall", *job),
            "--output-format=json",
        )

    def held(self, case: str, argv: Sequence[str], directory: PurePosixPath) -> Sequence[str]:
        if PATTERNS[case].fresh:
            return super().held(case, argv, directory)
        # fio has started its job by then; the time of the ramp begins afterwards.
        return (*argv, f"--exec_prerun=echo > {directory}/ready && read -r go < {directory}/go")

    def layers_of(self, case: str) -> frozenset[str]:
        return frozenset({"vm"}) if PATTERNS[case].fresh else self.layers

    def once(self, case: str) -> bool:
        return PATTERNS[case].fresh

    def explained(self, case: str, complaint: str) -> str:
        if "Invalid argument" not in complaint or PATTERNS[case].block != SMALLEST:
            return ""
        return (
            f"fio: direct I/O of {SMALLEST} bytes is refused there: its sectors have 4 KiB, or it is a dataset of ZFS"
            f" 2.3 or later; leave {case} out of workloads.disk.patterns"
        )

    def seconds(self, case: str) -> float:
        if PATTERNS[case].fresh:
            return 2 * self.parameters.fresh_bytes / FAST.random + 0.5
        return self.parameters.seconds + 0.5

    def written_bytes(self, case: str, *, usual: bool = False) -> float:
        pattern = PATTERNS[case]
        if pattern.side == "read":
            return 0.0
        if pattern.fresh:
            return 2.0 * self.parameters.fresh_bytes
        rates = USUAL if usual else FAST
        rate = rates.sync if pattern.fsync else rates.random if pattern.block == "4k" else rates.sequential
        return min(rate * pattern.depth, rates.sequential) * self.parameters.seconds

    def written_by(self, trial: Trial) -> float:
        pattern = PATTERNS.get(trial.case)
        rates = [one.value for one in trial.measurements if one.metric.measure == "bytes_per_second"]
        if pattern is None or pattern.side == "read" or pattern.fresh:
            return self.written_bytes(trial.case) if pattern is not None else 0.0
        if not rates:
            return self.written_bytes(trial.case) * min(1.0, trial.wall_seconds / self.parameters.seconds)
        return rates[0] * trial.wall_seconds  # its ramp and its start are included: no less than it wrote

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        side, sync = _job(case, output)
        count, rate = number(side, "total_ios"), number(side, "iops")
        if not count:
            raise BadOutput(f"fio did no I/O for {case}")
        if not rate:
            raise BadOutput(f"fio finished {count:.0f} operations for {case}, but counted no time")
        # With an fsync after each write, the application waits for both; fio counts them separately.
        wait = _times(sync) if PATTERNS[case].fsync else None
        asked = None if PATTERNS[case].fresh else self.parameters.rate
        if asked is not None and rate < LEAST_OF_RATE * asked:
            raise BadOutput(
                f"{case}: {rate:.0f} operations in a second were reached of the {asked} that were asked for, so"
                " its latencies are those of full load; lower workloads.disk.rate"
            )
        times = _times(side)
        mean = number(times, "mean") + (number(wait, "mean") if wait else 0.0)
        figures = {"iops": rate, "bytes_per_second": number(side, "bw_bytes")}
        figures["mean_seconds"] = mean * NANOSECOND
        # Percentiles of the two cannot be added, so those of the operation that waits for the disk are reported.
        tail = wait or times
        if LONGEST in self.parameters.percentiles:
            figures[self._longest(case)] = number(tail, "max") * NANOSECOND
        for name, share, key in self._percentiles(case):
            if count >= MINIMUM_TAIL / (1 - share):
                figures[name] = number(tail, "percentile", key) * NANOSECOND
        if PATTERNS[case].fresh:
            again, _ = _job(case, output, 1)
            second = number(again, "iops", least=TINY)
            figures |= {"rewrite_iops": second, "of_rewrite": rate / second}
        by_name = {metric.measure: metric for metric in self._metrics(case)}
        return tuple(Measurement(by_name[name], value) for name, value in figures.items() if name in by_name)

    def operations(self, case: str, output: str) -> float | None:
        jobs = (0, 1) if PATTERNS[case].fresh else (0,)
        return math.fsum(number(_job(case, output, job)[0], "total_ios") for job in jobs)

    def own_seconds(self, case: str, output: str) -> float | None:
        if PATTERNS[case].fresh:
            return None  # two jobs with a pause between them
        side, _ = _job(case, output)
        return number(side, "runtime") / 1000 if "runtime" in side else None

    def counted(self, case: str, output: str) -> Counted | None:
        own, reports = self.own_seconds(case, output), _reports(case, output)
        last = reports[-1]["jobs"][0]
        if own is None or "ramp_time" not in last["job options"]:
            return None if own is None else Counted(own)
        worked = number(last, PATTERNS[case].side, "runtime") / 1000
        lead = float(last["job options"]["ramp_time"])
        # The job's start is the end of the ramp
        rest = (reports[-1]["timestamp_ms"] - last["job_start"]) / 1000 - worked
        return Counted(own, lead, worked - own, max(0.0, rest))

    def latencies(self, case: str, output: str) -> tuple[tuple[float, float], ...]:
        if PATTERNS[case].fsync:
            return ()  # write and fsync are timed separately: their percentiles cannot be added
        side, _ = _job(case, output)
        enough = 1 - MINIMUM_TAIL / number(side, "total_ios", least=1)
        found = side["lat_ns"]["percentile"]
        percentiles = sorted((float(share) / 100, number(found, share) * NANOSECOND) for share in found)
        # Rounded, because floating point may otherwise put 0.999 above a limit that is equal to it.
        rounded = ((round(share, 6), seconds) for share, seconds in percentiles)
        return tuple((share, seconds) for share, seconds in rounded if share <= round(enough, 6))

    def _metrics(self, case: str) -> tuple[Metric, ...]:
        figures: tuple[Metric, ...] = (
            _metric(case, "iops", "1/s", "higher"),
            _metric(case, "bytes_per_second", "B/s", "higher"),
            _metric(case, "mean_seconds", "s", "lower"),
            _metric(case, CPU_PER_OPERATION, "s", "lower"),
        )
        if self.parameters.rate is not None and not PATTERNS[case].fresh:
            figures = figures[2:]  # without the rate, which the plan sets
        if PATTERNS[case].fresh:
            figures += (_metric(case, "rewrite_iops", "1/s", "higher"), _metric(case, "of_rewrite", "1", "higher"))
        names = [name for name, _, _ in self._percentiles(case)]
        if LONGEST in self.parameters.percentiles:
            names.append(self._longest(case))
        return figures + tuple(_metric(case, name, "s", "lower") for name in names)

    def _longest(self, case: str) -> str:
        return f"{'fsync_' if PATTERNS[case].fsync else ''}{LONGEST}_seconds"

    def _percentiles(self, case: str) -> Iterator[tuple[str, float, str]]:
        """(measure, share, fio's key)."""
        what = "fsync_" if PATTERNS[case].fsync else ""
        for name, share, _, key in PERCENTILES:
            if name in self.parameters.percentiles:
                yield f"{what}{name}_seconds", share, key


def escaped(path: str) -> str:
    """A file for fio, which takes a colon for the end of its name: it would measure the file C of C:\\file."""
    return path.replace(":", "\\:")


def _rates(pattern: Pattern, rate: int) -> str:
    """fio's rate_iops=, for reads and writes; together they make the rate."""
    reads = round(rate * READ_SHARE / 100)
    return f"{reads},{rate - reads}" if pattern.side == "mixed" else str(rate)


def _reports(case: str, output: str) -> list[dict[str, Any]]:
    """fio's reports: one; if there was a lead, the first covers the time that counts, and the last everything but the
    ramp. They may be the same one.

    fio may print notes before them, and reports about the ramp itself, which began earlier. Where CPU is short it may
    also print one just after the ramp, when it has counted next to nothing: that is left out.
    """
    reports, start = [], output.index("{")
    while start >= 0:
        report, end = json_at(output, start)
        reports.append(report)
        start = output.find("{", end)
    last = reports[-1]["jobs"][0]
    if "ramp_time" not in last["job options"]:
        return reports
    began, side = last.get("job_start"), PATTERNS[case].side
    asked = float(last["job options"]["runtime"]) - float(last["job options"]["ramp_time"])
    jobs = ((report, report["jobs"][0]) for report in reports[:-1])
    enough = (report for report, job in jobs if job.get("job_start") == began and job[side]["runtime"] >= 500 * asked)
    return [*enough, reports[-1]]


def _job(case: str, output: str, which: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The job's read, write or mixed figures, and its sync figures."""
    try:
        job = _reports(case, output)[0]["jobs"][which]
        side, error = job[PATTERNS[case].side], job["error"]
        sync = job["sync"] if PATTERNS[case].fsync else {}  # unified reads and writes have none
    except (ValueError, LookupError, TypeError) as problem:
        raise BadOutput(f"no JSON with jobs[{which}] in what fio printed") from problem
    if error:
        raise BadOutput(f"fio reports error {error} for {case}")
    if "usr_cpu" in job and "sys_cpu" in job:  # percent of the one thread that fio works with
        within("fio's usr_cpu + sys_cpu", number(job, "usr_cpu") + number(job, "sys_cpu"), 0, MOST_CPU, " %")
    return side, sync


def _times(side: dict[str, Any]) -> dict[str, Any]:
    """The latencies, in ns, whose mean lies between the smallest and the largest."""
    times: dict[str, Any] = side["lat_ns"]
    if "min" in times and "max" in times:
        number(times, "mean", least=number(times, "min"), most=number(times, "max"))
    return times
