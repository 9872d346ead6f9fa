"""Guests that do different work at part load, in tiles of three: a database, a web server, and one that idles.

The first of each three guests is the database: fio's random reads and writes at a set rate, where a write is complete
when the disk has it (O_DSYNC). The second serves requests of a set rate, without a network. The third sleeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, ClassVar

from pydantic import Field

from vmtax.core.layers import GUESTS
from vmtax.core.records import Measurement, Metric
from vmtax.workload.base import Command, Counted, Measure, Parameters
from vmtax.workload.fio import READ_SHARE, Disk, DiskParameters, Size
from vmtax.workload.idle import IdleParameters, IdleWorkload
from vmtax.workload.migration import PYTHON
from vmtax.workload.output import BadOutput, json_of, number
from vmtax.workload.site import Site

ROLES = DATABASE, WEB, IDLE = "database", "web", "idle"  # of the first, second and third guest of a tile
PATTERN = "randrw-4k-qd8"  # of the database
BLOCK = 4096  # bytes of its operations
DURABLE = "--sync=dsync"  # fio's option; so the time of a write includes that of its flush
PAGE = 32 * 1024  # bytes of which a request computes a SHA-256: 0.1 ms of a CPU or less
RATE, EMULATED_RATE = 500, 150  # operations, and requests, in a second
LEAST = 1000  # operations for a p99, so that 10 lie beyond it (METHOD.md)
SPARE = 1.1  # more are asked for, because a rate is not kept exactly
P99 = {role: Metric(f"tile.{role}.p99_seconds", "s", "lower") for role in (DATABASE, WEB)}
DONE = {role: Metric(f"tile.{role}.of_asked", "1", "higher") for role in (DATABASE, WEB)}
REPORT = re.compile(r"^vmtax requests: (\{.{1,400}\})$", re.MULTILINE)


def place_of(path: str) -> int:
    """The number of a guest among its treatment's, from 1: 2 of "host/vm-2", "host/vm/vm-2" and "host/vm-2/vm"."""
    found = re.search(r"/vm-(\d{1,3})(?=/|$)", path)
    return int(found[1]) if found else 1


def role_of(path: str) -> str:
    """What the guest at this path does."""
    return ROLES[(place_of(path) - 1) % len(ROLES)]


class TileParameters(Parameters):
    size: Size = Field("256MiB", description="size of the database's disk; every guest has one")
    seconds: float = Field(10.0, ge=5, le=3600, description="run length, in seconds")
    database_rate: int | None = Field(
        None,
        strict=True,
        ge=10,
        le=10**6,
        description=f"operations of 4 KiB that each database is asked for in a second, {READ_SHARE} % of them reads; by"
        f" default {RATE}, and {EMULATED_RATE} in a run with an emulated layer",
    )
    web_rate: int | None = Field(
        None,
        strict=True,
        ge=10,
        le=10_000,
        description="requests that arrive at each web server in a second; by default as for database_rate",
    )


class TileWorkload(Command[TileParameters]):
    """Each machine does the work of its role, and reports its metrics alone."""

    name = "tile"
    describe = "unlike guests at part load: of each three, one is a database, one a web server, and one idles (fio)"
    tool = "fio and Python"
    title = "Tiles"
    packages = ("fio", "coreutils")
    headline = P99[DATABASE].name
    roles = len(ROLES)
    layers = frozenset(GUESTS)
    doubts = Disk.doubts
    measures: ClassVar = {
        "p99_seconds": Measure(
            "99 of 100 operations (database) or requests (web) took at most this long", "p99 latency", "latency at p99"
        ),
        "of_asked": Measure("operations or requests that were done, as a share of those asked for", "of the asked"),
    }
    parameters_type = TileParameters

    def settled(self) -> Mapping[str, Any]:
        return {"database_rate": self._rate(DATABASE), "web_rate": self._rate(WEB)}

    def _rate(self, role: str) -> int:
        given = self.parameters
        asked = given.database_rate if role == DATABASE else given.web_rate
        return asked or (EMULATED_RATE if self.emulated else RATE)

    def why_not(self, vcpus: int) -> str | None:
        for role in P99:
            if self._rate(role) * self.parameters.seconds < SPARE * LEAST:
                least = f"{SPARE * LEAST / self.parameters.seconds:.0f}"
                return (
                    f"{role}_rate {self._rate(role)} in {self.parameters.seconds:g} s are too few for a p99: it takes"
                    f" {role}_rate {least}, or more seconds"
                )
        return None

    @property
    def filled_bytes(self) -> int:
        return self._database.filled_bytes

    def cases(self) -> Sequence[str]:
        return ("",)

    def metrics(self) -> Sequence[Metric]:
        return (*P99.values(), *DONE.values())

    def reports(self, case: str) -> Sequence[Metric]:
        return self.metrics()

    def command(self, site: Site, case: str) -> Sequence[str]:
        role = role_of(site.machine.path)
        if role == DATABASE:
            return (*self._database.command(site, PATTERN), DURABLE)
        if role == WEB:
            script = resources.files("vmtax.workload").joinpath("requests.py").read_text(encoding="utf-8")
            arguments = (self._rate(WEB), self.parameters.seconds, site.lead, PAGE, place_of(site.machine.path))
            return (PYTHON, "-I", "-S", "-c", script, *(f"{each:g}" for each in arguments))
        return self._idle(site.lead).command(site, case)

    def held(self, case: str, argv: Sequence[str], directory: PurePosixPath) -> Sequence[str]:
        if DURABLE in argv:
            return self._database.held(PATTERN, argv, directory)
        if PYTHON in argv:  # which starts for seconds where it is emulated
            return (*argv, str(directory))
        return super().held(case, argv, directory)

    def seconds(self, case: str) -> float:
        return self.parameters.seconds + 0.5

    def written_bytes(self, case: str, *, usual: bool = False) -> float:
        """Of a machine on average: one of three writes."""
        rate = self._rate(DATABASE) * (100 - READ_SHARE) / 100
        return rate * BLOCK * self.parameters.seconds / len(ROLES)

    def read(self, case: str, output: str) -> tuple[Measurement, ...]:
        role = _role_in(output)
        if role == DATABASE:
            found = {one.metric.measure: one.value for one in self._unlimited.read(PATTERN, output)}
            p99, done = found.get("p99_seconds"), found["iops"] / self._rate(DATABASE)
        elif role == WEB:
            report = _report(output)
            asked = number(report, "asked", least=1)
            p99, done = number(report, "p99"), number(report, "answered", most=asked) / asked
            if not done:
                raise BadOutput(f"none of {asked:.0f} requests was served before the end: lower web_rate")
        else:
            return self._idle(0).read(case, output)
        # A database that is far behind does too few operations for a percentile
        tail = () if p99 is None else (Measurement(P99[role], p99),)
        return (*tail, Measurement(DONE[role], done))

    def own_seconds(self, case: str, output: str) -> float | None:
        role = _role_in(output)
        if role == DATABASE:
            return self._unlimited.own_seconds(PATTERN, output)
        return number(_report(output), "seconds") if role == WEB else self._idle(0).own_seconds(case, output)

    def counted(self, case: str, output: str) -> Counted | None:
        role = _role_in(output)
        if role == DATABASE:
            return self._unlimited.counted(PATTERN, output)
        if role == IDLE:
            own = self._idle(0).own_seconds(case, output) or 0.0
            lead = max(0.0, own - self.parameters.seconds) / 2
            return Counted(own - 2 * lead, lead, lead)
        report = _report(output)
        lead = number(report, "lead")
        return Counted(number(report, "seconds"), lead, lead, number(report, "rest"))

    @property
    def _database(self) -> Disk:
        return self._disk(self._rate(DATABASE))

    @property
    def _unlimited(self) -> Disk:
        """It reads what fio printed also where the rate was not reached: here, that is an answer."""
        return self._disk(None)

    def _disk(self, rate: int | None) -> Disk:
        given = self.parameters
        return Disk(
            DiskParameters(patterns=(PATTERN,), size=given.size, seconds=given.seconds, rate=rate, percentiles=("p99",))
        )

    def _idle(self, lead: int) -> IdleWorkload:
        return IdleWorkload(IdleParameters(seconds=self.parameters.seconds + 2 * lead))


def _role_in(output: str) -> str:
    """Whose output it is. Raises BadOutput for another one."""
    if '"fio version"' in output:
        return DATABASE
    if REPORT.search(output):
        return WEB
    if re.match(r"\d{1,12}\.\d\d \d{1,12}\.\d\d\n", output):
        return IDLE
    raise BadOutput("expected fio's JSON, a line 'vmtax requests:' or lines of /proc/uptime")


def _report(output: str) -> dict[str, Any]:
    (line,) = REPORT.findall(output)
    return json_of(line)
