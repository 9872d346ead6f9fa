"""Whether a host, and a QEMU there, can give guests the CPUs and clocks that treatments ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vmtax.core.records import Treatment
from vmtax.design.guest import DEFAULT, GuestSettings
from vmtax.hypervisor import Qemu
from vmtax.machine import Machine
from vmtax.meter.text import cpu_numbers
from vmtax.plan.schema import Plan

MODEL, TOPOLOGY, TIMER = (GuestSettings.factors()[name].name for name in ("model", "topology", "timer"))


def allowed_cpus(machine: Machine) -> list[int]:
    """The CPUs that our processes may use there."""
    return cpu_numbers(machine.run("grep", "Cpus_allowed_list", "/proc/self/status").rpartition(":")[2])


def not_here(
    machine: Machine, qemu: Qemu, accelerator: Literal["kvm", "tcg"], plan: Plan, treatments: Sequence[Treatment]
) -> dict[str, str]:
    """Treatments whose guest QEMU refuses there -> why. A nested guest is judged by its own boot.

    Raises QemuError where QEMU does not know a model.
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
    timers = {guest.timer for guest in guests.values()}
    refused = {timer: why for timer in timers if (why := _why_no_timer(machine, qemu, accelerator, timer)) is not None}
    return impossible | {
        name: f"{TIMER}={guest.timer}: {refused[guest.timer]}"
        for name, guest in guests.items()
        if guest.timer in refused
    }


def _why_no_timer(machine: Machine, qemu: Qemu, accelerator: Literal["kvm", "tcg"], timer: str) -> str | None:
    if timer == "kvm-clock" and accelerator == "tcg":
        return "KVM gives it, and the guests here are emulated"
    return qemu.why_no_hpet(machine, accelerator) if timer == "hpet" else None
