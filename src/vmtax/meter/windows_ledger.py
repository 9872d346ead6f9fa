"""Who used the CPUs of a host with Windows between two readings, whether it runs Hyper-V or not. Never run on Windows.

Raw values of Windows' counters, which count in 100 ns, each beside the time at which its class was read
(Timestamp_Sys100NS). Hyper-V's count for each logical processor how long it was idle and in the hypervisor, and for
each virtual one how long it ran, those of the host's own Windows (the root partition) apart. Sources:
learn.microsoft.com on Hyper-V's performance counters and on Processor Information. Which entries there are, and what
they include: docs/development/ledger.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vmtax.core.machines import MachineLost, Reader
from vmtax.core.records import Disturbance
from vmtax.machine.windows.command_line import encoded
from vmtax.meter.base import At, MeteredCommand, Readings
from vmtax.meter.text import fields, whole
from vmtax.meter.windows import LineReader, rows

# A line for each processor, and the CPU time of the reader itself, which starts between the two readings. Hyper-V's
# classes exist where that runs. ProcessorInformation has all processors, and Processor 64 at most.
PROGRAM = """\
$hv='Win32_PerfRawData_HvStats_HyperVHypervisor'
Get-CimInstance "${hv}LogicalProcessor" -ErrorAction SilentlyContinue|ForEach-Object{
"logical=$($_.Timestamp_Sys100NS)|$($_.PercentIdleTime)|$($_.PercentHypervisorRunTime)|$($_.Name)"}
Get-CimInstance "${hv}RootVirtualProcessor" -ErrorAction SilentlyContinue|ForEach-Object{
"root=$($_.Timestamp_Sys100NS)|$($_.PercentGuestRunTime)|$($_.Name)"}
Get-CimInstance "${hv}VirtualProcessor" -ErrorAction SilentlyContinue|ForEach-Object{
"virtual=$($_.Timestamp_Sys100NS)|$($_.PercentGuestRunTime)|$($_.Name)"}
Get-CimInstance Win32_PerfRawData_Counters_ProcessorInformation|ForEach-Object{
"windows=$($_.Timestamp_Sys100NS)|$($_.PercentIdleTime)|$($_.PercentUserTime)|$($_.PercentPrivilegedTime)\
|$($_.PercentDPCTime)|$($_.PercentInterruptTime)|$($_.Name)"}
"reader=$((Get-Process -Id $PID).TotalProcessorTime.Ticks)"
"""
LINE = encoded(PROGRAM)  # for cmd.exe
UNIT = 1e-7  # seconds of the counters, and of a TimeSpan's ticks
TICK = 1 / 64  # seconds: how often Windows looks what a processor does, unless a program asks for more
MOST = 2**62  # a counter beyond this was not understood

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
    vm: str | None = ""  # by Hyper-V's name, the one that is measured; "": which it is is not known; None: none is
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
    """Each processor with its counters, whose number is `counters`; sums, such as _Total, are left out."""
    found: dict[str, list[float]] = {}
    for *words, processor in rows(text, name, counters + 2):
        values = [whole(word) for word in words]
        if processor[-1:].isdecimal() and all(value is not None and 0 <= value < MOST for value in values):
            found[processor] = [UNIT * (value or 0) for value in values]
    return found


def reckon(before: WindowsReading, after: WindowsReading, vm: str | None = "") -> dict[str, float]:
    """Entries in core-seconds, which together with `remainder` add up to `busy`, as of the other ledger; {} if no time
    passed, or one of the readings lacks a class of counters that the other has. Pure.

    `vm`: as `WindowsLedger` has it
    """
    if _classes(before) != _classes(after) or bool(after.logical) != bool(after.root):
        return {}
    idle, user, kernel, deferred, interrupts = _cpus(before.windows, after.windows, 5)
    seconds, cpus = _elapsed(before.windows, after.windows)
    own = user + kernel
    entries: dict[str, float] = {}
    if after.logical:
        idle, hypervisor = _cpus(before.logical, after.logical, 2)
        seconds, cpus = _elapsed(before.logical, after.logical)
        (own,) = _cpus(before.root, after.root, 1)
        guests = {name: _rates(name, before.virtual, after.virtual) for name in after.virtual}
        measured = _processors_of(vm, guests)
        entries["guest"] = seconds * sum(sum(rates) for name, rates in guests.items() if name in measured)
        entries["other_vms"] = seconds * sum(sum(rates) for name, rates in guests.items() if name not in measured)
        entries["hypervisor"] = seconds * hypervisor
    if seconds <= 0:
        return {}
    # Where a hypervisor runs, that knows how long the host's Windows ran, and Windows only what it did meanwhile.
    scale = seconds * own / (user + kernel) if user + kernel > 0 else 0.0
    entries |= {"hard_irq": scale * interrupts, "soft_irq": scale * deferred, "user": scale * user}
    entries["kernel"] = scale * max(0.0, kernel - deferred - interrupts)
    programs = entries["user"] + entries["kernel"]
    entries["vmtax"] = min(after.reader, programs)
    kept = 1 - entries["vmtax"] / programs if programs > 0 else 1.0
    entries |= {name: kept * entries[name] for name in ("user", "kernel")}
    busy = max(0.0, seconds * (cpus - idle))
    entries = {name: value for name, value in entries.items() if value > 0}
    entries["remainder"] = busy - sum(entries.values())
    return {**entries, "busy": busy, "seconds": seconds, "error": 2 * TICK * cpus}


def _classes(reading: WindowsReading) -> tuple[bool, ...]:
    """Which of Hyper-V's classes answered."""
    return bool(reading.logical), bool(reading.root), bool(reading.virtual)


def _processors_of(vm: str | None, names: Collection[str]) -> Collection[str]:
    """Those of the VM that is measured; all if which one that is, is not known."""
    if vm is None:
        return ()
    return [name for name in names if vm and name.rpartition(":")[0] == vm] or names


def _cpus(before: Counted, after: Counted, counters: int) -> list[float]:
    """How many processors each counter took, on average."""
    every = [_rates(name, before, after) for name in after]
    return [sum(rates[place] for rates in every if rates) for place in range(counters)]


def _rates(name: str, before: Counted, after: Counted) -> list[float]:
    """How much of a processor each of its counters took, between the times at which it was read; [] for a new one."""
    began, ended = before.get(name), after[name]
    if began is None or ended[0] <= began[0]:
        return []
    return [max(0.0, now - was) / (ended[0] - began[0]) for was, now in zip(began[1:], ended[1:], strict=True)]


def _elapsed(before: Counted, after: Counted) -> tuple[float, int]:
    """Seconds between the two readings, and the number of processors that are in both."""
    passed = [after[name][0] - before[name][0] for name in after if _rates(name, before, after)]
    return (sum(passed) / len(passed) if passed else 0.0), len(passed)


def _disturbance(entries: Mapping[str, float]) -> Disturbance:
    """The same as reports show it for any host, without the reading itself."""
    return Disturbance(
        wall_seconds=entries["seconds"],
        busy_seconds=max(0.0, entries["busy"] - entries.get("vmtax", 0.0)),
        steal_seconds=0.0,  # not known, if that host is itself a VM
        cpu_pressure_seconds=None,
        io_pressure_seconds=None,
        memory_pressure_seconds=None,
        mean_frequency_hz=None,
        throttles=None,
    )
