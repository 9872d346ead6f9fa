"""Measure two hosts, or two QEMUs, in the same shuffled rounds (`run --interleave-with`).

Two QEMUs share their host and its drift: the sides differ in nothing else, and their contrast needs no correction for
sessions. Two hosts run at the same time, but drift independently; a warning beside their contrasts says so. The pure
part is in `design/interleaved.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.core.events import Event, Step
from vmtax.design.host import KERNEL_ARGUMENTS, boots_asked
from vmtax.design.interleaved import is_host, qemu_name
from vmtax.hypervisor.qemu.detect import DEFAULT
from vmtax.machine import Machine
from vmtax.plan.rules import host as checked_host
from vmtax.plan.schema import Plan
from vmtax.testbed.host import disks
from vmtax.testbed.machines.provision import provision, refuse_none_left, request_of
from vmtax.testbed.parts import GUEST_PARTS, lacking
from vmtax.testbed.session.examine import Examined, Platform, choose_platform, examine
from vmtax.testbed.session.session import CannotMeasure, Emit, Hosts, Session, TestbedOptions
from vmtax.testbed.subjects.provisioned import Provisioned

BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Prints the path of a program, as a shell would find it. Constant text: the name is an argument.
WHICH = ("sh", "-c", 'command -v -- "$1"', "sh")


def why_not(plan: Plan, options: TestbedOptions) -> str | None:
    """Why the plan cannot be interleaved with what the options name, in one line; None if it can, or if they name
    nothing.
    """
    other = options.interleave_with
    if other is None:
        return None
    if is_host(other):
        try:
            checked_host(other)
        except ValueError as error:
            return str(error)
        if boots_asked(plan.treatments()[0]):
            return f"{KERNEL_ARGUMENTS} reboots one host: measure {other} in a run of its own, or name a QEMU"
        if options.target.erase:
            return f"--erase would hold for {other} too, whose disks are others: empty what is meant, and leave it out"
        return f"{other} is the plan's own host: name another, or a QEMU" if other == plan.host else None
    if not other or other.startswith("-"):
        return f"must be local, ssh://[user@]host, lab[:NAME] or a QEMU program, not {other!r}"
    if not plan.has_guests:
        return f"{other} is taken for a QEMU, and this plan has no guests to run: name a host, or add a layer"
    own = options.qemu or DEFAULT
    return f"{other} is the QEMU that the plan is measured with: name another, or a host" if other == own else None


@dataclass(frozen=True, slots=True)
class Steps:
    """How to set up one host; tests of the sequence pass their own steps."""

    examine: Callable[..., Examined] = examine
    choose_platform: Callable[..., Platform | None] = choose_platform
    provision: Callable[[Examined], Provisioned] = provision


def examine_all(
    hosts: Hosts, session: Session, plan: Plan, options: TestbedOptions, steps: Steps | None = None
) -> list[Examined]:
    """The hosts, or QEMUs, on which the plan will be measured, the plan's own first. Nothing is made there.

    Raises CannotMeasure, also if the sides are too different, and what its parts raise.
    """
    steps = steps or Steps()
    own = steps.examine(session, hosts.host, plan, options)
    if options.interleave_with is None:
        return [own]
    if hosts.other is None:
        theirs = _second_qemu(own, options.interleave_with, steps)
    else:
        theirs = _second_host(own, hosts.other, options, steps)
    refuse_unlike(own, theirs)
    return [own, theirs]


def _second_host(own: Examined, other: Machine, options: TestbedOptions, steps: Steps) -> Examined:
    if own.host.read_text(BOOT_ID) == other.read_text(BOOT_ID):
        raise CannotMeasure(
            f"{other.path} is the machine that {own.plan.host} is: interleave with another, or with a QEMU"
        )
    session = dataclasses.replace(own.session, emit=_naming(own.session.emit, other.path))
    return steps.examine(session, other, own.plan, options, side=other.path)


def _second_qemu(own: Examined, program: str, steps: Steps) -> Examined:
    """The same host with another QEMU. KVM is tried again with it; all else is shared."""
    platform = steps.choose_platform(own.session, own.host, own.plan, own.placed, program)
    assert platform is not None, "the plan has guests"
    if _which(own.host, own.guests.qemu.identity[0]) == _which(own.host, program):
        raise CannotMeasure(f"{program} is the QEMU that the plan is measured with: name another, or a host")
    return dataclasses.replace(own, side=program, platform=platform, notes=platform.notes)


def provision_all(sides: Sequence[Examined], steps: Steps | None = None) -> list[Provisioned]:
    """Set up what the plan needs on every side; the hosts' guards undo it. Each note names its side."""
    steps = steps or Steps()
    own = steps.provision(sides[0])
    made = [own]
    for theirs in sides[1:]:
        if theirs.second_qemu:  # it uses what was set up for the first
            notes = (*theirs.notes, *own.notes[len(sides[0].notes) :])
            # The two may differ in which guests they can run: one QEMU may lack a CPU model or a disk option.
            possible = [one for one in own.plan.treatments()[0] if one.name not in own.impossible]
            unopened = disks.why_not(own.disks, possible, theirs.guests.qemu) if own.disks is not None else {}
            reasons = {**unopened, **lacking(request_of(theirs), GUEST_PARTS)}
            impossible = {**{name: f"{theirs.side}: {why}" for name, why in reasons.items()}, **own.impossible}
            refuse_none_left(own.host, own.plan.treatments()[0], impossible)
            second = dataclasses.replace(own, side=theirs.side, platform=theirs.platform, notes=notes)
            made.append(dataclasses.replace(second, impossible=impossible))
        else:
            made.append(steps.provision(theirs))
    return [dataclasses.replace(side, notes=tuple(notes)) for side, notes in zip(made, _notes(made), strict=True)]


def refuse_unlike(own: Examined, theirs: Examined) -> None:
    """Raises CannotMeasure if the sides would be set up so differently that a contrast of them would mean nothing."""
    labels = _labels(own, theirs)
    if own.host_emulated != theirs.host_emulated:
        real, played = labels if theirs.host_emulated else reversed(labels)
        raise CannotMeasure(
            f"{played} is itself emulated (TCG) and {real} is not: emulated is not compared with not emulated; "
            "interleave two hosts of one kind"
        )
    if own.emulates_guests != theirs.emulates_guests:
        kvm, tcg = labels if theirs.emulates_guests else reversed(labels)
        emulated = theirs if theirs.emulates_guests else own
        raise CannotMeasure(
            f"{kvm} runs guests on KVM, {tcg} emulates them ({emulated.guests.accelerator.reason}): emulated is not"
            " compared with not emulated; make KVM work there, or compare hosts only, with --layers host"
        )
    if own.is_root != theirs.is_root:
        root, user = labels if own.is_root else reversed(labels)
        raise CannotMeasure(
            f"root on {root} and a user on {user}: bridge and cold caches would be on one side only; "
            "be root on both, or on neither"
        )


def _labels(own: Examined, theirs: Examined) -> tuple[str, str]:
    """What to call the plan's own side, and the other."""
    if theirs.second_qemu:
        return qemu_name(own.guests.qemu.identity), theirs.side
    return own.plan.host, theirs.side


def _notes(sides: Sequence[Examined]) -> Iterator[Sequence[str]]:
    """The notes of each side: one that holds for both appears once, any other names its side."""
    if len(sides) == 1:
        yield sides[0].notes
        return
    labels = _labels(*sides)
    own, theirs = (side.notes for side in sides)
    yield [note if note in theirs else f"{labels[0]}: {note}" for note in own]
    yield [f"{labels[1]}: {note}" for note in theirs if note not in own]


def _naming(emit: Emit, who: str) -> Emit:
    """An `emit` whose steps name the second host."""

    def named(one: Event) -> None:
        emit(dataclasses.replace(one, what=f"{who}: {one.what}") if isinstance(one, Step) else one)

    return named


def _which(host: Machine, program: str) -> str:
    outcome = host.try_run(*WHICH, program)
    return outcome.stdout.strip() or program
