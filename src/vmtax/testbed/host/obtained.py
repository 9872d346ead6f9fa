"""Check whether a guest got what its treatment asks for, because a host may silently grant something else. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vmtax.core.units import format_room
from vmtax.design.guest import GuestSettings, MemoryBacking

BACKING, MERGE, TOPOLOGY, PINNING, SIBLINGS, ISOLATION, POLLING, TIMER, HPET = (
    GuestSettings.factors()[name].name
    for name in ("backing", "merge", "topology", "pinned", "siblings", "isolated", "halt_polling", "timer", "hpet")
)
MOST = 0.9  # required share of the touched memory that is in huge pages
# Run in a guest: prints the CPUs of the first CPU's core, and of its socket.
SHAPE = (
    "grep",
    "-sH",
    "",
    *(f"/sys/devices/system/cpu/cpu0/topology/{name}" for name in ("core_cpus", "package_cpus")),
)

# Run in a guest: prints the clock source of its kernel.
CLOCK = ("cat", "/sys/devices/system/clocksource/clocksource0/current_clocksource")
# Run in a guest: prints all clock sources that its kernel has.
CLOCKS = ("cat", "/sys/devices/system/clocksource/clocksource0/available_clocksource")


def parse_shape(text: str) -> dict[str, float]:
    """The output of SHAPE as numbers: threads of a core, and CPUs of a socket."""
    masks = dict(line.rpartition("/")[2].split(":", 1) for line in text.splitlines() if ":" in line)
    names = {"core_cpus": "threads_per_core", "package_cpus": "cpus_per_socket"}
    try:
        return {names[name]: int(mask.replace(",", ""), 16).bit_count() for name, mask in masks.items()}
    except (KeyError, ValueError):
        return {}


def why_not(settings: GuestSettings, vcpus: int, found: Mapping[str, float], named: Collection[str]) -> str | None:
    """Which level of the factors `named` a guest with `vcpus` CPUs did not get, judging by its readings; None: it got
    all.

    found: `Guest.memory_readings` with the prefix `memory.`; with the prefix `cpu.` those of `parse_shape`,
    `pinning.readings`, `isolation.readings` and `polling.readings`
    """
    if PINNING in named and settings.pinned and (why := _why_not_pinned(vcpus, found)):
        return f"{PINNING}={settings.levels[PINNING]} was not obtained: {why}"
    if SIBLINGS in named and settings.pinned and (why := _why_not_siblings(settings.siblings, vcpus, found)):
        return f"{SIBLINGS}={settings.siblings} was not obtained: {why}"
    if ISOLATION in named and settings.isolated and (why := _why_not_isolated(vcpus, found)):
        return f"{ISOLATION}={settings.levels[ISOLATION]} was not obtained: {why}"
    polls, wanted_polls = found.get("cpu.halt_poll_ns"), settings.halt_polling
    if POLLING in named and wanted_polls is not None and polls != wanted_polls:
        return f"{POLLING}={settings.levels[POLLING]} was not obtained: the host's kvm.halt_poll_ns is {polls}"
    if BACKING in named and (why := _why_not_backing(settings.backing, found)):
        return f"{BACKING}={settings.backing} was not obtained: {why}"
    if MERGE in named and settings.merge != bool(found.get("memory.mergeable")):
        may = "may not" if settings.merge else "may"
        return f"{MERGE}={settings.levels[MERGE]} was not obtained: ksmd {may} merge its pages"
    if TOPOLOGY not in named:
        return None
    threads, together = found.get("cpu.threads_per_core"), found.get("cpu.cpus_per_socket")
    wanted = {"cores": (1, vcpus), "sockets": (1, 1), "threads": (2, vcpus)}[settings.topology]
    if (threads, together) == wanted:
        return None
    seen = f"the guest sees {threads} threads a core and {together} CPUs a socket"
    return f"{TOPOLOGY}={settings.topology} was not obtained: {seen}"


def why_no_clock(settings: GuestSettings, clock: str, named: Collection[str]) -> str | None:
    """Why a guest whose clock source is `clock` did not get its level of `cpu.timer`; None: it did, or none is asked
    for.
    """
    if TIMER not in named or settings.timer in ("auto", clock):
        return None
    return f"{TIMER}={settings.timer} was not obtained: the clock that the guest's kernel reads is {clock or 'unknown'}"


def why_no_hpet(settings: GuestSettings, clocks: str, named: Collection[str]) -> str | None:
    """Why a guest with these clock sources did not get its level of `guest.hpet`; None: it did, or any will do."""
    if HPET not in named or settings.hpet is None or settings.hpet == ("hpet" in clocks.split()):
        return None
    return f"{HPET}={settings.levels[HPET]} was not obtained: the guest's kernel has the clocks {clocks or '(unknown)'}"


def _why_not_pinned(vcpus: int, found: Mapping[str, float]) -> str | None:
    pinned, astray = found.get("cpu.pinned_cpus", 0), found.get("cpu.threads_astray", 0)
    if pinned == vcpus and not astray:
        return None
    return (
        f"{pinned:.0f} of {vcpus} CPUs are pinned, and {astray:.0f} threads of QEMU may run elsewhere than they should"
    )


def _why_not_siblings(wanted: str, vcpus: int, found: Mapping[str, float]) -> str | None:
    cores = {"apart": vcpus, "together": vcpus // 2}.get(wanted)
    used = found.get("cpu.pinned_cores", 0)
    return None if cores in (None, used) else f"{vcpus} CPUs are pinned to {used:.0f} cores of the host, not {cores}"


def _why_not_isolated(vcpus: int, found: Mapping[str, float]) -> str | None:
    isolated, strangers = found.get("cpu.isolated_cpus", 0), found.get("cpu.strangers", 0)
    if isolated == vcpus and not strangers:
        return None
    return f"{isolated:.0f} of {vcpus} CPUs are isolated, and {strangers:.0f} threads of other programs may run there"


def _why_not_backing(backing: MemoryBacking, found: Mapping[str, float]) -> str | None:
    """Judges by QEMU's mapping of the guest's memory and, with KVM, by the pages that KVM maps for the guest."""
    if "memory.page_bytes" not in found:
        return "QEMU's mapping of the guest's memory cannot be read in /proc"
    resident, huge = found["memory.resident_bytes"], found["memory.huge_bytes"]
    if bool(found["memory.shared"]) != backing.is_shared:
        return f"it is {'a file in memory' if found['memory.shared'] else 'anonymous memory'}"
    if backing.page_bytes:
        if found["memory.page_bytes"] != backing.page_bytes or not found["memory.hugetlb_bytes"]:
            return f"its pages are of {found['memory.page_bytes'] / 1024:.0f} KiB"
        kvm = "memory.kvm_pages_2m" if backing is MemoryBacking.HUGE else "memory.kvm_pages_1g"
        return "KVM maps none of it in such pages" if found.get(kvm) == 0 else None
    if backing is MemoryBacking.THP and huge < MOST * resident:
        return f"{format_room(huge)} of the {format_room(resident)} that the guest has touched are in huge pages"
    if backing is MemoryBacking.SMALL and huge:
        return f"{format_room(huge)} of it are in huge pages"
    return None
