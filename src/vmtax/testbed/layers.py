"""Brings up one layer for one treatment: the host as it is, a VM, or a VM that carries a nested VM."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal, cast

from vmtax.core.records import Treatment
from vmtax.hypervisor import (
    BY_SERIAL,
    DATA_ID,
    FRESH_ID,
    BootFailed,
    Drive,
    Guest,
    GuestSpec,
    Nic,
    Qemu,
    Tap,
    boot,
)
from vmtax.hypervisor.confine import FIRST_USER
from vmtax.image.place import IN_GUEST, Placed
from vmtax.machine import Machine, MachineLost
from vmtax.meter.clock import Watch
from vmtax.network import GUEST_ADDRESS, PEER_ADDRESS, Segment
from vmtax.network.segment import PREFIX_LENGTH
from vmtax.storage import Backing, fill
from vmtax.storage.backing import describe
from vmtax.storage.page_cache import GROWTH_BYTES, SHARE, Bound
from vmtax.testbed import disks
from vmtax.testbed.environment import CARRIER_MEMORY_BYTES, CannotMeasure, Environment
from vmtax.workload import Link, Site
from vmtax.workload.net import PORT

# All that there is inside a guest, where we are root: examining it would take seconds of every emulated boot.
IMAGE_QEMU = Qemu(("qemu-system-x86_64",), "10.0", "the image's", has_sandbox=True, user=FIRST_USER)
GUEST_NIC = "eth1"  # the second network card of a guest: the network under test
# A carrier and its guest are on one segment.
GUEST_MAC, CARRIER_MAC = "52:54:00:76:74:01", "52:54:00:76:74:02"
CARRIER_DISK = "/dev/vdb"
CARRIER_MOUNT = "/srv"
NESTED_DISK = f"{CARRIER_MOUNT}/disk.raw"
_numbers = itertools.count(1)
SETTLE_SECONDS = 1.0  # after a boot, before anything is measured
DISK_SECONDS = 20.0  # until a guest has found all its disks: most are there when it is ready
# Loads what carrying takes: taps, and KVM for whatever CPU the carrier has. Constant text.
LOAD_MODULES = "modprobe -q tun; modprobe -q kvm_amd || modprobe -q kvm_intel; test -c /dev/kvm"


@dataclass(frozen=True, slots=True)
class Opened:
    """A layer that is up."""

    site: Site
    guests: tuple[Guest, ...]  # from the outside in; empty for the host
    clocks: Watch = field(default_factory=Watch)  # of its machines, held against this host's


@contextlib.contextmanager
def opened(environment: Environment, treatment: Treatment) -> Iterator[Opened]:
    """Bring up the treatment's layer, settled and with cold caches; guests are gone at exit.

    Where a guest is lost on the way up it is all done once more, and the guest's warnings say so: emulated SVM
    makes QEMU abort about once in twenty boots of a carrier (assertion `iotlb_to_section`).
    """
    with contextlib.ExitStack() as stack:
        guests: list[Guest] = []
        try:
            layer = _open(environment, treatment, stack, guests)
        except (BootFailed, MachineLost) as failure:
            reason = _why_lost(failure, guests, emulated=environment.emulated)
            if reason is None or treatment.layer == "host":
                raise
            stack.close()
            guests.clear()
            layer = _open(environment, treatment, stack, guests)
            guests[-1].warnings.append(f"booted at the second attempt: {reason}")
        yield layer


def _why_lost(failure: BootFailed | MachineLost, guests: list[Guest], *, emulated: bool) -> str | None:
    """How a guest was lost, with QEMU's own words if it has any; None where a second try would fail the same way."""
    time.sleep(0.5)  # a process whose connection just broke may still be ending
    causes = [cause for guest in guests if (cause := guest.cause_of_death())]
    if causes:
        return causes[0]
    # Emulated, a guest that panics may well boot the next time.
    if emulated or isinstance(failure, MachineLost) or failure.qemu_died:
        return str(failure).partition("\n")[0]
    return None


def _open(environment: Environment, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]) -> Opened:
    """One attempt; `guests` fills as they come up."""
    if environment.segment is not None:
        stack.callback(environment.host.start(*environment.peer_server()).stop)
    if treatment.layer == "host":
        layer = _host(environment, treatment)
    elif treatment.layer == "vm":
        layer = _vm(environment, treatment, stack, guests)
    else:
        layer = _nested(environment, treatment, stack, guests)
    time.sleep(SETTLE_SECONDS)
    drop_caches(environment, layer)
    return layer


def drop_caches(environment: Environment, layer: Opened) -> None:
    """Guest first, then host, so that what the guest writes back is not in the host's cache again."""
    machines: list[Machine] = [guest.machine for guest in reversed(layer.guests)]
    for machine in (*machines, environment.host):
        machine.run("sync", timeout=300)
        if machine is not environment.host or environment.is_root:
            machine.run("tee", "/proc/sys/vm/drop_caches", input="3")


def _host(environment: Environment, treatment: Treatment) -> Opened:
    disk = environment.disks.of(treatment) if environment.disks else None
    site = Site(
        machine=environment.host,
        layer="host",
        vcpus=environment.plan.guest.vcpus,
        prefix=environment.userland(disk=disk),
        disk=disks.inside_userland(disk) if disk else None,
        link=environment.host_link(),
    )
    return Opened(site, ())


def _vm(environment: Environment, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]) -> Opened:
    host, found, bound = environment.host, environment.disks, None
    drive = disks.drive(treatment, found.of(treatment)) if found else None
    spec = _host_spec(environment, treatment, drive)
    if found and (fresh := found.fresh(treatment)) is not None:
        stack.callback(fresh.remove)
        spec = replace(spec, disks=(*spec.disks, replace(disks.drive(treatment, fresh.disk), name=FRESH_ID)))
    if treatment.levels.get("disk.page_cache") == "bounded":
        bound = Bound.make(host, f"vmtax-{environment.local.token[:8]}-{next(_numbers)}")
        stack.callback(bound.undoing.undo)
        spec = replace(spec, within=bound.enter, preallocated=True)
    if environment.wants("net") and environment.segment is None:
        spec = replace(spec, forwards=(PORT,))
    guest = _boot(environment, host, spec, environment.segment, stack)
    guests.append(guest)
    if bound is not None:
        bound.set_limit(environment.disk_size // SHARE + GROWTH_BYTES[spec.accelerator])
    return Opened(_guest_site(environment, "vm", guest), (guest,))


def _nested(environment: Environment, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]) -> Opened:
    spec = _carrier_spec(environment, treatment)
    carrier = _boot(environment, environment.host, spec, environment.segment, stack, mac=CARRIER_MAC)
    guests.append(carrier)
    if not carrier.machine.succeeds("sh", "-c", LOAD_MODULES):
        raise CannotMeasure(
            f"{carrier.path}: layer nested cannot be: no KVM inside the guest. On hardware, load kvm_intel or kvm_amd "
            "with nested=1; or measure without it: --layers host,vm"
        )
    segment = None
    if environment.segment is not None:
        segment = Segment(carrier.machine, environment.local.token[:6])
        segment.attach(GUEST_NIC)
    drive = None
    if environment.carrier_disk is not None:
        _mount_carrier_disk(environment, carrier.machine)
        nested_disk = Backing(PurePosixPath(NESTED_DISK), {}, environment.disk_size)
        drive = disks.drive(treatment, nested_disk)
    spec = _spec(environment, treatment, IN_GUEST, IMAGE_QEMU, accelerator="kvm", data=drive)
    guest = _boot(environment, carrier.machine, spec, segment, stack)
    guests.append(guest)
    return Opened(_guest_site(environment, "nested", guest), (carrier, guest))


def _host_spec(environment: Environment, treatment: Treatment, data: Drive | None) -> GuestSpec:
    """The guest that is measured, on the host under test."""
    assert environment.accelerator is not None and environment.qemu is not None
    qemu, accelerator = environment.qemu, environment.accelerator.name
    return _spec(environment, treatment, environment.placed, qemu, accelerator=accelerator, data=data)


def _spec(
    environment: Environment,
    treatment: Treatment,
    placed: Placed,
    qemu: Qemu,
    *,
    accelerator: Literal["kvm", "tcg"],
    data: Drive | None,
) -> GuestSpec:
    """The guest that is measured: the same size on every layer."""
    return GuestSpec(
        name="vm",
        vcpus=environment.plan.guest.vcpus,
        memory_bytes=environment.plan.guest.memory,
        accelerator=accelerator,
        hypervisor=qemu,
        kernel=placed.kernel,
        initrd=placed.initrd,
        root=placed.root,
        disks=(data,) if data else (),
        mitigations=cast(Literal["auto", "off"], treatment.levels["cpu.mitigations"]),
    )


def _carrier_spec(environment: Environment, treatment: Treatment) -> GuestSpec:
    """Larger by what the carrying needs; its own disk always at the defaults, the factors are the nested guest's."""
    data = Drive(str(environment.carrier_disk.path)) if environment.carrier_disk else None
    plan = environment.plan
    spec = _host_spec(environment, treatment, data)
    return replace(spec, memory_bytes=plan.guest.memory + CARRIER_MEMORY_BYTES)


def _boot(
    environment: Environment,
    parent: Machine,
    spec: GuestSpec,
    segment: Segment | None,
    stack: contextlib.ExitStack,
    *,
    mac: str = GUEST_MAC,
) -> Guest:
    """`mac`: of its card on the segment."""
    attach = None
    if segment is not None:
        tap = segment.tap_name()
        spec = replace(spec, cards=(Nic(Tap(tap), mac),))

        def attach() -> None:
            segment.attach(tap)

    return stack.enter_context(boot(parent, spec, environment.credentials, environment.local, attach=attach))


def _guest_site(environment: Environment, layer: str, guest: Guest) -> Site:
    link = None
    if guest.spec.cards:
        commands = f"address add {GUEST_ADDRESS}/{PREFIX_LENGTH} dev {GUEST_NIC}\nlink set {GUEST_NIC} up\n"
        guest.machine.run("ip", "-batch", "-", input=commands)
        link = Link(guest.machine, (), PEER_ADDRESS, PORT)
    elif guest.spec.forwards:
        guest.machine.start("iperf3", "--server", "--port", str(PORT))
        link = Link(environment.host, environment.userland(network=True), "127.0.0.1", guest.ports[PORT], at_peer=True)
    disk, fresh = _disks(guest)
    return Site(
        machine=guest.machine,
        layer=layer,
        vcpus=guest.spec.vcpus,
        prefix=(),
        disk=disk,
        fresh_disk=fresh,
        link=link,
    )


def _disks(guest: Guest) -> tuple[str | None, str | None]:
    """What the guest calls the disk under test and the one that was never written. Raises BootFailed."""
    if len(guest.spec.disks) < 2:
        return guest.spec.device(), None
    deadline = time.monotonic() + DISK_SECONDS
    while True:
        rows = (line.split() for line in guest.machine.run(*BY_SERIAL).splitlines())
        found = {row[1]: f"/dev/{row[0]}" for row in rows if len(row) == 2}
        if {DATA_ID, FRESH_ID} <= found.keys():
            return found[DATA_ID], found[FRESH_ID]
        if time.monotonic() > deadline:
            raise BootFailed(f"{guest.path}: not all of its disks came up; it sees {', '.join(found) or 'none'}")
        time.sleep(0.5)


def _mount_carrier_disk(environment: Environment, carrier: Machine) -> None:
    """ext4 with one raw file in it, made and filled at the first boot and kept for all the others."""
    if not environment.carrier_ready.is_set():
        carrier.run("mkfs.ext4", "-q", "-F", CARRIER_DISK, timeout=300)
    carrier.run("mount", "-t", "ext4", CARRIER_DISK, CARRIER_MOUNT)
    if environment.carrier_ready.is_set():
        return
    size = environment.disk_size
    carrier.run("fallocate", "-l", str(size), NESTED_DISK)
    allocation = f"{describe({})} on ext4 on the carrier's data disk, which is another"
    when = "in the carrier's first boot, before anything was measured in it"
    environment.first_writes["nested"] = fill(carrier, (), NESTED_DISK, size, allocation=allocation, when=when)
    carrier.run("sync", timeout=300)
    environment.carrier_ready.set()
