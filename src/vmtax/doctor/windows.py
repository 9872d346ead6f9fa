"""What `vmtax doctor ssh://…` says of a Windows VM: facts become checks. Pure, apart from `examine_windows`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from vmtax.core.checks import VM, Check, Diagnosis, Status
from vmtax.core.machines import MachineError
from vmtax.core.units import count_of, format_room
from vmtax.machine.local import LocalMachine
from vmtax.machine.login_shell import NEVER_RUN
from vmtax.machine.ssh import ssh_route
from vmtax.machine.windows.machine import WindowsMachine, connect_guest
from vmtax.machine.windows.task import running
from vmtax.meter.windows import FAST_SCHEMES, WindowsFacts, read_windows

CLOCK_OFF = timedelta(minutes=1)  # from which on a clock is said to be wrong
_POWERSHELL = "PowerShell there: "


def open_windows(local: LocalMachine, name: str) -> WindowsMachine:
    """The Windows at `ssh://[user@]host[:port]`. Raises MachineError, also if it is none."""
    machine = connect_guest(local, ssh_route(name), "windows")
    if isinstance(machine, WindowsMachine):
        return machine
    machine.close()
    raise MachineError(f"{name}: is no Windows: `vmtax doctor --host {name}` examines a Linux")


@contextlib.contextmanager
def opened_windows(name: str) -> Iterator[WindowsMachine]:
    """As `open_windows`, until the end of the block."""
    with contextlib.closing(LocalMachine("local")) as local, contextlib.closing(open_windows(local, name)) as machine:
        yield machine


def examine_windows(name: str) -> Diagnosis:
    """Read it; nothing is changed or written there. Raises MachineError."""
    with opened_windows(name) as machine:
        return diagnose_windows(name, machine.shell, read_windows(machine), datetime.now(UTC))


def diagnose_windows(
    name: str, shell: str, facts: WindowsFacts, now: datetime, tried: tuple[Check, ...] = ()
) -> Diagnosis:
    """Draw conclusions. `name`: as the user names it; `now`: when the facts were read, UTC."""
    checks = (*_measurable(name, facts), *needs(shell, facts, now), *disturbances(facts), *tried)
    return Diagnosis(name, about(facts), checks)


def about(facts: WindowsFacts) -> str:
    """Processor, memory and system, in one line."""
    words = (
        facts.cpu or "unknown CPU",
        count_of(facts.cpus, "CPU") if facts.cpus else "",
        format_room(facts.memory_bytes) if facts.memory_bytes else "",
        facts.system or "Windows",
        f"build {facts.build}" if facts.build else "",
    )
    return ", ".join(filter(None, words))


def verdict(diagnosis: Diagnosis) -> str:
    """The answer in a sentence or two."""
    if diagnosis.bad:
        return "This Windows cannot be measured: see the arrows above."
    return (
        f"Disk and CPU of this Windows can probably be measured: vmtax run quick --guest {diagnosis.host}. vmtax was"
        f" {NEVER_RUN}: please send what `vmtax doctor {diagnosis.host} --try` writes."
    )


def _measurable(name: str, facts: WindowsFacts) -> Iterator[Check]:
    if facts.is_vm is False:
        text = "no hypervisor runs it, so it shows no cost of one"
        yield Check("measurable", VM, "missing", text, "vmtax run --guest ssh://user@a-windows-vm")
    elif facts.administrator is False:
        text = "this login's token is not an administrator's, or is filtered by UAC: no task can be scheduled that"
        remedy = (
            f"log in as Administrator: vmtax doctor ssh://Administrator@{name.rpartition('@')[2].rpartition('//')[2]}"
        )
        yield Check("measurable", VM, "missing", f"{text} removes what is ours if we never come back", remedy)
    else:
        yield Check("measurable", VM, "ok", f"fio, chess and network (transfer), as it runs; {NEVER_RUN}")
    text = "kernel builds, PostgreSQL and boots: vmtax has no programs for them on Windows"
    yield Check("measurable", "the rest", "unknown", text)


def needs(shell: str, facts: WindowsFacts, now: datetime) -> Iterator[Check]:
    """What a login there has and lacks."""
    yield Check("need", "shell", "ok", f"a login's shell is {shell}")
    yield _need("administrator", facts.administrator, "the token of this login is an administrator's, not filtered")
    for number, problem in enumerate(facts.problems, 1):
        yield Check("need", f"answers {number}" if number > 1 else "answers", "unknown", problem)
    for number, task in enumerate(facts.tasks, 1):
        text = "of a run that is at work there, or was interrupted: then its task removes it"
        sooner = f"if no run is at work there: {shlex.join(running(task))}"
        yield Check("need", f"left {number}" if number > 1 else "left", "disturbs", f"{task}, {text}", sooner)
    off = facts.clock_off(now)
    if off is not None and abs(off) > CLOCK_OFF:
        seconds = abs(off.total_seconds())
        size = f"{seconds / 3600:.1g} h" if seconds >= 1800 else f"{seconds / 60:.0f} min"
        text = f"its clock is {size} {'ahead' if off > timedelta() else 'behind'} of this machine's in UTC"
        cause = "; does its hardware clock have local time? libvirt: <clock offset='localtime'/>"
        yield Check("need", "clock", "disturbs", text + cause, f"{_POWERSHELL}w32tm /resync")
    elif off is not None:
        yield Check("need", "clock", "ok", "right")


def _need(name: str, value: bool | None, text: str) -> Check:
    status: Status = "unknown" if value is None else "ok" if value else "missing"
    return Check("need", name, status, text if value else "it does not say" if value is None else f"not so: {text}")


def disturbances(facts: WindowsFacts) -> Iterator[Check]:
    """What changes figures, beside each what ends it."""
    if facts.scheme is None:
        yield _disturbance("power plan", None)
    elif facts.scheme in FAST_SCHEMES:
        yield Check("disturbance", "power plan", "ok", facts.scheme_name or facts.scheme)
    else:
        text = f"{facts.scheme_name or facts.scheme}: idle CPUs are slowed down and parked"
        yield Check("disturbance", "power plan", "disturbs", text, "there: powercfg /setactive SCHEME_MIN")
    yield _disturbance(
        "Defender",
        facts.real_time,
        "its real-time protection reads what is opened and written, also by fio",
        f"{_POWERSHELL}Set-MpPreference -DisableRealtimeMonitoring 1",
        "no real-time protection",
    )
    what = "with memory integrity (HVCI)" if facts.hvci else "without memory integrity"
    yield _disturbance(
        "VBS",
        facts.vbs,
        f"virtualization-based security runs, {what}: this Windows runs in a VM of its own hypervisor",
        "there: Settings, Core isolation, Memory integrity off; then a reboot",
        "virtualization-based security does not run",
    )
    for number, disk in enumerate(facts.disks, 1):
        cache = {True: "write cache on", False: "write cache off", None: "write cache not known"}[disk.cache]
        status: Status = "disturbs" if disk.bus in ("ATA", "SATA") else "ok"
        slow = ": an emulated bus is slow in a VM; virtio-scsi or virtio-blk is not" if status == "disturbs" else ""
        yield Check("disturbance", f"disk {number}", status, f"{disk.name}, {disk.bus}, {cache}{slow}")
    if facts.drivers:
        yield Check("disturbance", "virtio drivers", "ok", "; ".join(facts.drivers))
    for number, card in enumerate(facts.cards, 1):
        if card.rss is False:
            text = f"{card.name}, RSS off: one CPU takes all that it receives"
            yield Check("disturbance", f"card {number}", "disturbs", text, f"{_POWERSHELL}Enable-NetAdapterRss -Name *")
        else:
            text = "RSS on" if card.rss else "RSS not known"
            queues = f", {count_of(card.queues, 'queue')}" if card.rss and card.queues is not None else ""
            yield Check("disturbance", f"card {number}", "ok", f"{card.name}, {text}{queues}")
    if facts.unmitigated is not None:
        text = "switched off in its registry (FeatureSettingsOverride)" if facts.unmitigated else "as Windows has them"
        yield Check("disturbance", "mitigations", "ok", text)


def _disturbance(name: str, value: bool | None, text: str = "", remedy: str = "", fine: str = "") -> Check:
    if value is None:
        return Check("disturbance", name, "unknown", "it does not say")
    return Check("disturbance", name, "disturbs", text, remedy) if value else Check("disturbance", name, "ok", fine)
