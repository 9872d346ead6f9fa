"""Facts about a Windows that change figures: read by documented commands, which only read. Never run on Windows.

Scripts for PowerShell are short and print a line NAME=VALUE for each property; parsing is pure, and what is not
understood is None. Sources: learn.microsoft.com on Win32_OperatingSystem, Win32_ComputerSystem, Win32_Processor,
Win32_ComputerSystemProduct, Win32_DeviceGuard, Win32_PnPSignedDriver, Get-MpComputerStatus,
Get-StorageAdvancedProperty, Get-NetAdapterRss, powercfg and whoami.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from vmtax.core.records import Json
from vmtax.core.units import count_of
from vmtax.machine.windows import task
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.command_line import encoded
from vmtax.meter.text import fields, whole

SYSTEM = """\
$s=Get-CimInstance Win32_OperatingSystem;$c=Get-CimInstance Win32_ComputerSystem;$p=@(Get-CimInstance Win32_Processor)
"language=$($ExecutionContext.SessionState.LanguageMode)"
"system=$($s.Caption)"
"build=$($s.BuildNumber)"
"cpu=$($p[0].Name)"
"cpus=$($c.NumberOfLogicalProcessors)"
"memory=$($c.TotalPhysicalMemory)"
"model=$($c.Manufacturer) $($c.Model)"
"hypervisor=$($c.HypervisorPresent)"
"uuid=$((Get-CimInstance Win32_ComputerSystemProduct).UUID)"
"booted=$($s.LastBootUpTime.ToUniversalTime().ToString('s'))"
"clock=$((Get-Date).ToUniversalTime().ToString('s'))"
"""
GUARD = r"""
$g=Get-CimInstance -Namespace root\Microsoft\Windows\DeviceGuard Win32_DeviceGuard
"vbs=$($g.VirtualizationBasedSecurityStatus)"
"services=$($g.SecurityServicesRunning -join ' ')"
"""
DEFENDER = """\
$d=Get-MpComputerStatus
"real-time=$($d.RealTimeProtectionEnabled)"
"""
DISKS = """\
Get-PhysicalDisk|ForEach-Object{$a=$_|Get-StorageAdvancedProperty
"disk=$($_.BusType)|$($_.MediaType)|$($a.IsDeviceCacheEnabled)|$($_.FriendlyName)"}
"""
DRIVERS = """\
Get-CimInstance Win32_PnPSignedDriver|Where-Object{$_.DriverProviderName -like 'Red Hat*'}|ForEach-Object{
"driver=$($_.DriverVersion)|$($_.DeviceName)"}
"""
RSS = """\
Get-NetAdapterRss|ForEach-Object{"rss=$($_.Enabled)|$($_.NumberOfReceiveQueues)|$($_.InterfaceDescription)"}
"""
# Values of the key by which mitigations are switched off; a Windows that has neither says nothing, and that is right.
OVERRIDE = (
    r'reg query "HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management" 2>nul'
    " | findstr FeatureSettingsOverride& ver >nul"
)
SWITCHED_OFF = 3  # bits: Spectre, variant 2, and Meltdown
BOOTED = """\
"booted=$((Get-CimInstance Win32_OperatingSystem).LastBootUpTime.ToUniversalTime().ToString('s'))"
"""
RESTARTED = timedelta(minutes=1)  # by which the time of a boot differs from that of another, and not by a clock alone
# Question -> the line for cmd.exe.
QUESTIONS: Mapping[str, str] = {
    "system": encoded(SYSTEM),
    "power": "powercfg /getactivescheme",
    "rights": "whoami /groups /fo csv /nh",
    "guard": encoded(GUARD),
    "defender": encoded(DEFENDER),
    "disks": encoded(DISKS),
    "drivers": encoded(DRIVERS),
    "rss": encoded(RSS),
    "mitigations": OVERRIDE,
    "tasks": task.all_tasks(),
}
# Asked if PowerShell does not say it. Where there is no wmic, there is a PowerShell.
WITHOUT_POWERSHELL: Mapping[str, str] = {
    "cpus": "echo %NUMBER_OF_PROCESSORS%",
    "memory": "wmic ComputerSystem get TotalPhysicalMemory",
}
# Schemes of power that do not slow CPUs down to save energy, by GUID: names are translated.
FAST_SCHEMES = ("8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c", "e9a42b02-d5df-448d-aa00-03f14749eb61")
_SCHEME = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*(?:\((.{0,100})\))?", re.IGNORECASE)
_LEVEL = re.compile(r"S-1-16-(\d{1,6})")
HIGH_LEVEL = 12288  # of integrity: the token of an administrator that is not filtered
_OURS = re.compile(r"vmtax-[0-9a-f]{16}")
_HVCI = "2"  # in SecurityServicesRunning
_RUNNING = 2  # VirtualizationBasedSecurityStatus
_IDS = {  # FullyQualifiedErrorId and other words that are the same in every language -> what is wrong, and what helps
    "InConstrainedLanguage": "its PowerShell is in constrained language mode, so facts are missing: measure without the"
    " policy (AppLocker, App Control) that sets it, or log in as a user whom it excludes",
    "PSSecurityException": "a policy refuses PowerShell's scripts: `Get-ExecutionPolicy -List` shows which",
    "CommandNotFoundException": "its PowerShell lacks a cmdlet, so facts are missing: a Windows Server Core or a policy"
    " may not have it",
}


class LineReader(Protocol):
    """A Windows to which a line for cmd.exe can be given."""

    def carry(self, line: str) -> WindowsOutcome:
        """Raises MachineLost."""
        ...


@dataclass(frozen=True, slots=True)
class WindowsDisk:
    """A physical disk, as Windows sees it."""

    name: str
    bus: str  # as Windows names it: SAS, NVMe, SATA, RAID, SCSI
    cache: bool | None  # whether its write cache is enabled; None: it does not say


@dataclass(frozen=True, slots=True)
class WindowsCard:
    """A network card, as Windows sees it."""

    name: str  # of its model
    rss: bool | None  # whether its receive-side scaling is enabled; None: it does not say
    queues: int | None  # for that


@dataclass(frozen=True, slots=True)
class WindowsFacts:
    """What a Windows says about itself; None: not known."""

    system: str | None = None  # with its edition
    build: int | None = None
    cpu: str | None = None
    cpus: int | None = None  # logical ones
    memory_bytes: int | None = None
    model: str | None = None  # of the machine; of a VM, its hypervisor's name for it
    is_vm: bool | None = None
    uuid: str | None = None  # of the machine, as its hypervisor gave it
    booted: str | None = None  # UTC, ISO 8601
    clock: str | None = None  # UTC, ISO 8601, when it was read
    language: str | None = None  # PowerShell's language mode
    scheme: str | None = None  # GUID of the power plan
    scheme_name: str | None = None
    administrator: bool | None = None  # whether the token of a login is an administrator's, unfiltered
    vbs: bool | None = None  # virtualization-based security runs
    hvci: bool | None = None  # memory integrity (core isolation) runs
    real_time: bool | None = None  # Defender's real-time protection
    disks: tuple[WindowsDisk, ...] = ()
    drivers: tuple[str, ...] = ()  # of virtio-win, with their versions
    cards: tuple[WindowsCard, ...] = ()
    unmitigated: bool | None = None  # mitigations of its CPUs' faults are switched off in its registry
    tasks: tuple[str, ...] = ()  # of runs of vmtax that are at work there, or were interrupted
    problems: tuple[str, ...] = ()  # why something is not known, one line each

    def clock_off(self, now: datetime) -> timedelta | None:
        """How far its clock is ahead. `now`: ours, UTC"""
        try:
            return datetime.fromisoformat(f"{self.clock or ''}+00:00") - now
        except ValueError:
            return None

    def to_json(self) -> Json:
        """For the record of a run: facts of any machine have these names as far as they apply."""
        return {
            "os": f"{self.system or 'Windows'}{f' (build {self.build})' if self.build else ''}",
            "cpu_model": self.cpu,
            "cpus_online": self.cpus,
            "memory_bytes": self.memory_bytes,
            "virtualized": self.is_vm,
            "boot_id": self.booted,
            "windows_power_plan": self.scheme_name or self.scheme,
            "windows_vbs": self.vbs,
            "windows_hvci": self.hvci,
            "windows_defender_real_time": self.real_time,
            "windows_disks": [f"{one.name} ({one.bus})" for one in self.disks],
            "windows_virtio_drivers": [*self.drivers],
            "windows_mitigations_off": self.unmitigated,
            "windows_rss": [f"{one.name}: {_queues_of(one)}" for one in self.cards],
        }


def read_windows(machine: LineReader) -> WindowsFacts:
    """Ask all QUESTIONS, and WITHOUT_POWERSHELL if need be. Raises MachineLost."""
    facts = parse_windows({name: machine.carry(line) for name, line in QUESTIONS.items()})
    if facts.cpus is not None and facts.memory_bytes is not None:
        return facts
    cpus, memory = (_last_number(machine.carry(line).stdout) for line in WITHOUT_POWERSHELL.values())
    return replace(facts, cpus=facts.cpus or cpus, memory_bytes=facts.memory_bytes or memory)


def parse_windows(answers: Mapping[str, WindowsOutcome]) -> WindowsFacts:
    """Pure. Answers to QUESTIONS; one that is missing is unknown."""
    text = {name: ended.stdout for name, ended in answers.items()}
    said = fields(text.get("system", ""), "=")
    guard, defender = fields(text.get("guard", ""), "="), fields(text.get("defender", ""), "=")
    scheme, level = _SCHEME.search(text.get("power", "")), _LEVEL.search(text.get("rights", ""))
    vbs = whole(guard.get("vbs"))
    return WindowsFacts(
        system=said.get("system") or None,
        build=whole(said.get("build")),
        cpu=said.get("cpu") or None,
        cpus=whole(said.get("cpus")),
        memory_bytes=whole(said.get("memory")),
        model=said.get("model") or None,
        is_vm=switch(said.get("hypervisor")),
        uuid=said.get("uuid", "").lower() or None,
        booted=said.get("booted") or None,
        clock=said.get("clock") or None,
        language=said.get("language") or None,
        scheme=scheme[1].lower() if scheme else None,
        scheme_name=scheme[2] if scheme else None,
        administrator=None if level is None else (whole(level[1]) or 0) >= HIGH_LEVEL,
        vbs=None if vbs is None else vbs == _RUNNING,
        hvci=None if vbs is None else _HVCI in guard.get("services", "").split(),
        real_time=switch(defender.get("real-time")),
        disks=tuple(_disks(text.get("disks", ""))),
        drivers=tuple(f"{name} {version}" for version, name in rows(text.get("drivers", ""), "driver", 2)),
        cards=tuple(
            WindowsCard(name, switch(enabled), whole(queues))
            for enabled, queues, name in rows(text.get("rss", ""), "rss", 3)
        ),
        unmitigated=_unmitigated(answers.get("mitigations")),
        tasks=tuple(name for name in text.get("tasks", "").split() if _OURS.fullmatch(name)),
        problems=tuple(dict.fromkeys(problems(answers))),
    )


def read_booted(machine: LineReader) -> str | None:
    """When it was booted, as in `WindowsFacts`; None: it does not say. Raises MachineLost."""
    return fields(machine.carry(encoded(BOOTED)).stdout, "=").get("booted") or None


def is_restarted(before: str | None, now: str | None) -> bool:
    """Whether two answers of `read_booted` are those of two boots, as far as is known."""
    try:
        return abs(datetime.fromisoformat(now or "") - datetime.fromisoformat(before or "")) > RESTARTED
    except (TypeError, ValueError):
        return False


def _last_number(text: str) -> int | None:
    return whole((text.split() or [""])[-1]) or None


def _unmitigated(answer: WindowsOutcome | None) -> bool | None:
    """By FeatureSettingsOverride, of which FeatureSettingsOverrideMask says what counts (Microsoft's KB4073119)."""
    if answer is None or answer.code != 0:
        return None
    values = [_bits(answer.stdout, name) for name in ("FeatureSettingsOverride", "FeatureSettingsOverrideMask")]
    return bool(values[0] & values[1] & SWITCHED_OFF)


def _bits(text: str, name: str) -> int:
    """Of SWITCHED_OFF, those that are set in a value of the registry; 0: there is no such value."""
    found = re.search(rf"\b{name}\s+REG_DWORD\s+0x[0-9a-f]{{0,7}}([0-9a-f])\b", text, re.IGNORECASE | re.ASCII)
    return SWITCHED_OFF & "0123456789abcdef".index(found[1].lower()) if found else 0


def _queues_of(card: WindowsCard) -> str:
    if not card.rss:
        return "it does not say" if card.rss is None else "off"
    return "on" if card.queues is None else count_of(card.queues, "queue")


def _disks(text: str) -> Iterator[WindowsDisk]:
    for bus, _, cache, name in rows(text, "disk", 4):
        yield WindowsDisk(name, bus, switch(cache))


def rows(text: str, name: str, columns: int) -> Iterator[list[str]]:
    """Lines NAME=A|B|C."""
    for line in text.splitlines():
        key, _, rest = line.partition("=")
        words = [word.strip() for word in rest.split("|", columns - 1)]
        if key.strip() == name and len(words) == columns:
            yield words


def switch(text: str | None) -> bool | None:
    """True and False, as PowerShell prints them."""
    return {"true": True, "false": False}.get((text or "").strip().lower())


def problems(answers: Mapping[str, WindowsOutcome], questions: Mapping[str, str] = QUESTIONS) -> Iterator[str]:
    """Why some are not answered, a line each."""
    for name, ended in answers.items():
        mode = fields(ended.stdout, "=").get("language")
        if mode and mode != "FullLanguage":
            yield _IDS["InConstrainedLanguage"]
        found = [words for known, words in _IDS.items() if known in ended.stderr]
        yield from found
        if not found and ended.code:
            program = questions.get(name, name).partition(" ")[0]
            yield f"{program} ended with exit code {ended.code} when asked about {name}"
        elif not found and ended.code == 0 and not ended.stdout.strip() and name in ("system", "power", "rights"):
            yield f"nothing was answered about {name}"
