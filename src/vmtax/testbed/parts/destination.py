"""A second host as the destination of migrations: whether it can take the guests, and how their memory reaches it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.core.units import format_room
from vmtax.design import guest as guest_settings
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import GuestSpec
from vmtax.image.place import place
from vmtax.machine import Machine
from vmtax.machine.ssh import SshMachine
from vmtax.meter.below import read_below
from vmtax.meter.text import fields
from vmtax.plan.schema import Plan
from vmtax.testbed.host import migration, needs
from vmtax.testbed.parts import Request, lacking
from vmtax.testbed.parts.counting import Counting
from vmtax.testbed.parts.processors import Processors
from vmtax.testbed.session.examine import Examined, Platform, check, choose_platform
from vmtax.testbed.session.session import CannotMeasure, Destination, TestbedOptions, There, refuse_two_cards

BOOT_ID = "/proc/sys/kernel/random/boot_id"
SOCKET = "migration"  # as in hypervisor.qemu.migrate, in the working directory of a QEMU
NOTE = (
    "Guests move to {0.host}, over the card {0.card} to its card {0.far_card}; their memory goes through the ssh"
    " connections of the machine that runs vmtax."
)
FLAGS = ("sh", "-c", "sed '/^$/q' /proc/cpuinfo")  # CPU flags of the first CPU


def look(host: Machine, machine: Machine, plan: Plan, wanted: Destination) -> None:
    """Raises CannotMeasure and CardInUse if no guest can move from the host there, as far as can be checked without an
    image there.
    """
    if not needs.migrates(plan):
        raise CannotMeasure(f"--destination {wanted.host}: the plan {plan.name} has no workload migration")
    if others := [choice.name for choice in plan.workloads if choice.name != "migration"]:
        raise CannotMeasure(
            f"--destination {wanted.host}: only migration is measured between two hosts: leave {', '.join(others)} out"
            " of the plan"
        )
    if host.read_text(BOOT_ID) == machine.read_text(BOOT_ID):
        raise CannotMeasure(
            f"--destination {wanted.host}: is the machine that {plan.host} is; without --destination a guest moves to"
            " another QEMU of its own host"
        )
    check(machine, plan, leaves=True)
    refuse_two_cards(host, machine, wanted)


def announced(plan: Plan, wanted: Destination) -> str:
    """What will be done and used on the destination, for the person who is asked to agree."""
    room = format_room(needs.memory_bytes(plan, "vm", leaves=True))
    return (
        f"guests to {wanted.host}, over the card {wanted.card} to its card {wanted.far_card}, both given back; it needs"
        f" as many CPUs as the host under test, and {room} of memory"
    )


def examined(own: Examined, machine: Machine, options: TestbedOptions) -> There:
    """The destination with the image on it. Raises CannotMeasure if QEMU or accelerator differ from the source's."""
    assert options.destination is not None
    placed = place(machine, own.session.local, own.session.image, own.session.emit)
    theirs = choose_platform(own.session, machine, own.plan, placed, options.qemu)
    ours, where = own.guests, machine.path
    assert theirs is not None, "the plan has guests"
    if theirs.accelerator.name != ours.accelerator.name:
        names = {"kvm": "run on KVM", "tcg": "are emulated"}
        raise CannotMeasure(
            f"{where}: guests {names[theirs.accelerator.name]} there ({theirs.accelerator.reason}), and"
            f" {names[ours.accelerator.name]} on the host under test ({ours.accelerator.reason}): a guest cannot move"
            " from one to the other"
        )
    if theirs.qemu.version != ours.qemu.version:
        raise CannotMeasure(
            f"{where}: QEMU is {theirs.qemu.version} there, and {ours.qemu.version} on the host under test: install the"
            " same, or name one that both have with --qemu"
        )
    below = read_below(machine)
    is_emulated = below["emulated_cpu"] is True
    if is_emulated is not own.host_emulated:
        emulated, other = (where, "the host under test") if is_emulated else ("the host under test", where)
        raise CannotMeasure(
            f"{emulated} is itself emulated (TCG), and {other} is not: their figures say nothing together"
        )
    if ours.accelerator.name == "kvm":
        _refuse_other_cpu(own, machine)
    _refuse_lacking(own, machine, theirs)
    note = ""
    if below["virtualized"] and not is_emulated:
        note = f"The destination {where} is itself a VM (under {below['hypervisor'] or 'an unknown hypervisor'})."
    return There(machine, options.destination, placed, theirs.qemu, theirs.accelerator.name, note)


def _refuse_lacking(own: Examined, machine: Machine, theirs: Platform) -> None:
    """Raises CannotMeasure if a guest can have a level at the source, and not at the destination."""
    here = _lacking(own.host, own.guests, own.plan)
    for name, why in _lacking(machine, theirs, own.plan).items():
        if name not in here:
            raise CannotMeasure(f"{machine.path}: {why}; leave that level out of the plan")


def _lacking(machine: Machine, platform: Platform, plan: Plan) -> dict[str, str]:
    """Treatments whose guest cannot have its CPU there, or be counted -> why."""
    guests = [each for each in plan.treatments()[0] if each.layer == "vm"]
    request = Request(machine, plan, guests, platform.qemu, platform.accelerator.name)
    return lacking(request, (Counting(), Processors()) if platform.accelerator.name == "kvm" else (Processors(),))


def _refuse_other_cpu(own: Examined, machine: Machine) -> None:
    """Raises CannotMeasure if guests see all of their host's CPU and the destination has another CPU."""
    models = {GuestSettings.of(each.levels).model for each in own.plan.treatments()[0]}
    if guest_settings.DEFAULT.model not in models:
        return
    here, there = (fields(each.run(*FLAGS)) for each in (own.host, machine))
    ours, theirs = here.get("model name", ""), there.get("model name", "")
    unlike = f"{theirs}, not {ours}" if ours != theirs else ""
    lacking = sorted(set(here.get("flags", "").split()) ^ set(there.get("flags", "").split()))
    if unlike or lacking:
        raise CannotMeasure(
            f"{machine.path}: another CPU than that of the host under test"
            f" ({unlike or 'not both have ' + ', '.join(lacking[:6])}): in the plan name a cpu.model that both can"
            " give, such as x86-64-v2, instead of host"
        )


def spec_there(there: There, spec: GuestSpec, *, keeps_user: bool) -> GuestSpec:
    """The same guest for the destination, with that host's paths and user. `keeps_user`: as in migration.meeting."""
    placed = there.placed
    return replace(
        spec,
        hypervisor=there.qemu,
        kernel=placed.kernel,
        initrd=placed.initrd,
        root=placed.root,
        meeting=migration.meeting(there.machine, there.qemu, keeps_user=keeps_user),
    )


@contextlib.contextmanager
def lead(on: Examined, near: GuestSpec, far: GuestSpec, *, keeps_user: bool) -> Iterator[None]:
    """Let the source's QEMU reach the destination's under the socket name that two QEMUs of one host use.

    The data goes through the connections over which vmtax commands both hosts. `keeps_user`: as in migration.meeting.
    Raises MachineError.
    """
    assert on.destination is not None and near.meeting is not None and far.meeting is not None
    source, machine, local = on.host, on.destination.machine, on.session.local
    here, beyond = PurePosixPath(near.meeting, SOCKET), PurePosixPath(far.meeting, SOCKET)
    with contextlib.ExitStack() as stack:
        if isinstance(machine, SshMachine):
            between = local.scratch / local.fresh_name("moves") if isinstance(source, SshMachine) else here
            stack.callback(machine.forward(between, beyond))
            beyond = between
        if isinstance(source, SshMachine):
            stack.callback(source.forward(beyond, here, back=True))
        if (user := on.guests.qemu.user) is not None and not keeps_user:
            source.run("chown", str(user), str(here))
        yield
