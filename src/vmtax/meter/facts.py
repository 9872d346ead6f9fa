"""What a machine is: the facts that are stored with every result. An unreadable fact is None, never an error.

Reading and parsing are separate: `read_facts`, `disk_facts` and `qemu_facts` run commands, every `parse_*` is pure.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from vmtax.core.records import Json
from vmtax.machine import Reader
from vmtax.machine.answer import boot_id_of
from vmtax.meter import below
from vmtax.meter.below import CLOCK, DMI
from vmtax.meter.disk import disk_facts
from vmtax.meter.text import (
    GREP,
    Files,
    chosen,
    fields,
    hertz,
    joined,
    kibibytes,
    named,
    number,
    parse_files,
    switch,
    whole,
)

__all__ = ["differences", "disk_facts", "parse_qemu_version", "qemu_facts", "read_facts"]

CPU = "/sys/devices/system/cpu"
CPUFREQ = f"{CPU}/cpufreq"
CGROUP = "/sys/fs/cgroup"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
THP = "/sys/kernel/mm/transparent_hugepage"
HUGE_PAGES = "/sys/kernel/mm/hugepages"
MACHINE_ID_KEY = b"vmtax machine 1"

FILES = (
    *below.FILES,
    "/proc/cmdline",
    "/proc/meminfo",
    "/proc/pressure/cpu",
    "/proc/self/cgroup",
    "/proc/self/status",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/version",
    "/etc/machine-id",
    "/etc/os-release",
    f"{CPU}/smt",
    f"{CPU}/vulnerabilities",
    f"{CPU}/intel_pstate/no_turbo",
    "/sys/devices/system/node/online",
    f"{THP}/enabled",
    f"{THP}/defrag",
    HUGE_PAGES,
    "/sys/module/kvm_amd/parameters/nested",
    "/sys/module/kvm_intel/parameters/nested",
    f"{CLOCK}/current_clocksource",
    # The quotas of the top group, which exist in a container; a simple guest has no other group.
    f"{CGROUP}/cpu.max",
    f"{CGROUP}/cpu/cpu.cfs_quota_us",
    f"{CGROUP}/cpu/cpu.cfs_period_us",
)

# Prints which of these exist, and whether we may write to /dev/kvm; opening it would prove nothing (DESIGN.md).
FIND = (
    *("find", "/dev", "/sys/module", CPUFREQ, "-maxdepth", "1"),
    *("(", "-name", "kvm*", "-o", "-name", "policy*", ")"),
    *("(", "-writable", "-printf", "w %p\\n", "-o", "-printf", "- %p\\n", ")"),
)

# Listed by name, because reading scaling_cur_freq and similar files takes 20 ms for each CPU.
WANTED = (
    *("boost", "cpuinfo_max_freq", "scaling_driver", "scaling_governor", "scaling_max_freq"),
    *("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"),
)
INCLUDES = tuple(f"--include={name}" for name in WANTED)


def read_facts(machine: Reader) -> Json:
    """Facts of one machine, by at most five commands. None: it cannot be read here.

    From /proc/cpuinfo:
      cpu_model, cpu_vendor, microcode (text)
      sockets, cores (of all sockets), threads_per_core, cpus_online (counts, online CPUs only)
      frequency_hz: mean over the CPUs at this moment
      virtualization_flag: "svm", "vmx" or None
    From /sys/devices/system/cpu:
      smt_active (bool), smt_control ("on", "off", "notsupported", ...)      smt/*
      mitigations: mapping of vulnerability to the kernel's own words        vulnerabilities/*
      governor, frequency_driver: text, several values joined by ", "        cpufreq/policy*/scaling_*
      max_frequency_hz: what the CPU can do                                  cpufreq/policy*/cpuinfo_max_freq
      frequency_limit_hz: what it is allowed to do                           cpufreq/policy*/scaling_max_freq
      turbo: bool                                                            intel_pstate/no_turbo, cpufreq/**/boost
    numa_nodes: count                                            /sys/devices/system/node/online
    hostname: text, as the machine calls itself                  /proc/sys/kernel/hostname
    machine_id: a digest that tells it from all others           /etc/machine-id
    kernel_release, kernel_version, boot_id: text                /proc/sys/kernel/{osrelease,version,random/boot_id}
    kernel_command_line: text                                    /proc/cmdline
    os: text                                                     /etc/os-release PRETTY_NAME
    memory_bytes, swap_bytes: totals                             /proc/meminfo
    thp_enabled, thp_defrag: the chosen word                     /sys/kernel/mm/transparent_hugepage/*
    huge_pages: list of {size_bytes, total, free} (pages)        /sys/kernel/mm/hugepages/*
    kvm_modules: list of names; built in ones are in it          /sys/module/kvm*
    kvm_nested: bool                                             /sys/module/kvm_{amd,intel}/parameters/nested
    kvm_device, kvm_device_writable: bool                        /dev/kvm, by its entry; it is not opened
    virtualized, hypervisor, emulated_cpu: what it itself runs on                                        see below.py
    dmi_vendor, dmi_product: text                                /sys/class/dmi/id/{sys_vendor,product_name}
    clocksource: text                                            /sys/devices/system/clocksource/clocksource0
    pressure: bool, PSI can be read                              /proc/pressure/cpu
    cgroup_cpu_limit: CPUs, the tightest quota above us          cpu.max or cpu.cfs_quota_us below /sys/fs/cgroup
    cpus_allowed: list of CPUs as "0-3,8"                        /proc/self/status Cpus_allowed_list
    """
    files = parse_files(machine.try_run(*GREP, "", *FILES).stdout)
    found = machine.try_run(*FIND).stdout
    more = [CPUFREQ] if f"{CPUFREQ}/" in found else []
    more += quota_files(files.get("/proc/self/cgroup", ""))
    if more:
        files |= parse_files(machine.try_run(*GREP, *INCLUDES, "", *more).stdout)
    return parse_facts(files, found) | below.read_below(machine, files)


def quota_files(membership: str) -> list[str]:
    """The files that may hold a CPU quota of our group and its ancestors, for the text of /proc/self/cgroup.

    Without those of the top group, which are in FILES.
    """
    files: list[str] = []
    for line in membership.splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        below = [path for path in (PurePosixPath(group), *PurePosixPath(group).parents) if path.name]
        if not group.startswith("/") or ".." in PurePosixPath(group).parts:
            continue
        if controllers == "":
            files += [f"{CGROUP}{path}/cpu.max" for path in below]
        elif "cpu" in controllers.split(","):
            files += [f"{CGROUP}/cpu{path}/cpu.cfs_{part}_us" for path in below for part in ("quota", "period")]
    return files


def parse_facts(files: Files, found: str) -> Json:
    """Facts from files and from FIND's output; every key is present, whatever is missing."""
    return {
        **parse_cpuinfo(files.get("/proc/cpuinfo", "")),
        **_frequency(files),
        **_kernel(files),
        **_memory(files),
        **_kvm(files, found),
        **below.parse_below(files),
        "dmi_vendor": files.get(f"{DMI}/sys_vendor"),
        "dmi_product": files.get(f"{DMI}/product_name"),
        "clocksource": files.get(f"{CLOCK}/current_clocksource"),
        "smt_active": switch(files.get(f"{CPU}/smt/active")),
        "smt_control": files.get(f"{CPU}/smt/control"),
        "numa_nodes": count_list(files.get("/sys/devices/system/node/online", "")),
        "cgroup_cpu_limit": cpu_limit(files),
        "cpus_allowed": fields(files.get("/proc/self/status", "")).get("Cpus_allowed_list"),
    }


def parse_cpuinfo(text: str) -> Json:
    """Model, topology, frequency and flags from /proc/cpuinfo."""
    cpus = [block for block in (fields(part) for part in re.split(r"\n\s*\n", text)) if "processor" in block]
    first = cpus[0] if cpus else {}
    cores = [(cpu.get("physical id"), cpu.get("core id")) for cpu in cpus if cpu.get("core id") is not None]
    megahertz = [value for cpu in cpus if (value := number(cpu.get("cpu MHz"))) is not None]
    flags = first.get("flags", "").split()
    return {
        "cpu_model": first.get("model name"),
        "cpu_vendor": first.get("vendor_id"),
        "microcode": joined([version for cpu in cpus if (version := cpu.get("microcode"))]),
        "sockets": len({socket for socket, _ in cores}) or None,
        "cores": len(set(cores)) or None,
        "threads_per_core": max((cores.count(core) for core in set(cores)), default=None),
        "cpus_online": len(cpus) or None,
        "frequency_hz": sum(megahertz) / len(megahertz) * 1e6 if megahertz else None,
        "virtualization_flag": next((flag for flag in ("svm", "vmx") if flag in flags), None),
    }


def count_list(text: str) -> int | None:
    """The number of CPUs in the kernel's list notation: "0-3,8" is 5."""
    total = 0
    for part in text.split(","):
        matched = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        if not matched:
            return None
        total += int(matched[2] or matched[1]) - int(matched[1]) + 1
    return total


def cpu_limit(files: Files) -> float | None:
    """The tightest CPU quota among the groups that were read, in CPUs; None: no quota."""
    limits = []
    for name, text in files.items():
        if name.endswith("/cpu.max"):
            quota, period = [*text.split(), "", ""][:2]
        elif name.endswith("/cpu.cfs_quota_us"):
            quota, period = text, files.get(name.replace("cfs_quota", "cfs_period"), "")
        else:
            continue
        used, of = number(quota), number(period)
        if used is not None and of is not None and used > 0 and of > 0:
            limits.append(used / of)
    return min(limits, default=None)


def _frequency(files: Files) -> Json:
    no_turbo = switch(files.get(f"{CPU}/intel_pstate/no_turbo"))
    boosts = [switch(text) for text in named(files, "boost")]
    return {
        "governor": joined(named(files, "scaling_governor")),
        "frequency_driver": joined(named(files, "scaling_driver")),
        "max_frequency_hz": _highest(named(files, "cpuinfo_max_freq")),
        "frequency_limit_hz": _highest(named(files, "scaling_max_freq")),
        "turbo": not no_turbo if no_turbo is not None else all(boosts) if boosts else None,
    }


def _highest(kilohertz: Iterable[str]) -> int | None:
    return max((value for text in kilohertz if (value := hertz(text))), default=None)


def _kernel(files: Files) -> Json:
    name = fields(files.get("/etc/os-release", ""), "=").get("PRETTY_NAME")
    vulnerabilities = f"{CPU}/vulnerabilities/"
    return {
        "hostname": files.get("/proc/sys/kernel/hostname"),
        "machine_id": machine_id(files.get("/etc/machine-id", "")),
        "kernel_release": files.get("/proc/sys/kernel/osrelease"),
        "kernel_version": files.get("/proc/sys/kernel/version"),
        "kernel_command_line": files.get("/proc/cmdline"),
        "boot_id": files.get("/proc/sys/kernel/random/boot_id"),
        "os": name.strip("\"'") if name else None,
        "mitigations": {
            path.removeprefix(vulnerabilities): text
            for path, text in sorted(files.items())
            if path.startswith(vulnerabilities)
        }
        or None,
        "pressure": "/proc/pressure/cpu" in files,
    }


def machine_id(text: str) -> str | None:
    """A digest of the id that an installation has, 32 digits; None: it has none yet.

    machine-id(5) asks programs to hash it with a key of their own, because whoever knows it could pass for the machine.
    """
    if not re.fullmatch(r"[0-9a-f]{32}\n?", text, re.ASCII) or not text.strip("0\n"):
        return None
    return hmac.new(text.strip().encode(), MACHINE_ID_KEY, "sha256").hexdigest()[:32]


def _memory(files: Files) -> Json:
    meminfo = files.get("/proc/meminfo", "")
    return {
        "memory_bytes": kibibytes(fields(meminfo).get("MemTotal")),
        "swap_bytes": kibibytes(fields(meminfo).get("SwapTotal")),
        "thp_enabled": chosen(files.get(f"{THP}/enabled")),
        "thp_defrag": chosen(files.get(f"{THP}/defrag")),
        "huge_pages": _huge_pages(files),
    }


def _huge_pages(files: Files) -> list[Json] | None:
    pools = []
    for path, text in files.items():
        matched = re.fullmatch(rf"({HUGE_PAGES}/hugepages-(\d{{1,12}})kB)/nr_hugepages", path, re.ASCII)
        if matched:
            free = whole(files.get(f"{matched[1]}/free_hugepages"))
            pools.append({"size_bytes": int(matched[2]) * 1024, "total": whole(text), "free": free})
    return sorted(pools, key=lambda pool: pool["size_bytes"] or 0) or None


def _kvm(files: Files, found: str) -> Json:
    entries = [line.partition(" ") for line in found.splitlines()]
    writable = {path: flag == "w" for flag, _, path in entries}
    nested = (files.get(f"/sys/module/{module}/parameters/nested") for module in ("kvm_amd", "kvm_intel"))
    return {
        "kvm_modules": sorted(path.rpartition("/")[2] for path in writable if path.startswith("/sys/module/")),
        "kvm_nested": next((switch(text) for text in nested if text), None),
        "kvm_device": "/dev/kvm" in writable,
        "kvm_device_writable": writable.get("/dev/kvm", False),
    }


def present_boot(machine: Reader) -> str:
    """What tells this boot of its kernel from all others. Raises MachineError."""
    return boot_id_of(machine, BOOT_ID, machine.try_run("cat", BOOT_ID).stdout)


def read_boot(machine: Reader) -> Json:
    """How a machine is booted, with the keys of `read_facts`: boot_id, kernel_command_line."""
    names = {"boot_id": BOOT_ID, "kernel_command_line": "/proc/cmdline"}
    return {name: machine.try_run("cat", path).stdout.strip() for name, path in names.items()}


def qemu_facts(machine: Reader, binary: str = "qemu-system-x86_64") -> Json:
    """Facts of the QEMU on `machine`, by one command; all but the first are None if it cannot be run.

    binary: as given; version: "7.2.22"; version_numbers: [7, 2, 22]
    text: its first line, which also has the version of the package
    """
    outcome = machine.try_run(binary, "--version")
    text = outcome.stdout.partition("\n")[0].strip() if outcome.ok else ""
    numbers = parse_qemu_version(text)
    return {
        "binary": binary,
        "version": ".".join(map(str, numbers)) if numbers else None,
        "version_numbers": list(numbers) if numbers else None,
        "text": text or None,
    }


def parse_qemu_version(text: str) -> tuple[int, ...] | None:
    """(7, 2, 22) for "QEMU emulator version 7.2.22 (Debian ...)"."""
    matched = re.search(r"version (\d{1,4}(?:\.\d{1,4}){1,3})", text, re.ASCII)
    return tuple(map(int, matched[1].split("."))) if matched else None


def differences(facts_by_path: Mapping[str, Json]) -> list[str]:
    """One line for the kernels and one for the QEMUs if not all machines have the same.

    Expects `read_facts` for each path, with `qemu_facts` under the key "qemu" for a machine that runs a QEMU.
    """
    kernels = {path: _kernel_name(facts) for path, facts in facts_by_path.items()}
    qemus = {path: (facts.get("qemu") or {}).get("text") for path, facts in facts_by_path.items()}
    lines = [_difference("kernels", kernels), _difference("QEMUs", qemus)]
    return [line for line in lines if line]


def _kernel_name(facts: Json) -> str | None:
    # Debian keeps the release across security updates, so only the version distinguishes kernels.
    words = [facts.get("kernel_release"), facts.get("kernel_version")]
    return " ".join(word for word in words if word) or None


def _difference(what: str, by_path: Mapping[str, str | None]) -> str | None:
    paths: dict[str, list[str]] = {}
    for path, name in by_path.items():
        if name:
            paths.setdefault(name, []).append(path)
    if len(paths) < 2:
        return None
    sides = "; ".join(f"{', '.join(where)}: {name}" for name, where in paths.items())
    return f"{what} differ between layers, so a part of any difference may be theirs: {sides}"
