"""`cpu.pinning`: each CPU of a guest on one CPU of the host, and all other threads of QEMU on those that are left.

The guest's CPUs get the host's first ones, on which the host layer does its work too.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import Guest, Thread
from vmtax.machine import Machine
from vmtax.meter.text import cpu_numbers
from vmtax.plan.schema import Plan
from vmtax.testbed.cpus import allowed_cpus

PINNING = GuestSettings.factors()["pinned"].name
ATTEMPTS = 3  # a thread that is not pinned yet may start another


def not_here(machine: Machine, plan: Plan, treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments whose guests have not enough CPUs there to be pinned -> why."""
    guests = {each.name: GuestSettings.of(each.levels) for each in treatments if each.layer == "vm"}
    if not any(guest.pinned for guest in guests.values()):
        return {}
    has = len(allowed_cpus(machine))
    return {
        name: f"{PINNING}=one-to-one takes {wanted + 1} CPUs, {wanted} for guests and one or more for QEMU's other"
        f" threads, and {machine.path} has {has}: lower guest.vcpus or guest.count"
        for name, guest in guests.items()
        if guest.pinned and (wanted := guest.count * plan.guest.vcpus) >= has
    }


def pin(parent: Machine, guest: Guest, number: int, guests: int) -> None:
    """Pin all threads of a guest's QEMU. `number`: of the guest, from 1, among `guests` that run at once."""
    for _ in range(ATTEMPTS):
        astray = _astray(parent, guest, number, guests)
        for thread, cpus in astray:
            parent.try_run("taskset", "--cpu-list", "--pid", ",".join(map(str, cpus)), str(thread.id))
        if not astray:
            return


def readings(parent: Machine, guest: Guest, number: int, guests: int) -> dict[str, float]:
    """pinned_cpus: of the guest's CPUs; threads_astray: QEMU's that may run elsewhere than they should."""
    threads = guest.threads(parent)
    astray = {thread.id for thread, _ in _astray(parent, guest, number, guests)}
    pinned = sum(thread.vcpu is not None and thread.id not in astray for thread in threads)
    return {"pinned_cpus": pinned, "threads_astray": len(astray)}


def _astray(parent: Machine, guest: Guest, number: int, guests: int) -> list[tuple[Thread, Sequence[int]]]:
    """Threads that may run elsewhere than they should, each with the CPUs that it should run on."""
    cpus, vcpus = allowed_cpus(parent), guest.spec.vcpus
    own, others = cpus[(number - 1) * vcpus :], cpus[guests * vcpus :]
    wanted = [(each, others if each.vcpu is None else [own[each.vcpu]]) for each in guest.threads(parent)]
    return [(thread, where) for thread, where in wanted if cpu_numbers(thread.cpus) != list(where)]
