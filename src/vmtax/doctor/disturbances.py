"""Judge what would disturb the results, or change their meaning. Pure."""

from __future__ import annotations

import re

from vmtax.core.checks import Check, Status
from vmtax.core.packages import PACKAGES
from vmtax.core.records import Disturbance
from vmtax.core.units import cpu_list
from vmtax.doctor.needs import Wanted, gib, install
from vmtax.doctor.readings import CPU, HostReadings
from vmtax.meter.text import fields, kibibytes, whole

# Shares of all CPUs' time, or of one second, from which on something else is considered to be active.
BUSY = 0.05
WAITING = 0.05
STOLEN = 0.01
ELSEWHERE = "vmtax run --host ssh://root@A-PHYSICAL-HOST"
WHO = "top   # shows the process: end it, or wait"
THP = {
    "always": "all memory gets huge pages where it can, a guest's and a program's alike",
    "madvise": "a guest's memory gets huge pages, because QEMU asks for them; programs on the host do not",
    "never": "neither guests nor programs get huge pages",
}


def disturbances(readings: HostReadings, wanted: Wanted) -> tuple[Check, ...]:
    """One check for each known disturbance, including those that are absent."""
    return (
        _bare_metal(readings),
        *_load(readings),
        _vmms(readings),
        _governor(readings),
        _turbo(readings),
        _throttling(readings),
        _smt(readings, wanted),
        _alike(readings, wanted),
        _isolated(readings),
        _quota(readings),
        _swap(readings),
        _thp(readings),
        _microcode(readings),
    )


def _check(name: str, status: Status, text: str, remedy: str = "") -> Check:
    return Check("disturbance", name, status, text, remedy)


def _bare_metal(readings: HostReadings) -> Check:
    virtualized, hypervisor = readings.facts["virtualized"], readings.facts["hypervisor"]
    if readings.facts["emulated_cpu"]:
        text = "this host is itself emulated (QEMU's TCG): its figures are marked so, and say nothing about hardware"
        return _check("hypervisor", "disturbs", text, ELSEWHERE)
    if virtualized is None:
        return _check("hypervisor", "unknown", "the CPU's flags cannot be read")
    if not virtualized:
        return _check("hypervisor", "ok", "none below this host")
    text = f"this host is itself a VM{f' ({hypervisor})' if hypervisor else ''}: its VM is already a nested one"
    return _check("hypervisor", "disturbs", f"{text}, and what is measured is what nesting costs", ELSEWHERE)


def _load(readings: HostReadings) -> tuple[Check, ...]:
    load = readings.load
    if load is None or load.during.wall_seconds <= 0 or load.cpus <= 0:
        return tuple(
            _check(name, "unknown", "/proc/stat cannot be read") for name in ("neighbours", "pressure", "steal")
        )
    during, all_cpus = load.during, load.cpus * load.during.wall_seconds
    # Stolen time is included in busy, and has its own check.
    busy = max(0.0, during.busy_seconds - during.steal_seconds) / all_cpus
    text = f"{busy:.0%} of {load.cpus} CPUs busy during one second"
    neighbours = _share("neighbours", busy, BUSY, text, WHO)
    stolen = during.steal_seconds / all_cpus
    text = f"{stolen:.0%} of the CPU time went to other guests of the hypervisor below"
    steal = _share("steal", stolen, STOLEN, text, "ask for dedicated CPUs where this VM runs")
    return neighbours, _pressure(during), steal


def _share(name: str, share: float, limit: float, text: str, remedy: str) -> Check:
    return _check(name, "disturbs", text, remedy) if share > limit else _check(name, "ok", text)


def _pressure(during: Disturbance) -> Check:
    waits = {
        "a CPU": during.cpu_pressure_seconds,
        "a disk": during.io_pressure_seconds,
        "memory": during.memory_pressure_seconds,
    }
    shares = {what: seconds / during.wall_seconds for what, seconds in waits.items() if seconds is not None}
    if not shares:
        cure = "boot with psi=1 on the kernel's command line"
        return _check("pressure", "unknown", "this kernel does not count waiting tasks (PSI)", cure)
    text = "tasks waited " + ", ".join(f"{share:.0%} of the time for {what}" for what, share in shares.items())
    return _share("pressure", max(shares.values()), WAITING, text, WHO)


def _vmms(readings: HostReadings) -> Check:
    running = readings.vmms
    if running is None:
        return _check("other VMs", "unknown", "/proc cannot be searched")
    if not running:
        return _check("other VMs", "ok", "none seen")
    named = ", ".join(running[:4]) + (f" and {len(running) - 4} more" if len(running) > 4 else "")
    return _check(
        "other VMs", "disturbs", f"{len(running)} run: {named}", "shut them down or pause them while you measure"
    )


def _governor(readings: HostReadings) -> Check:
    governor = readings.facts["governor"]
    if governor is None:
        return _check("governor", "unknown", "the kernel shows no frequency scaling")
    if governor == "performance":
        return _check("governor", "ok", governor)
    cure = f"echo performance | tee {CPU}/cpufreq/policy*/scaling_governor"
    return _check("governor", "disturbs", f"{governor}: the clock depends on what ran just before", cure)


def _turbo(readings: HostReadings) -> Check:
    turbo = readings.facts["turbo"]
    if turbo is None:
        return _check("turbo", "unknown", "the kernel shows no switch for it")
    if not turbo:
        return _check("turbo", "ok", "off")
    return _check(
        "turbo", "disturbs", "on: the clock depends on heat and on how many CPUs are busy", _no_turbo(readings)
    )


def _no_turbo(readings: HostReadings) -> str:
    if str(readings.facts["frequency_driver"]).startswith("intel"):
        return f"echo 1 > {CPU}/intel_pstate/no_turbo"
    return f"echo 0 > {CPU}/cpufreq/boost"


def _throttling(readings: HostReadings) -> Check:
    name = "heat"
    texts = [text for path, text in readings.files.items() if path.endswith("_throttle_count")]
    counts = [count for text in texts if (count := whole(text)) is not None]
    if not counts:
        return _check(name, "unknown", "the kernel does not count thermal throttling here")
    if max(counts) == 0:
        return _check(name, "ok", "never throttled since boot")
    text = f"throttled {max(counts)} times since boot; a trial says so where it happens again"
    cure = "better cooling" + (f"; or:\n{_no_turbo(readings)}" if readings.facts["turbo"] else "")
    return _check(name, "disturbs", text, cure)


def _smt(readings: HostReadings, wanted: Wanted) -> Check:
    active, chosen = readings.facts["smt_active"], readings.topology.equal(wanted.vcpus)
    if chosen.shared:
        text = f"on, and the measured CPUs {chosen.text} are siblings: they share one core"
        return _check("SMT", "disturbs", text, f"echo off > {CPU}/smt/control")
    if active is None:
        return _check("SMT", "unknown", "the kernel does not show whether it is on")
    if active:
        return _check("SMT", "ok", "on; the measured CPUs have cores of their own, a neighbour may share them")
    return _check("SMT", "ok", "off")


def _alike(readings: HostReadings, wanted: Wanted) -> Check:
    """Whether all layers of plan quick get CPUs that are alike."""
    chosen = readings.topology.equal(wanted.vcpus)
    if not chosen.cpus:
        return _check("equal CPUs", "unknown", "which may be used cannot be read")
    if chosen.why:
        return _check("equal CPUs", "disturbs", chosen.said, "lower guest.vcpus in a plan of your own")
    return _check("equal CPUs", "ok", chosen.said or "all are alike")


def _isolated(readings: HostReadings) -> Check:
    """CPUs over which the kernel spreads no processes since its boot."""
    if not readings.topology.cpus:
        return _check("isolated CPUs", "unknown", "which may be used cannot be read")
    cpus = cpu_list(readings.topology.isolated)
    text = f"CPUs {cpus}, by isolcpus=: no layer gets them, and no guest is pinned to them, while there are others"
    return _check("isolated CPUs", "ok", text if cpus else "none")


def _quota(readings: HostReadings) -> Check:
    limit = readings.facts["cgroup_cpu_limit"]
    if "/proc/self/cgroup" not in readings.files:
        return _check("CPU quota", "unknown", "the kernel does not show our control group")
    if limit is None:
        return _check("CPU quota", "ok", "none")
    cure = "lift the limit of that user or container there"
    if readings.is_local:
        cure = "systemd-run --scope --slice=-.slice vmtax run   # in a container: raise its limit"
    text = f"{limit:g} CPUs, set by a control group: a process that has used them up is stopped for a while"
    return _check("CPU quota", "disturbs", text, cure)


def _swap(readings: HostReadings) -> Check:
    memory = fields(readings.files.get("/proc/meminfo", ""))
    total, free, available = (kibibytes(memory.get(name)) for name in ("SwapTotal", "SwapFree", "MemAvailable"))
    if total is None or free is None:
        return _check("swap", "unknown", "/proc/meminfo cannot be read")
    used = total - free
    if used <= 0:
        return _check("swap", "ok", "none in use")
    fits = available is not None and available > 1.5 * used
    cure = (
        "swapoff -a && swapon -a   # brings it back into memory" if fits else "end what fills the memory: top -o %MEM"
    )
    return _check("swap", "disturbs", f"{gib(used)} in use: reading it back disturbs disk and memory", cure)


def _thp(readings: HostReadings) -> Check:
    setting = readings.facts["thp_enabled"]
    if setting is None:
        return _check("huge pages", "unknown", "the kernel shows no transparent_hugepage setting")
    return _check("huge pages", "ok", f"{setting}: {THP.get(setting, 'as the kernel says')}")


def _microcode(readings: HostReadings) -> Check:
    """In the kernel's own words: it knows which microcode a mitigation needs, and since 6.17 which is outdated."""
    mitigations = readings.facts["mitigations"]
    version = readings.facts["microcode"] or "unknown version"
    if mitigations is None:
        return _check("microcode", "unknown", f"{version}; the kernel does not judge it")
    complaints = [
        f"{name}: {text}"
        for name, text in mitigations.items()
        if text.startswith("Vulnerable") and (name == "old_microcode" or re.search("microcode", text, re.IGNORECASE))
    ]
    if not complaints:
        judged = mitigations.get("old_microcode")
        words = f"the kernel on its age: {judged}" if judged else "the kernel complains of nothing"
        return _check("microcode", "ok", f"{version}; {words}")
    vendor = str(readings.facts["cpu_vendor"])
    cure = f"{install(readings, vendor)} && reboot" if vendor in PACKAGES else "install the newest microcode and reboot"
    if readings.facts["virtualized"]:
        cure = "newer microcode on the host of this VM"
    text = f"{version}; the kernel says {'; '.join(complaints)}. Mitigations cost differently with the right one"
    return _check("microcode", "disturbs", text, cure)
