"""Find out which CPUs a host offers, and which CPU and clock levels its QEMU can give to guests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

from vmtax.core.records import Treatment
from vmtax.core.units import cpu_numbers
from vmtax.design.guest import DEFAULT, GuestSettings
from vmtax.design.migration import MODE, MigrationSettings, Mode
from vmtax.hypervisor import Qemu
from vmtax.machine import Machine
from vmtax.plan.schema import Plan

MODEL, TOPOLOGY, TIMER, POLLING, HPET = (
    GuestSettings.factors()[name].name for name in ("model", "topology", "timer", "halt_polling", "hpet")
)


# The CPUs that our processes may use, then one line for each CPU of the machine with the CPUs of its core. Constant
# text.
QUESTION = (
    "sh",
    "-c",
    "grep Cpus_allowed_list /proc/self/status || exit 1;"
    " cat /sys/devices/system/cpu/cpu[0-9]*/topology/core_cpus_list 2> /dev/null; true",
)


def cores(machine: Machine) -> list[list[int]]:
    """The CPUs that our processes may use there, grouped by core, in the order of their first CPUs."""
    first, _, rest = machine.run(*QUESTION).partition("\n")
    return by_core(cpu_numbers(first.rpartition(":")[2]), rest)


def by_core(cpus: Sequence[int], siblings: str) -> list[list[int]]:
    """Those CPUs, grouped by core. `siblings`: lines of sysfs' core_cpus_list; a CPU that no line names is a core by
    itself.
    """
    core = {cpu: each[0] for line in siblings.splitlines() if (each := cpu_numbers(line)) for cpu in each}
    found: dict[int, list[int]] = {}
    for cpu in cpus:
        found.setdefault(core.get(cpu, cpu), []).append(cpu)
    return list(found.values())


def apart(each: Sequence[Sequence[int]]) -> list[int]:
    """The CPUs of these cores, spread out: the first thread of every core, then the second thread of every core."""
    return [cpu for threads in zip_longest(*each) for cpu in threads if cpu is not None]


def in_pairs(each: Sequence[Sequence[int]]) -> list[int]:
    """The CPUs of these cores in pairs: two threads of one core, two of the next; cores with one thread come last."""
    pairs = [core[start : start + 2] for core in each for start in range(0, len(core), 2)]
    return [cpu for pair in sorted(pairs, key=len, reverse=True) for cpu in pair]


def allowed_cpus(machine: Machine) -> list[int]:
    """The CPUs that our processes may use there, one of each core first, because two threads share one core's speed."""
    return apart(cores(machine))


def not_here(
    machine: Machine, qemu: Qemu, accelerator: Literal["kvm", "tcg"], plan: Plan, treatments: Sequence[Treatment]
) -> dict[str, str]:
    """Treatments whose guest QEMU refuses there -> why. Nested guests are not checked here but when they boot.

    Raises QemuError if QEMU does not know a CPU model.
    """
    models = dict.fromkeys(GuestSettings.of(each.levels).model for each in treatments if each.layer != "host")
    guests = {each.name: GuestSettings.of(each.levels) for each in treatments if each.layer == "vm"}
    asked = {model: qemu.why_no_cpu(machine, model, accelerator) for model in models if model != DEFAULT.model}
    reasons = {model: why for model, why in asked.items() if why is not None}
    impossible = {
        name: f"{MODEL}={guest.model}: {reasons[guest.model]}"
        for name, guest in guests.items()
        if guest.model in reasons
    }
    if plan.guest.vcpus % 2:
        impossible |= {
            name: f"{TOPOLOGY}=threads takes an even number of CPUs, and guest.vcpus is {plan.guest.vcpus}"
            for name, guest in guests.items()
            if guest.topology == "threads"
        }
    with_hpet = {name: f"{TIMER}=hpet" for name, guest in guests.items() if guest.timer == "hpet"}
    with_hpet |= {name: f"{HPET}=on" for name, guest in guests.items() if guest.hpet}
    if with_hpet and (why := qemu.why_no_hpet(machine, accelerator)) is not None:
        impossible |= {name: f"{level}: {why}" for name, level in with_hpet.items()}
    return impossible


def without_kvm(treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments whose level needs KVM -> why they cannot be measured with emulated guests."""
    guests = {each.name: GuestSettings.of(each.levels) for each in treatments if each.layer == "vm"}
    clocks = {name: f"{TIMER}=kvm-clock" for name, guest in guests.items() if guest.timer == "kvm-clock"}
    polls = {
        name: f"{POLLING}={guest.levels[POLLING]}" for name, guest in guests.items() if guest.halt_polling is not None
    }
    modes = {each.name: MigrationSettings.of(each.levels).mode for each in treatments if each.layer == "vm"}
    # Post-copy is left out: with QEMU 7.2, an emulated guest panicked at its destination in each of four attempts.
    late = {name: f"{MODE}={mode}" for name, mode in modes.items() if mode is Mode.POSTCOPY}
    every = {**clocks, **polls, **late}
    return {name: f"{level} takes KVM, and the guests here are emulated" for name, level in every.items()}
