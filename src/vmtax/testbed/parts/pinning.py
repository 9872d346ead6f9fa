"""The factor `cpu.pinning`: each guest CPU on one CPU of the host, and all other threads of QEMU on the remaining CPUs.

Each guest CPU gets a core of its own while there are enough, as the host layer's processes do; two get the two threads
of one core if `cpu.siblings` says so or, without it, if `cpu.topology` gives the guest two threads per core.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from vmtax.core.records import Treatment
from vmtax.core.units import cpu_list, cpu_numbers
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import Guest, Thread
from vmtax.machine import Machine
from vmtax.plan.guests import sized
from vmtax.testbed.host.cpus import CpuTopology, apart, by_core, in_pairs, read
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
        has = len(read(request.host).cpus)
        vcpus = {each.name: sized(request.plan, each.levels).guest.vcpus for each in request.guests}
        return {
            name: f"{PINNING}=one-to-one takes {wanted + 1} CPUs, {wanted} for guests and one or more for QEMU's other"
            f" threads, and {request.host.path} has {has}: lower guest.vcpus or guest.count"
            for name, guest in guests.items()
            if guest.pinned and (wanted := guest.count * vcpus[name]) >= has
        }

    def announced(self, request: Request) -> Sequence[str]:
        return [*_said(request)]

    def notes(self, request: Request) -> Sequence[str]:
        return [f"{line}." for line in _said(request)]

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        if not order.spec.settings.pinned:
            return order
        return order.then(lambda guest: pin(on.host, on.topology, guest, order.number, order.count))


def _said(request: Request) -> Iterator[str]:
    """Whether guests are pinned to CPUs that are isolated since the host's boot."""
    pinned = [each for each in request.guests if GuestSettings.of(each.levels).pinned]
    topology = read(request.host)
    if not pinned or not topology.isolated:
        return
    counts = (GuestSettings.of(each.levels).count * sized(request.plan, each.levels).guest.vcpus for each in pinned)
    used = topology.isolated.intersection(topology.equal(max(counts)).cpus)
    kept = f"the boot of {request.host.path} isolated CPUs {cpu_list(topology.isolated)} (isolcpus=)"
    yield f"{kept}: no guest is pinned to them" if not used else f"{kept}: for lack of others, guests are pinned there"


def pin(parent: Machine, topology: CpuTopology, guest: Guest, number: int, guests: int) -> None:
    """Pin all threads of a guest's QEMU. `number`: of the guest, from 1, among `guests` that run at once."""
    for _ in range(ATTEMPTS):
        astray = _astray(parent, topology, guest, number, guests)
        for thread, cpus in astray:
            parent.try_run("taskset", "--cpu-list", "--pid", ",".join(map(str, cpus)), str(thread.id))
        if not astray:
            return


def readings(parent: Machine, topology: CpuTopology, guest: Guest, number: int, guests: int) -> dict[str, float]:
    """pinned_cpus: how many of the guest's CPUs are pinned; pinned_cores: how many host cores they are on;
    threads_astray: how many threads of QEMU may run elsewhere than they should.
    """
    threads, there = guest.threads(parent), topology.cores
    astray = {thread.id for thread, _ in _astray(parent, topology, guest, number, guests)}
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


def cpus_of(topology: CpuTopology, guest: Guest, number: int, guests: int) -> tuple[list[int], list[int]]:
    """The CPUs of the guest of that number, from 1, among `guests` at once, and those for QEMU's other threads."""
    vcpus = guest.spec.vcpus
    every, others = _places_on(topology, guests * vcpus, paired=guest.spec.settings.paired)
    return every[(number - 1) * vcpus :][:vcpus], others


def _places_on(topology: CpuTopology, taken: int, *, paired: bool) -> tuple[list[int], list[int]]:
    """`places` on the CPUs that are like those which every layer gets; if guests take all of these, other threads run
    on CPUs unlike them.

    The topology is that of before the run: a partition of the host's hides CPUs from those who ask now.
    """
    alike = topology.equal(taken).alike
    own, others = places(by_core(cpu for cpu in topology.cpus if cpu.number in alike), taken, paired=paired)
    return own, others or sorted({*topology.numbers} - {*own})


def _astray(
    parent: Machine, topology: CpuTopology, guest: Guest, number: int, guests: int
) -> list[tuple[Thread, Sequence[int]]]:
    """Threads that may run elsewhere than they should, each with the CPUs on which it should run."""
    own, others = cpus_of(topology, guest, number, guests)
    wanted = [(each, others if each.vcpu is None else [own[each.vcpu]]) for each in guest.threads(parent)]
    return [(thread, where) for thread, where in wanted if cpu_numbers(thread.cpus) != list(where)]
