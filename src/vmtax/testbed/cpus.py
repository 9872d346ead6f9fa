"""Whether a QEMU can give guests the CPU that treatments ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vmtax.core.records import Treatment
from vmtax.design.guest import DEFAULT, GuestSettings
from vmtax.hypervisor import Qemu
from vmtax.machine import Machine
from vmtax.plan.schema import Plan

MODEL, TOPOLOGY = (GuestSettings.factors()[name].name for name in ("model", "topology"))


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
    return impossible
