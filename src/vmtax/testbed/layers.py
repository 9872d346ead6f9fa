"""Bring up the machines of one treatment: the host as it is, one or more VMs, or a VM that carries nested VMs."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from vmtax.core.notices import recorded
from vmtax.core.records import Treatment
from vmtax.design import guest as guest_settings
from vmtax.design.guest import GuestSettings
from vmtax.design.migration import MigrationSettings
from vmtax.design.net import NetSettings, settings_of
from vmtax.design.topology import Subject, Topology, topology
from vmtax.hypervisor import (
    AWAITED,
    BootFailed,
    Drive,
    Guest,
    GuestSpec,
    Patience,
    Qemu,
    boot,
)
from vmtax.hypervisor.confine import FIRST_USER
from vmtax.image.place import IN_GUEST, Placed
from vmtax.machine import Machine, MachineLost
from vmtax.meter import new_meters
from vmtax.network import Segment, guest_address
from vmtax.plan.guests import guests_at_once
from vmtax.storage import Backing
from vmtax.testbed import cards, cutting, destination, disks, needs, net_paths, parts, proof
from vmtax.testbed.base import Route, RunningSubject, RunningTreatment
from vmtax.testbed.carrier import CARRIER_DEVICE, CARRIER_MOUNT, NESTED_DISK, CarrierDisk
from vmtax.testbed.footprint import Footprint
from vmtax.testbed.parts import Order
from vmtax.testbed.provisioned import Provisioned
from vmtax.testbed.session import CannotMeasure
from vmtax.testbed.sites import guest_site
from vmtax.testbed.standby import Carriers
from vmtax.workload import Site

# QEMU inside a guest, where we are root. Assumed, not detected: detection would add seconds to every emulated boot.
IMAGE_QEMU = Qemu(("qemu-system-x86_64",), "10.0", "the image's", has_sandbox=True, user=FIRST_USER)
CARRIER_MACS = "52:54:00:76:74:{:02x}"
_numbers = itertools.count(1)
EMULATED_HOST_PATIENCE = 4  # there, a nested guest took 70 s to boot, and more than 120 s beside other work
SETTLE_SECONDS = 1.0  # after a boot, before anything is measured
# Loads what a guest needs to carry others: taps, and KVM for either kind of CPU. Constant text.
LOAD_MODULES = "modprobe -q tun; modprobe -q kvm_amd || modprobe -q kvm_intel; test -c /dev/kvm"


@contextlib.contextmanager
def opened(on: Provisioned, treatment: Treatment) -> Iterator[RunningTreatment]:
    """Bring up the treatment's machines, settled and with cold caches; guests are gone at exit.

    If a guest is lost while it boots, everything is set up once more, and the guest's warnings say so: emulated SVM
    makes QEMU abort about once in twenty boots of a carrier (assertion `iotlb_to_section`).
    """
    with contextlib.ExitStack() as stack:
        guests: list[Guest] = []
        try:
            running = _open(on, treatment, stack, guests)
        except (BootFailed, MachineLost) as failure:
            reason = _why_lost(failure, guests, emulated=on.emulated)
            if reason is None or treatment.layer == "host":
                raise
            stack.close()
            guests.clear()
            running = _open(on, treatment, stack, guests)
            guests[-1].warnings.append(recorded("second-boot", reason))
        proof.check(on, treatment, running)
        yield running


def _why_lost(failure: BootFailed | MachineLost, guests: list[Guest], *, emulated: bool) -> str | None:
    """How a guest was lost, with QEMU's message if there is one; None if a second attempt would fail the same way."""
    time.sleep(0.5)  # a process whose connection just broke may still be ending
    causes = [cause for guest in guests if (cause := guest.cause_of_death())]
    if causes:
        return causes[0]
    # An emulated guest that panics may well boot the next time.
    if emulated or isinstance(failure, MachineLost) or failure.qemu_died:
        return str(failure).partition("\n")[0]
    return None


def _open(on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]) -> RunningTreatment:
    """Make one attempt; each guest that comes up is appended to `guests`."""
    wanted = topology(treatment)
    if on.network is not None:
        for subject in wanted.subjects:
            for argv in on.peer_servers(subject.number):
                stack.callback(on.network.at.start(*argv).stop)
    outer: tuple[Guest, ...] = ()
    if treatment.layer == "host":
        subjects = [_host(on, treatment, subject.number, len(wanted.subjects)) for subject in wanted.subjects]
    elif treatment.layer == "vm":
        subjects = _vms(on, treatment, wanted, stack, guests)
    else:
        outer, subjects = _nested(on, treatment, wanted, stack, guests)
    running = RunningTreatment(
        tuple(subjects),
        on.host,
        outer,
        on.emulated,
        (*_carriers(on, subjects), *new_meters(), *_footprint(on, outer, subjects)),
    )
    time.sleep(SETTLE_SECONDS)
    drop_caches(on, running)
    return running


def _footprint(on: Provisioned, outer: Sequence[Guest], subjects: Sequence[RunningSubject]) -> list[Footprint]:
    """Meters of the guests' memory, only if the plan has several guests at once: they take time, and only that report
    uses them.
    """
    if guests_at_once(on.plan) == 1:
        return []
    parents = {machine.path: machine for machine in (on.host, *(guest.machine for guest in outer))}
    guests = [subject.guest for subject in subjects if subject.guest is not None]
    return [Footprint((guest, parents[guest.path.rpartition("/")[0]]) for guest in guests)]


def _carriers(on: Provisioned, subjects: Sequence[RunningSubject]) -> list[Carriers]:
    """Meters that count packets by card, only if guests have a virtual function and a stand-by card."""
    guests = [subject.guest for subject in subjects if subject.guest is not None]
    found = [(guest.path, tapped) for guest in guests if (tapped := cards.tapped_of(on, guest)) is not None]
    return [Carriers(found)] if found else []


def drop_caches(on: Provisioned, running: RunningTreatment) -> None:
    """Drop the guests' caches first, then the host's, so that data written back by guests does not stay in the host's
    cache.
    """
    machines: list[Machine] = [guest.machine for guest in reversed(running.guests)]
    for machine in (*machines, on.host):
        machine.run("sync", timeout=300)
        if machine is not on.host or on.is_root:
            machine.run("tee", "/proc/sys/vm/drop_caches", input="3")


def _host(on: Provisioned, treatment: Treatment, number: int, sets: int) -> RunningSubject:
    """One of the sets of processes that work on the host at the same time."""
    disk = on.disks.of(treatment, number) if on.disks else None
    site = Site(
        machine=on.host,
        layer="host",
        vcpus=on.plan.guest.vcpus,
        prefix=on.userland(disk=disk, sets=sets),
        disk=disks.inside_userland(disk) if disk else None,
        kernel_pack=on.kernel_userland(sets),
        link=on.host_link(number, sets),
        lead=on.lead,
    )
    return RunningSubject(site, number=number)


def _vms(
    on: Provisioned, treatment: Treatment, wanted: Topology, stack: contextlib.ExitStack, guests: list[Guest]
) -> list[RunningSubject]:
    orders = []
    for subject in wanted.subjects:
        spec = replace(_host_spec(on, treatment, None), name=subject.name)
        order = Order(on.host, spec, number=subject.number, count=len(wanted.subjects))
        orders.append(parts.shape(on, treatment, order, stack))
    booted = _boot_all(on, orders, stack, guests)
    offers = [order.offers(guest) for order, guest in zip(orders, booted, strict=True)]
    named = net_paths.names_card(on.plan)
    subjects = [
        _subject(on, subject, guest, settings_of(treatment, subject.number) if named else None, each)
        for subject, guest, each in zip(wanted.subjects, booted, offers, strict=True)
    ]
    if needs.migrates(on.plan):  # there is only one guest
        route = _route(on, treatment, orders[0], booted[0], stack)
        return [replace(subjects[0], offers=(*subjects[0].offers, route))]
    return subjects


def _route(on: Provisioned, treatment: Treatment, here: Order, guest: Guest, stack: contextlib.ExitStack) -> Route:
    """The migration of this guest to another QEMU of its host, or to another host."""
    plug = here.plug and replace(here.plug, awaits=True)
    order = replace(here, spec=replace(here.spec, incoming=AWAITED), plug=plug)
    if (there := on.destination) is not None:
        assert on.network is not None and on.network.far is not None and plug is not None
        keeps_user = settings_of(treatment).path.has_function
        spec = destination.spec_there(there, order.spec, keeps_user=keeps_user)
        stack.enter_context(destination.lead(on, here.spec, spec, keeps_user=keeps_user))
        far = on.network.far
        function = far.functions[plug.number - 1] if far.functions else None
        order = Order(there.machine, spec, replace(plug, segment=far.segment, function=function))
    handover = cards.handover(guest, (on.host, here.plug), (order.parent, order.plug))
    mode = MigrationSettings.of(treatment.levels).mode
    return Route(mode, guest_address(1), lambda: _boot(on, order, stack), on.watch, handover)


def _nested(
    on: Provisioned, treatment: Treatment, wanted: Topology, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    orders, cut = [], None
    for number, (name, carried) in enumerate(wanted.carried.items(), 1):
        spec = replace(_carrier_spec(on, treatment, number, len(carried)), name=name)
        if on.checking and on.disks_directory:
            room = needs.carrier_disk_bytes(on.disk_size)
            cut = cutting.prepare_outer(on.session, on.checking, on.host, on.disks_directory, room, stack)
            spec = replace(spec, disks=(cut.drive,))
        plug = cards.Plug(on.network.segment, CARRIER_MACS.format(number + 1)) if on.network else None
        orders.append(Order(on.host, spec, plug))
    carriers = _boot_all(on, orders, stack, guests)
    orders = []
    for number, (carrier, carried) in enumerate(zip(carriers, wanted.carried.values(), strict=True)):
        disk = on.carrier_disks[number] if on.carrier_disks else None
        if cut is not None:
            cutting.lay_out(carrier.machine, CARRIER_DEVICE, CARRIER_MOUNT, NESTED_DISK.format(1), on.disk_size)
        orders += _carried(on, treatment, carrier, carried, disk)
    # One after the other on emulated KVM: four at once were not up after 480 s, and one alone was up in 20 s.
    booted = _boot_all(on, orders, stack, guests, in_turn=on.emulated)
    pairs = zip(wanted.subjects, booted, strict=True)
    subjects = [_subject(on, subject, guest) for subject, guest in pairs]
    if cut is not None and on.checking is not None:  # there is one guest in one outer VM
        device, inside = booted[0].spec.device(), PurePosixPath(NESTED_DISK.format(1)).name
        assert device is not None
        subjects = [replace(subjects[0], offers=(cutting.cut_of(on.checking, cut, device, carriers[0], inside),))]
    return tuple(carriers), subjects


def _carried(
    on: Provisioned, treatment: Treatment, carrier: Guest, subjects: Sequence[Subject], data: CarrierDisk | None
) -> list[Order]:
    """The nested guests of one outer VM, after setting up their disks and network in it."""
    if not carrier.machine.succeeds("sh", "-c", LOAD_MODULES):
        raise CannotMeasure(
            f"{carrier.path}: layer nested cannot be: no KVM inside the guest. On hardware, load kvm_intel or kvm_amd "
            "with nested=1; or measure without it: --layers host,vm"
        )
    segment = None
    if on.network is not None:
        segment = Segment(carrier.machine, on.session.local.token[:6])
        segment.attach(net_paths.VIRTIO_NIC)
    if data is not None:
        data.mount(carrier.machine)
    orders = []
    for place, subject in enumerate(subjects, 1):
        drive = None
        if data is not None or on.checking is not None:
            disk = Backing(PurePosixPath(NESTED_DISK.format(place)), size=on.disk_size)
            drive = disks.drive(treatment, disk)
        spec = _spec(on, treatment, IN_GUEST, IMAGE_QEMU, accelerator="kvm", data=drive)
        spec = replace(spec, name=subject.name, packs=carrier.spec.pack_devices)
        plug = cards.Plug(segment, net_paths.MACS.format(subject.number)) if segment else None
        orders.append(Order(carrier.machine, spec, plug))
    return orders


def _subject(
    on: Provisioned,
    subject: Subject,
    guest: Guest,
    card: NetSettings | None = None,
    offers: tuple[object, ...] = (),
) -> RunningSubject:
    """`card`: what the guest must have on the network under test, if the plan specifies it."""
    return RunningSubject(guest_site(on, subject, guest, card), guest, offers)


def _host_spec(on: Provisioned, treatment: Treatment, data: Drive | None) -> GuestSpec:
    """The guest under test, run directly on the host under test."""
    qemu, accelerator = on.guests.qemu, on.guests.accelerator.name
    spec = _spec(on, treatment, on.placed, qemu, accelerator=accelerator, data=data)
    return replace(spec, packs=on.pack_files)


def _spec(
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


def _carrier_spec(on: Provisioned, treatment: Treatment, number: int, guests: int) -> GuestSpec:
    """The outer VM of that number. It has all CPUs of its nested guests, and their memory plus what carrying takes.

    Its own disk and CPU are always at the defaults: the factors apply to the nested guests.
    """
    data = Drive(str(on.carrier_disks[number - 1].file.path)) if on.carrier_disks else None
    spec = _host_spec(on, treatment, data)
    memory = guests * on.plan.guest.memory + needs.CARRIER_MEMORY_BYTES
    default = guest_settings.DEFAULT
    settings = replace(
        spec.settings, model=default.model, topology=default.topology, timer=default.timer, hpet=default.hpet
    )
    cpus = guests * on.plan.guest.vcpus
    return replace(spec, vcpus=cpus, memory_bytes=memory, settings=settings, carries=True)


def _boot_all(
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
        guests.extend(_boot(on, order, stack, len(orders)) for order in orders)
        return guests[-len(orders) :]
    pool = ThreadPoolExecutor(len(orders), "boot")
    # The pool's threads must live as long as the guests: the kernel kills a bubblewrap when the thread that started it
    # ends. After Ctrl-C nothing waits for them: a boot ends with its QEMU, which the guard ends.
    stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    stacks = [stack.enter_context(contextlib.ExitStack()) for _ in orders]
    booting = [pool.submit(_boot, on, *one, len(orders)) for one in zip(orders, stacks, strict=True)]
    wait(booting)
    guests += [boot.result() for boot in booting if boot.exception() is None]
    return [boot.result() for boot in booting]


def _boot(on: Provisioned, order: Order, stack: contextlib.ExitStack, at_once: int = 1) -> Guest:
    """`at_once`: how many guests share the host's CPUs, so that each takes longer"""
    times = at_once * (EMULATED_HOST_PATIENCE if on.host_emulated else 1)
    patience = Patience(ready=Patience().ready * times)
    spec, attach = order.spec, None
    if order.plug is not None:
        card, attach = order.plug.insert(stack)
        spec = replace(spec, cards=(card,))
    access = (on.session.credentials, on.session.local)
    return stack.enter_context(boot(order.parent, spec, *access, patience=patience, attach=attach))
