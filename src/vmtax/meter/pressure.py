"""Who else used the machine during a measurement: busy and stolen CPU time, pressure, frequency."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from vmtax.core.records import Disturbance
from vmtax.machine import CommandFailed, Reader
from vmtax.meter import moment
from vmtax.meter.base import At, Readings, Work
from vmtax.meter.moment import Moment

TICKS_PER_SECOND = 100  # USER_HZ: the unit of /proc, independent of the kernel's own HZ; fixed on x86-64

# Every CPU has the count of its package.
THROTTLES = "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/package_throttle_count"

# A single grep, because a second process would cost an emulated guest more than the reading itself. /proc/uptime is
# next to /proc/stat, so that wall time and idle time are read together.
COMMAND = (
    *("sh", "-c"),
    "exec grep -s -a -H -E '^(cpu  |cpu[0-9]+ |some |cpu MHz|[0-9])' /proc/uptime /proc/stat /proc/pressure/cpu"
    f" /proc/pressure/io /proc/pressure/memory /proc/cpuinfo {THROTTLES}",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters of one machine at one moment, all since its boot."""

    at: Moment  # its clocks: independent of the way to the machine
    cpus: int  # online
    idle_seconds: float  # of all CPUs together; includes waiting for disks
    steal_seconds: float  # of all CPUs together: a task could run, and the hypervisor ran something else
    cpu_pressure_seconds: float | None  # some task waited for a CPU; None: kernel without PSI
    io_pressure_seconds: float | None  # some task waited for a disk
    memory_pressure_seconds: float | None  # some task waited for memory
    frequency_hz: float | None  # mean over the CPUs at this moment; in a guest the TSC's constant
    throttles: Mapping[int, int]  # CPU -> how often its package was slowed down; empty: this is not counted there


class Pressure:
    """Two readings of the host under test, and their difference."""

    name: ClassVar[str] = "pressure"
    at: ClassVar[At] = "host"
    command: ClassVar[tuple[str, ...]] = COMMAND

    def __init__(self) -> None:
        self._before: dict[str, Reading | None] = {}  # by machine path

    def before(self, machine: Reader) -> None:
        self._before[machine.path] = _if_known(machine)

    def after(self, machine: Reader, works: Sequence[Work]) -> Readings:
        before, after = self._before[machine.path], _if_known(machine)
        if before is None or after is None:
            return Readings()
        void = moment.disagreement(machine.path, before.at, after.at)
        return Readings(disturbance=between(before, after), void=void)


def _if_known(machine: Reader) -> Reading | None:
    try:
        return read(machine)
    except CommandFailed:
        return None


def read(machine: Reader) -> Reading:
    """Read the counters now, with one command. Raises CommandFailed on a machine without /proc/stat."""
    outcome, at = moment.look(machine, COMMAND)  # exits with 2 if a file is missing, such as PSI's
    reading = parse(outcome.stdout)
    if reading is None or at is None:
        raise CommandFailed(outcome, "vmtax needs /proc/stat and /proc/uptime there: is /proc mounted?")
    return replace(reading, at=at)


def parse(text: str) -> Reading | None:
    """Parse COMMAND's output; None if it lacks the CPU counters or the clock."""
    at = moment.parse(text)
    total = re.search(r"^/proc/stat:cpu  (\d{1,18}(?: \d{1,18})*)$", text, re.MULTILINE | re.ASCII)
    cpus = len(re.findall(r"^/proc/stat:cpu\d", text, re.MULTILINE | re.ASCII))
    # user nice system idle iowait irq softirq steal guest guest_nice
    ticks = [float(number) for number in total[1].split()] if total else []
    if at is None or cpus == 0 or len(ticks) < 8:
        return None
    return Reading(
        at=at,
        cpus=cpus,
        idle_seconds=(ticks[3] + ticks[4]) / TICKS_PER_SECOND,
        steal_seconds=ticks[7] / TICKS_PER_SECOND,
        cpu_pressure_seconds=_pressure(text, "cpu"),
        io_pressure_seconds=_pressure(text, "io"),
        memory_pressure_seconds=_pressure(text, "memory"),
        frequency_hz=_frequency(text),
        throttles=_throttles(text),
    )


def between(before: Reading, after: Reading) -> Disturbance:
    """Differences; never negative, although counters advance in ticks, and idle time not in step with the clock."""
    wall = max(0.0, moment.elapsed(before.at, after.at))
    idle = after.idle_seconds - before.idle_seconds
    frequencies = [hz for hz in (before.frequency_hz, after.frequency_hz) if hz is not None]
    return Disturbance(
        busy_seconds=max(0.0, after.cpus * wall - idle),
        steal_seconds=max(0.0, after.steal_seconds - before.steal_seconds),
        cpu_pressure_seconds=_grown(before.cpu_pressure_seconds, after.cpu_pressure_seconds),
        io_pressure_seconds=_grown(before.io_pressure_seconds, after.io_pressure_seconds),
        memory_pressure_seconds=_grown(before.memory_pressure_seconds, after.memory_pressure_seconds),
        mean_frequency_hz=sum(frequencies) / len(frequencies) if frequencies else None,
        wall_seconds=wall,
        throttles=_more(before.throttles, after.throttles),
    )


def _more(before: Mapping[int, int], after: Mapping[int, int]) -> int | None:
    """The growth of the package that grew most, because each package is counted by all of its CPUs."""
    grown = [after[cpu] - count for cpu, count in before.items() if cpu in after]
    return max(0, *grown) if grown else None


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _pressure(text: str, resource: str) -> float | None:
    found = re.search(rf"^/proc/pressure/{resource}:some .*\btotal=(\d{{1,18}})\b", text, re.MULTILINE | re.ASCII)
    return float(found[1]) / 1e6 if found else None  # the kernel counts microseconds


def _frequency(text: str) -> float | None:
    found = re.findall(r"^/proc/cpuinfo:cpu MHz\s*: (\d{1,9}(?:\.\d{1,9})?)$", text, re.MULTILINE | re.ASCII)
    megahertz = [float(number) for number in found]
    return sum(megahertz) / len(megahertz) * 1e6 if megahertz else None


def _throttles(text: str) -> dict[int, int]:
    lines = re.findall(
        r"/cpu(\d{1,6})/thermal_throttle/package_throttle_count:(\d{1,18})$", text, re.MULTILINE | re.ASCII
    )
    return {int(cpu): int(count) for cpu, count in lines}
