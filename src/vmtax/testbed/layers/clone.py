"""Layer clone: a clone of a VM of the user's, booted by libvirt with the treatment's settings. Its system is the
user's; the workloads are those of the root image, which is entered in it as in an existing VM.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.attach import DomainError
from vmtax.attach.clone import Cloned
from vmtax.attach.domain import RUNNING
from vmtax.core.events import Step
from vmtax.core.layers import CLONE_PATH
from vmtax.core.notices import recorded
from vmtax.core.records import Treatment
from vmtax.hypervisor import BootFailed, Guest
from vmtax.image.place import place
from vmtax.machine import Machine
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.storage import Backing
from vmtax.testbed.layers import host
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.session.cloning import ClonedBoot, Cloning
from vmtax.testbed.session.examine import examine
from vmtax.testbed.session.observed import Watched
from vmtax.testbed.session.session import TestbedOptions
from vmtax.testbed.session.ways import Inside, find_qemu
from vmtax.testbed.subjects.existing import plan_inside, refuse_unentered
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload import Site

ENDED = "a clone of {} ended while it was watched: a system that restarts by itself, as after an update, is ended"


def open_layer(
    on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack, guests: list[Guest]
) -> tuple[tuple[Guest, ...], list[RunningSubject]]:
    """No guests of ours, and one subject: the clone, whose userland is entered as a host's is.

    Raises BootFailed and MachineError.
    """
    cloning, session = on.cloning, on.session
    assert cloning is not None, "a treatment of this layer has a VM that is cloned"
    point = cloning.take(session.local)
    if why := point.why_void():
        raise BootFailed(why)
    disk = on.disks.of(treatment) if on.disks else None
    if cloning.is_watched or cloning.is_windows:
        session.emit(Step("booting a clone, and leaving it alone", treatment.name))
    try:
        clone = stack.enter_context(cloning.booted(session.local, on.placed, treatment.levels, disk))
    except DomainError as error:  # this configuration is impossible, others may not be
        raise BootFailed(str(error)) from error
    if clone.machine is None:
        return (), [_watched(on, treatment, cloning, clone)]
    if isinstance(clone.machine, WindowsMachine):
        qemu, _ = find_qemu(on.host, clone.domain.uuid)
        site = Site(clone.machine, treatment.layer, on.plan.guest.vcpus, (), disk=clone.device, lead=on.lead)
        return (), [_subject(on, cloning, clone, qemu, site)]
    placed = place(clone.machine, session.local, session.image, session.emit)
    refuse_unentered(f"a clone of {cloning.name}", clone.machine, placed)
    inside = Inside(clone.machine, placed, uuid=clone.domain.uuid).on(on.host)
    there = Provisioned(**vars(examine(session, clone.machine, plan_inside(on.plan), TestbedOptions(), placed=placed)))
    device = Backing(PurePosixPath(clone.device), is_device=True, size=disk.size) if clone.device and disk else None
    site = replace(host.site(there, device), layer=treatment.layer, lead=on.lead)
    clone.machine.run("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")
    return (), [_subject(on, cloning, clone, inside.qemu, site)]


def _subject(on: Provisioned, cloning: Cloning, clone: Cloned, qemu: int | None, site: Site) -> RunningSubject:
    """A clone that was entered. `qemu`: its process on the host; None: not known"""
    accelerator, why_void = "tcg" if cloning.is_emulated else "kvm", cloning.take(on.session.local).why_void
    argv = command_line(on.host, qemu)
    boot = ClonedBoot(qemu, why_void, accelerator, argv, clone.ready_seconds, cloning.uuid, doubts(clone))
    return RunningSubject(site, offers=(boot,), path=CLONE_PATH)


def _watched(on: Provisioned, treatment: Treatment, cloning: Cloning, clone: Cloned) -> RunningSubject:
    """A clone that was not entered. Raises BootFailed."""
    qemu, why = find_qemu(on.host, clone.domain.uuid)
    if qemu is None:
        raise BootFailed(f"a clone of {cloning.name}: what it takes cannot be seen: {why}")
    point = cloning.take(on.session.local)

    def why_void() -> str:
        said = clone.domain.ask("domstate")
        if said.ok:
            state = said.stdout.strip()
            why = "" if state in RUNNING else f"a clone of {cloning.name} is {state}, and did not idle"
        else:
            why = ENDED.format(cloning.name)
        return point.why_void() or why

    accelerator = "tcg" if cloning.is_emulated else "kvm"
    argv = command_line(on.host, qemu)
    boot = ClonedBoot(qemu, why_void, accelerator, argv, clone.ready_seconds, cloning.uuid, doubts(clone))
    site = replace(host.site(on, None), layer=treatment.layer, lead=on.lead)
    return RunningSubject(site, offers=(boot, Watched(qemu, why_void)), path=CLONE_PATH)


def doubts(clone: Cloned) -> tuple[str, ...]:
    """About its boot, as they are recorded with it."""
    return (recorded("restless", clone.restless),) if clone.restless else ()


def command_line(machine: Machine, pid: int | None) -> tuple[str, ...]:
    """The command line of a process; () if it cannot be read."""
    if pid is None:
        return ()
    words = machine.try_run("sh", "-c", "tr '\\0' '\\n' < /proc/$1/cmdline", "sh", str(pid)).stdout
    return tuple(words.splitlines())
