"""Layer nested: guests in a guest of the host under test, the outer VM."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.core.records import Treatment
from vmtax.design import guest as guest_settings
from vmtax.design.net import settings_of
from vmtax.design.topology import Subject, topology
from vmtax.hypervisor import Drive, Guest, GuestSpec, Qemu
from vmtax.hypervisor.confine import FIRST_USER
from vmtax.image.place import IN_GUEST
from vmtax.network import Segment
from vmtax.storage import Backing
from vmtax.testbed.host import disks, needs
from vmtax.testbed.host.carrier import CARRIER_DEVICE, CARRIER_MOUNT, NESTED_DISK, CarrierDisk
from vmtax.testbed.layers.boots import boot_all, guest_spec, host_spec, running_subject
from vmtax.testbed.network import net_paths
from vmtax.testbed.parts import Order
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.storage import cutting
from vmtax.testbed.subjects import cards
from vmtax.testbed.subjects.provisioned import Provisioned

# QEMU inside a guest, where we are root. Assumed, not detected: detection would add seconds to every emulated boot.
IMAGE_QEMU = Qemu(("qemu-system-x86_64",), "10.0", "the image's", has_sandbox=True, user=FIRST_USER)
CARRIER_MACS = "52:54:00:76:74:{:02x}"
# Loads what a guest needs to carry others: taps, and KVM for either kind of CPU. Constant text.
LOAD_MODULES = "modprobe -q tun; modprobe -q kvm_amd || modprobe -q kvm_intel; test -c /dev/kvm"


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """The outer VMs, and one subject for each nested guest. Raises CannotMeasure, BootFailed and MachineError."""
    wanted = topology(treatment)
    orders, cut, card = [], None, settings_of(treatment)  # an outer VM has the card of its guests
    for number, (name, carried) in enumerate(wanted.carried.items(), 1):
        spec = replace(_carrier_spec(on, treatment, number, len(carried)), name=name)
        if on.checking and on.disks_directory:
            room = needs.carrier_disk_bytes(on.disk_size)
            cut = cutting.prepare_outer(on.session, on.checking, on.host, on.disks_directory, room, stack)
            spec = replace(spec, disks=(cut.drive,))
        plug = cards.Plug(on.network.segment, CARRIER_MACS.format(number + 1), card) if on.network else None
        orders.append(Order(on.host, spec, plug))
    carriers = boot_all(on, orders, stack, guests)
    orders = []
    for number, (carrier, carried) in enumerate(zip(carriers, wanted.carried.values(), strict=True)):
        disk = on.carrier_disks[number] if on.carrier_disks else None
        if cut is not None:
            cutting.lay_out(carrier.machine, CARRIER_DEVICE, CARRIER_MOUNT, NESTED_DISK.format(1), on.disk_size)
        orders += _carried(on, treatment, carrier, carried, disk)
    # One after the other on emulated KVM: four at once were not up after 480 s, and one alone was up in 20 s.
    booted = boot_all(on, orders, stack, guests, in_turn=on.emulated)
    pairs, named = zip(wanted.subjects, booted, strict=True), net_paths.names_card(on.plan)
    subjects = [running_subject(on, subject, guest, card if named else None) for subject, guest in pairs]
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
        net_paths.load(carrier.machine, [treatment])
    if data is not None:
        data.mount(carrier.machine)
    orders = []
    for place, subject in enumerate(subjects, 1):
        drive = None
        if data is not None or on.checking is not None:
            disk = Backing(PurePosixPath(NESTED_DISK.format(place)), size=on.disk_size)
            drive = disks.drive(treatment, disk)
        spec = guest_spec(on, treatment, IN_GUEST, IMAGE_QEMU, accelerator="kvm", data=drive)
        spec = replace(spec, name=subject.name, packs=carrier.spec.pack_devices)
        plug = cards.Plug(segment, net_paths.MACS.format(subject.number), settings_of(treatment)) if segment else None
        orders.append(Order(carrier.machine, spec, plug))
    return orders


def _carrier_spec(on: Provisioned, treatment: Treatment, number: int, guests: int) -> GuestSpec:
    """The outer VM of that number. It has all CPUs of its nested guests or several times as many, and their memory plus
    what carrying takes.

    Its own disk and CPU are always at the defaults: the factors apply to the nested guests.
    """
    data = Drive(str(on.carrier_disks[number - 1].file.path)) if on.carrier_disks else None
    spec = host_spec(on, treatment, data)
    memory = guests * on.plan.guest.memory + needs.CARRIER_MEMORY_BYTES
    default = guest_settings.DEFAULT
    settings = replace(
        spec.settings,
        model=default.model,
        topology=default.topology,
        timer=default.timer,
        hyperv=default.hyperv,
        hpet=default.hpet,
    )
    cpus = carrier_cpus(on.plan.guest.vcpus, treatment, guests)
    return replace(spec, vcpus=cpus, memory_bytes=memory, settings=settings, carries=True)


def carrier_cpus(each: int, treatment: Treatment, guests: int) -> int:
    """The CPUs of an outer VM with that many nested guests, which have `each` of them."""
    return guests * each * guest_settings.GuestSettings.of(treatment.levels).outer_cpus
