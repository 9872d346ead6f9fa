"""Boot the guests of a treatment, and what they offer to workloads."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Literal

from vmtax.core.records import Treatment
from vmtax.core.units import cpu_numbers
from vmtax.design.guest import GuestSettings
from vmtax.design.net import NetSettings
from vmtax.design.topology import Subject
from vmtax.hypervisor import BootFailed, BootPatience, Drive, Guest, GuestSpec, Qemu, boot
from vmtax.image.place import Placed
from vmtax.machine import Machine
from vmtax.testbed.host.cpus import Equal, bound
from vmtax.testbed.parts import Order
from vmtax.testbed.parts.sharing import SharedFile
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.subjects import directories
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.testbed.subjects.sites import guest_site

EMULATED_HOST_PATIENCE = 4  # there, a nested guest took 70 s to boot, and more than 120 s beside other work


def host_spec(on: Provisioned, treatment: Treatment, data: Drive | None) -> GuestSpec:
    """The guest under test, run directly on the host under test."""
    qemu, accelerator = on.guests.qemu, on.guests.accelerator.name
    spec = guest_spec(on, treatment, on.placed, qemu, accelerator=accelerator, data=data)
    return replace(spec, packs=on.pack_files)


def guest_spec(
    on: Provisioned,
    treatment: Treatment,
    placed: Placed,
    qemu: Qemu,
    *,
    accelerator: Literal["kvm", "tcg"],
    data: Drive | None,
) -> GuestSpec:
    """The guest under test: the same size on every layer."""
    return GuestSpec(
        name="vm",
        vcpus=on.plan.guest.vcpus,
        memory_bytes=on.plan.guest.memory,
        accelerator=accelerator,
        hypervisor=qemu,
        kernel=placed.kernel,
        initrd=placed.initrd,
        root=placed.root,
        disks=(data,) if data else (),
        settings=GuestSettings.of(treatment.levels),
    )


def running_subject(
    on: Provisioned,
    subject: Subject,
    guest: Guest,
    card: NetSettings | None = None,
    offers: tuple[object, ...] = (),
) -> RunningSubject:
    """`card`: what the guest must have on the network under test, if the plan specifies it."""
    site = guest_site(on, subject, guest, card)
    shared = next((offer for offer in offers if isinstance(offer, SharedFile)), None)
    if shared is not None:
        site = replace(site, disk=shared.path, fresh_disk=shared.fresh)
    return RunningSubject(directories.in_guest(on, site, is_shared=shared is not None), guest, offers)


def boot_all(
    on: Provisioned,
    orders: Sequence[Order],
    stack: contextlib.ExitStack,
    guests: list[Guest],
    *,
    in_turn: bool = False,
) -> list[Guest]:
    """Boot the guests at the same time or in turn. Those that come up are added to `guests`, and `stack` ends them.

    Once all have come up or failed, raises the exception of the first that failed.
    """
    if in_turn or len(orders) == 1:  # in this thread, so that Ctrl-C ends the boot itself
        guests.extend(boot_guest(on, order, stack, orders) for order in orders)
        return guests[-len(orders) :]
    pool = ThreadPoolExecutor(len(orders), "boot")
    # The pool's threads must live as long as the guests: the kernel kills a bubblewrap when the thread that started it
    # ends. After Ctrl-C nothing waits for them: a boot ends with its QEMU, which the guard ends.
    stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    stacks = [stack.enter_context(contextlib.ExitStack()) for _ in orders]
    booting = [pool.submit(boot_guest, on, *one, orders) for one in zip(orders, stacks, strict=True)]
    wait(booting)
    guests += [boot.result() for boot in booting if boot.exception() is None]
    return [boot.result() for boot in booting]


def boot_guest(on: Provisioned, order: Order, stack: contextlib.ExitStack, at_once: Sequence[Order] = ()) -> Guest:
    """`at_once`: all guests that share the host's CPUs, so that each takes longer; (): there is only this one"""
    times = max(1, len(at_once)) * (EMULATED_HOST_PATIENCE if on.host_emulated else 1)
    patience = BootPatience(ready=BootPatience().ready * times)
    spec, attach = order.spec, None
    if order.plug is not None:
        card, attach = order.plug.insert(stack)
        spec = replace(spec, cards=(card,))
    chosen = _chosen(on, order.parent, sum(each.spec.vcpus for each in at_once or (order,)))
    if chosen is not None:
        alike = ",".join(map(str, chosen.alike))
        spec = replace(spec, within=(*bound(alike, on.node(chosen)), *spec.within))
    access = (on.session.credentials, on.session.local)
    guest = stack.enter_context(boot(order.parent, spec, *access, patience=patience, attach=attach))
    if chosen is not None and spec.incoming is None:
        _keep(order.parent, guest, chosen)
    return guest


def _chosen(on: Provisioned, parent: Machine, count: int) -> Equal | None:
    """The CPUs on which guests of the host under test are kept; None: on all, because all are alike, or unknown."""
    if parent is not on.host:
        return None
    chosen = on.topology.equal(count)
    return chosen if chosen.others or on.node(chosen) is not None else None


def _keep(parent: Machine, guest: Guest, chosen: Equal) -> None:
    """Keep the threads that run a guest's CPUs on those that every layer gets. Raises BootFailed if that fails."""
    for thread in guest.threads(parent):
        if thread.vcpu is not None:
            parent.try_run("taskset", "--cpu-list", "--pid", chosen.text, str(thread.id))
    wanted = sorted(chosen.cpus)
    astray = [each for each in guest.threads(parent) if each.vcpu is not None and cpu_numbers(each.cpus) != wanted]
    if astray:
        raise BootFailed(
            f"{guest.path}: {len(astray)} of its CPUs may run elsewhere than on the CPUs"
            f" {chosen.text}, which every layer gets"
        )
