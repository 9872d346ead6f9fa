"""The factor `cpu.pinning`: each guest CPU on one CPU of the host, and all other threads of QEMU on the remaining CPUs.

Each guest CPU gets a core of its own while there are enough, as the host layer's processes do; if `cpu.topology` gives
the guest two threads per core, they get the two threads of one core.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from vmtax.core.records import Treatment
from vmtax.core.units import cpu_numbers
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import Guest, Thread
from vmtax.machine import Machine
from vmtax.plan.guests import sized
from vmtax.testbed.host.cpus import allowed_cpus, apart, by_core, in_pairs, read
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

PINNING = GuestSettings.factors()["pinned"].name
ATTEMPTS = 3  # a thread that is not pinned yet may start another


class Pinning(Part):
    """One CPU of the host for each CPU of a guest."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        guests = {each.name: GuestSettings.of(each.levels) for each in request.guests}
        if not any(guest.pinned for guest in guests.values()):
            return {}
        has = len(allowed_cpus(request.host))
        vcpus = {each.name: sized(request.plan, each.levels).guest.vcpus for each in request.guests}
        return {
            name: f"{PINNING}=one-to-one takes {wanted + 1} CPUs, {wanted} for guests and one or more for QEMU's other"
            f" threads, and {request.host.path} has {has}: lower guest.vcpus or guest.count"
            for name, guest in guests.items()
            if guest.pinned and (wanted := guest.count * vcpus[name]) >= has
        }

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        if not order.spec.settings.pinned:
            return order
        return order.then(lambda guest: pin(on.host, guest, order.number, order.count))


def pin(parent: Machine, guest: Guest, number: int, guests: int) -> None:
    """Pin all threads of a guest's QEMU. `number`: of the guest, from 1, among `guests` that run at once."""
    for _ in range(ATTEMPTS):
        astray = _astray(parent, guest, number, guests)
        for thread, cpus in astray:
            parent.try_run("taskset", "--cpu-list", "--pid", ",".join(map(str, cpus)), str(thread.id))
        if not astray:
            return


def readings(parent: Machine, guest: Guest, number: int, guests: int) -> dict[str, float]:
    """pinned_cpus: how many of the guest's CPUs are pinned; pinned_cores: how many host cores they are on;
    threads_astray: how many threads of QEMU may run elsewhere than they should.
    """
    threads, there = guest.threads(parent), read(parent).cores
    astray = {thread.id for thread, _ in _astray(parent, guest, number, guests)}
    pinned = [thread for thread in threads if thread.vcpu is not None and thread.id not in astray]
    used = {cpu for thread in pinned for cpu in cpu_numbers(thread.cpus)}
    on = sum(bool(used.intersection(core)) for core in there)
    return {"pinned_cpus": len(pinned), "pinned_cores": on, "threads_astray": len(astray)}


def places(there: Sequence[Sequence[int]], taken: int, *, paired: bool) -> tuple[list[int], list[int]]:
    """The CPUs for `taken` CPUs of guests, and the CPUs for all other threads of QEMU: on cores without a guest's CPU
    if there are any.

    there: the host's CPUs, by core; paired: two consecutive CPUs of a guest are threads of one core
    """
    order = in_pairs(there) if paired else apart(there)
    own, rest = order[:taken], sorted(order[taken:])
    free = sorted(cpu for core in there if not set(own).intersection(core) for cpu in core)
    return own, free or rest


def _places_on(parent: Machine, taken: int, *, paired: bool) -> tuple[list[int], list[int]]:
    """`places` on the CPUs that are like those which every layer gets; if guests take all of these, other threads run
    on CPUs unlike them.
    """
    topology = read(parent)
    alike = topology.equal(taken).alike
    own, others = places(by_core(cpu for cpu in topology.cpus if cpu.number in alike), taken, paired=paired)
    return own, others or sorted({*topology.numbers} - {*own})


def _astray(parent: Machine, guest: Guest, number: int, guests: int) -> list[tuple[Thread, Sequence[int]]]:
    """Threads that may run elsewhere than they should, each with the CPUs on which it should run."""
    vcpus, paired = guest.spec.vcpus, guest.spec.settings.topology == "threads"
    every, others = _places_on(parent, guests * vcpus, paired=paired)
    own = every[(number - 1) * vcpus :]
    wanted = [(each, others if each.vcpu is None else [own[each.vcpu]]) for each in guest.threads(parent)]
    return [(thread, where) for thread, where in wanted if cpu_numbers(thread.cpus) != list(where)]
