"""Facts about a Windows as a host of Hyper-V: its VMs, and who used its CPUs. They only read. Never run on Windows.

Scripts as in `windows.py`. Counters are asked for by their classes, because Get-Counter takes translated names.
Sources: learn.microsoft.com on Get-VM, Get-VMProcessor, Get-VMNetworkAdapter, Measure-VM and
Win32_PerfFormattedData_PerfOS_Processor; the classes of Hyper-V's counters, HvStats, are those that monitors read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.command_line import encoded
from vmtax.meter.text import fields, number, whole
from vmtax.meter.windows import LineReader, problems, rows, switch

# Without an answer of Get-VM, it must not say that there are no VMs.
VMS = """\
$ErrorActionPreference='Stop';$v=@(Get-VM)
"vms=$($v.Count)"
$v|ForEach-Object{$p=Get-VMProcessor -VM $_
"vm=$($_.State)|$($_.Generation)|$($p.Count)|$($_.MemoryAssigned)|$($p.ExposeVirtualizationExtensions)|$($_.Name)"}
"""
CARDS = """\
Get-VMNetworkAdapter -VMName *|ForEach-Object{
"card=$($_.IovWeight)|$($_.IovUsage)|$($_.SwitchName)|$($_.VMName)"}
"""
METERED = """\
Get-VM|Where-Object{$_.ResourceMeteringEnabled}|Measure-VM|ForEach-Object{
"metered=$($_.AvgCPU)|$($_.AvgRAM)|$($_.VMName)"}
"""
USED = """\
$l=Get-CimInstance Win32_PerfFormattedData_HvStats_HyperVHypervisorLogicalProcessor -Filter "Name='_Total'"
$o=Get-CimInstance Win32_PerfFormattedData_PerfOS_Processor -Filter "Name='_Total'"
"hypervisor=$($l.PercentHypervisorRunTime)"
"idle=$($l.PercentIdleTime)"
"dpc=$($o.PercentDPCTime)"
"interrupt=$($o.PercentInterruptTime)"
Get-CimInstance Win32_PerfFormattedData_HvStats_HyperVHypervisorVirtualProcessor|ForEach-Object{
"vp=$($_.PercentGuestRunTime)|$($_.PercentHypervisorRunTime)|$($_.Name)"}
"""
# Question -> the line for cmd.exe.
HOST_QUESTIONS: Mapping[str, str] = {
    "vms": encoded(VMS),
    "cards": encoded(CARDS),
    "metered": encoded(METERED),
    "used": encoded(USED),
}
RUNNING = "Running"  # as the type VMState prints it in every language


@dataclass(frozen=True, slots=True)
class HyperVCard:
    """A network card of a VM."""

    switch: str
    weight: int | None  # IovWeight: more than 0 asks for a virtual function
    has_function: bool | None  # whether it has one now


@dataclass(frozen=True, slots=True)
class HyperVGuest:
    """A VM of that host; None: not known."""

    name: str
    state: str  # as Hyper-V names it
    generation: int | None
    cpus: int | None
    memory_bytes: int | None  # that it has now
    nesting: bool | None  # whether it is given the extensions for VMs of its own
    cards: tuple[HyperVCard, ...] = ()
    busy: float | None = None  # CPUs that its own code kept busy just now
    hypervisor_busy: float | None = None  # CPUs that the hypervisor kept busy for it just now
    metered_mhz: int | None = None  # mean use of CPU since its metering was enabled

    @property
    def runs(self) -> bool:
        return self.state == RUNNING


@dataclass(frozen=True, slots=True)
class HyperVFacts:
    """What a Windows says about itself as a host; shares are of all its CPUs, in the moment when it was asked."""

    guests: tuple[HyperVGuest, ...] = ()
    is_host: bool = False  # it says which VMs there are, if only that there is none
    hypervisor: float | None = None  # share in the hypervisor
    idle: float | None = None
    deferred: float | None = None  # share in deferred procedure calls (DPC) of the host
    interrupts: float | None = None  # share in interrupts of the host
    problems: tuple[str, ...] = ()  # why something is not known, one line each


def read_hyper_v(machine: LineReader) -> HyperVFacts:
    """Ask all HOST_QUESTIONS. Raises MachineLost."""
    return parse_hyper_v({name: machine.carry(line) for name, line in HOST_QUESTIONS.items()})


def names_in(answers: Mapping[str, str]) -> set[str]:
    """Names of VMs and switches in answers to HOST_QUESTIONS, also where the list of VMs itself failed. Pure."""
    last = [
        *rows(answers.get("vms", ""), "vm", 6),
        *rows(answers.get("metered", ""), "metered", 3),
        *([name.rpartition(":")[0]] for *_, name in rows(answers.get("used", ""), "vp", 3)),
    ]
    cards = [row[-2:] for row in rows(answers.get("cards", ""), "card", 4)]
    return {row[-1] for row in last}.union(*cards)


def parse_hyper_v(answers: Mapping[str, WindowsOutcome]) -> HyperVFacts:
    """Pure. Answers to HOST_QUESTIONS; one that is missing is unknown."""
    text = {name: ended.stdout for name, ended in answers.items()}
    used = fields(text.get("used", ""), "=")
    cards: dict[str, list[HyperVCard]] = {}
    for weight, function, network, name in rows(text.get("cards", ""), "card", 4):
        usage = whole(function)
        cards.setdefault(name, []).append(HyperVCard(network, whole(weight), None if usage is None else usage > 0))
    metered = {name: whole(mhz) for mhz, _, name in rows(text.get("metered", ""), "metered", 3)}
    busy = _busy(text.get("used", ""))
    guests = tuple(
        HyperVGuest(
            name=name,
            state=state,
            generation=whole(generation),
            cpus=whole(cpus),
            memory_bytes=whole(memory),
            nesting=switch(nesting),
            cards=tuple(cards.get(name, ())),
            busy=busy.get(name, (None, None))[0],
            hypervisor_busy=busy.get(name, (None, None))[1],
            metered_mhz=metered.get(name),
        )
        for state, generation, cpus, memory, nesting, name in rows(text.get("vms", ""), "vm", 6)
    )
    found = tuple(dict.fromkeys(problems(answers, HOST_QUESTIONS)))
    return HyperVFacts(
        guests=guests,
        is_host=whole(fields(text.get("vms", ""), "=").get("vms")) is not None,
        hypervisor=_share(used.get("hypervisor")),
        idle=_share(used.get("idle")),
        deferred=_share(used.get("dpc")),
        interrupts=_share(used.get("interrupt")),
        problems=found,
    )


def _busy(text: str) -> dict[str, tuple[float, float]]:
    """VM -> CPUs in its own code, and in the hypervisor for it: of its virtual processors, "NAME:Hv VP 0"."""
    found: dict[str, tuple[float, float]] = {}
    for guest, hypervisor, processor in rows(text, "vp", 3):
        name, parted, _ = processor.rpartition(":")
        shares = _share(guest), _share(hypervisor)
        if parted and shares[0] is not None and shares[1] is not None:
            before = found.get(name, (0.0, 0.0))
            found[name] = (before[0] + shares[0], before[1] + shares[1])
    return found


def _share(text: str | None) -> float | None:
    value = number(text)
    return None if value is None or not 0 <= value <= 100 else value / 100
