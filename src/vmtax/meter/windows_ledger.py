"""Who used the CPUs of a host with Windows between two readings, whether it runs Hyper-V or not. Never run on Windows.

Raw values of Windows' counters, which count in 100 ns, each beside the time at which its class was read
(Timestamp_Sys100NS). Hyper-V's count for each logical processor how long it was idle and in the hypervisor, and for
each virtual one how long it ran, those of the host's own Windows (the root partition) apart. Sources:
learn.microsoft.com on Hyper-V performance counters and on Win32_PerfRawData_PerfOS_Processor. Which entries there are
and what they include: docs/development/ledger.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vmtax.core.machines import MachineLost, Reader
from vmtax.core.records import Disturbance
from vmtax.machine.windows.command_line import encoded
from vmtax.meter.base import At, MeteredCommand, Readings
from vmtax.meter.hyper_v import COUNTERS
from vmtax.meter.text import fields, whole
from vmtax.meter.windows import LineReader, rows

# A line for each processor, and the CPU time of the reader itself, which starts between the two readings.
PROGRAM = f"""\
{COUNTERS}
counters LogicalProcessor|ForEach-Object{{
"logical=$($_.Timestamp_Sys100NS)|$($_.PercentIdleTime)|$($_.PercentHypervisorRunTime)|$($_.Name)"}}
counters RootVirtualProcessor|ForEach-Object{{"root=$($_.Timestamp_Sys100NS)|$($_.PercentGuestRunTime)|$($_.Name)"}}
counters VirtualProcessor|ForEach-Object{{"virtual=$($_.Timestamp_Sys100NS)|$($_.PercentGuestRunTime)|$($_.Name)"}}
Get-CimInstance Win32_PerfRawData_PerfOS_Processor|ForEach-Object{{
"windows=$($_.Timestamp_Sys100NS)|$($_.PercentIdleTime)|$($_.PercentUserTime)|$($_.PercentPrivilegedTime)\
|$($_.PercentDPCTime)|$($_.PercentInterruptTime)|$($_.Name)"}}
"reader=$((Get-Process -Id $PID).TotalProcessorTime.Ticks)"
"""
LINE = encoded(PROGRAM)  # for cmd.exe
UNIT = 1e-7  # seconds of the counters, and of a TimeSpan's ticks
TICK = 1 / 64  # seconds: how often Windows looks what a processor does, unless a program asks for more
MOST = 2**62  # a counter beyond this was not understood
BY_TICKS = ("hard_irq", "soft_irq", "kernel", "user")  # entries that Windows' own counters split

Counted = Mapping[str, Sequence[float]]  # name of a processor -> when it was read, and its counters, in seconds


@dataclass(frozen=True, slots=True)
class WindowsReading:
    """Everything counted since the start of that Windows; without Hyper-V only `windows` is not empty."""

    logical: Counted  # idle, in the hypervisor
    root: Counted  # running the host's own Windows
    virtual: Counted  # running a VM; "NAME OF VM:Hv VP 0"
    windows: Counted  # the host's own Windows: idle, user, kernel, of which deferred calls (DPC), and interrupts
    reader: float  # seconds of CPU time that the reading has taken so far


@dataclass(slots=True)
class WindowsLedger:
    """The host's entries in core-seconds, as a `Meter`; none if that Windows answers with no counters."""

    name: ClassVar[str] = "ledger"
    at: ClassVar[At] = "host"
    command: ClassVar[tuple[str, ...]] = ("powershell", LINE.rpartition(" ")[2])

    host: LineReader
    vm: str = ""  # by Hyper-V's name, the one that is measured; "": which one that is, is not known
    _before: WindowsReading | None = field(default=None, init=False)

    def before(self, machine: Reader) -> None:
        self._before = self._look()

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        after = self._look()
        found = reckon(self._before, after, self.vm) if self._before and after else {}
        if not found:
            return Readings()
        operations = [work.operations for work in works]
        if operations and None not in operations:
            found["operations"] = sum(filter(None, operations))
        return Readings(found, disturbance=_disturbance(found))

    def _look(self) -> WindowsReading | None:
        try:
            return parse(self.host.carry(LINE).stdout)
        except MachineLost:
            return None  # whoever uses the machine next gets the error


def parse(text: str) -> WindowsReading | None:
    """Parse PROGRAM's output; None if it is incomplete or was not understood. Pure."""
    windows = _counted(text, "windows", 5)
    reader = whole(fields(text, "=").get("reader"))
    if not windows or reader is None or not 0 <= reader < MOST:
        return None
    logical, root, virtual = _counted(text, "logical", 2), _counted(text, "root", 1), _counted(text, "virtual", 1)
    return WindowsReading(logical, root, virtual, windows, reader * UNIT)


def _counted(text: str, name: str, counters: int) -> dict[str, list[float]]:
    """So many of each processor; sums have other names, such as _Total."""
    found: dict[str, list[float]] = {}
    for *words, processor in rows(text, name, counters + 2):
        values = [whole(word) for word in words]
        if processor[-1:].isdecimal() and all(value is not None and 0 <= value < MOST for value in values):
            found[processor] = [UNIT * (value or 0) for value in values]
    return found


def reckon(before: WindowsReading, after: WindowsReading, vm: str = "") -> dict[str, float]:
    """Entries in core-seconds, which together with `remainder` add up to `busy`, as of the other ledger; {} if no time
    passed. Pure.

    `vm`: the name of the one that is measured, whose entry is `guest`; "": all are `guest`.
    """
    idle, user, kernel, deferred, interrupts = _cpus(before.windows, after.windows, 5)
    seconds, cpus = _elapsed(before.windows, after.windows), len(after.windows)
    own = user + kernel
    rows: dict[str, float] = {}
    if after.logical:
        idle, hypervisor = _cpus(before.logical, after.logical, 2)
        seconds, cpus = _elapsed(before.logical, after.logical), len(after.logical)
        (own,) = _cpus(before.root, after.root, 1)
        guests = {name: _of(name, before.virtual, after.virtual) for name in after.virtual}
        is_measured = {name: not vm or name.rpartition(":")[0] == vm for name in guests}
        rows["guest"] = seconds * sum(value for name, value in guests.items() if is_measured[name])
        rows["other_vms"] = seconds * sum(value for name, value in guests.items() if not is_measured[name])
        rows["hypervisor"] = seconds * hypervisor
    if seconds <= 0:
        return {}
    # Where a hypervisor runs, that knows how long the host's Windows ran, and Windows only what it did meanwhile.
    scale = seconds * own / (user + kernel) if user + kernel > 0 else 0.0
    rows |= {"hard_irq": scale * interrupts, "soft_irq": scale * deferred, "user": scale * user}
    rows["kernel"] = scale * max(0.0, kernel - deferred - interrupts)
    rows["vmtax"] = min(after.reader, rows["user"] + rows["kernel"])
    kept = 1 - rows["vmtax"] / (rows["user"] + rows["kernel"]) if rows["vmtax"] else 1.0
    rows |= {name: kept * rows[name] for name in ("user", "kernel")}
    busy = max(0.0, seconds * (cpus - idle))
    rows = {name: value for name, value in rows.items() if value > 0}
    rows["remainder"] = busy - sum(rows.values())
    return {**rows, "busy": busy, "seconds": seconds, "error": 2 * TICK * len(BY_TICKS)}


def _cpus(before: Counted, after: Counted, counters: int) -> list[float]:
    """How many processors each counter took, on average."""
    every = [_rates(name, before, after) for name in after]
    return [sum(rates[place] for rates in every if rates) for place in range(counters)]


def _of(name: str, before: Counted, after: Counted) -> float:
    return (_rates(name, before, after) or [0.0])[0]


def _rates(name: str, before: Counted, after: Counted) -> list[float]:
    """How much of a processor each of its counters took, between the times at which it was read; [] for a new one."""
    began, ended = before.get(name), after[name]
    if began is None or ended[0] <= began[0]:
        return []
    return [max(0.0, now - was) / (ended[0] - began[0]) for was, now in zip(began[1:], ended[1:], strict=True)]


def _elapsed(before: Counted, after: Counted) -> float:
    """Seconds between the two readings."""
    passed = [after[name][0] - before[name][0] for name in after if name in before]
    return max(0.0, sum(passed) / len(passed)) if passed else 0.0


def _disturbance(rows: Mapping[str, float]) -> Disturbance:
    """The same as reports show it for any host, without the reading itself."""
    return Disturbance(
        wall_seconds=rows["seconds"],
        busy_seconds=max(0.0, rows["busy"] - rows.get("vmtax", 0.0)),
        steal_seconds=0.0,
        cpu_pressure_seconds=None,
        io_pressure_seconds=None,
        memory_pressure_seconds=None,
        mean_frequency_hz=None,
        throttles=None,
    )
