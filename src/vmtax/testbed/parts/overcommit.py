"""The factor `cpu.overcommit`: guests that work at the same time share fewer CPUs of the host than they have together.

The host's sets of processes and containers share as many, so that what is compared is what lies between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from vmtax.core.records import Treatment
from vmtax.core.units import count_of, cpu_numbers
from vmtax.design.guest import OVERCOMMIT, GuestSettings
from vmtax.hypervisor import BootFailed, Guest
from vmtax.machine import Machine
from vmtax.plan.guests import overcommits, sized
from vmtax.testbed.host.cpus import Sets, read
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

ATTEMPTS = 3  # a thread that is not held yet may start another


class Overcommit(Part):
    """CPUs of the host that several guests share."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        if not overcommits(request.plan):
            return {}  # then `room.py` decides, for the plan as a whole
        has, found = len(read(request.host).cpus), {}
        for each in request.treatments:
            if OVERCOMMIT.name not in each.levels and request.accelerator != "kvm":
                continue
            sets = sets_of(each)
            if (takes := sets.cpus(sized(request.plan, each.levels).guest.vcpus)) > has:
                found[each.name] = (
                    f"{OVERCOMMIT.name}={sets.share}: {count_of(sets.count, 'machine')} at once take {takes} CPUs, and"
                    f" {request.host.path} has {has}: leave it out, or lower guest.count or guest.vcpus"
                )
        return found

    def notes(self, request: Request) -> Sequence[str]:
        levels = [each.levels for each in request.guests]
        if not any(each.get(OVERCOMMIT.name, "1") != "1" and "vhost" in each.get("net.path", "") for each in levels):
            return ()
        return (f"{OVERCOMMIT.name}: before Linux 6.4, the threads of vhost run beside the CPUs that guests share.",)

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        cpus = shared(on, treatment)
        return order if cpus is None else order.then(lambda guest: hold(on.host, guest, cpus))


def sets_of(treatment: Treatment) -> Sets:
    """The machines of a treatment that work at the same time, and how they share CPUs."""
    settings = GuestSettings.of(treatment.levels)
    return Sets(settings.count, settings.overcommit)


def shared(on: Provisioned, treatment: Treatment) -> str | None:
    """The CPUs that all machines of a treatment share, as taskset takes them; None if that is nothing that the plan
    varies, or there is only one machine.
    """
    sets = sets_of(treatment)
    return on.cpus_of_all(sets) if sets.count > 1 and overcommits(on.plan) else None


def hold(parent: Machine, guest: Guest, cpus: str) -> None:
    """Hold all threads of a guest's QEMU to these CPUs. Raises BootFailed if one may run elsewhere."""
    wanted = sorted(cpu_numbers(cpus))
    for _ in range(ATTEMPTS):
        threads = guest.threads(parent)
        astray = [thread for thread in threads if cpu_numbers(thread.cpus) != wanted]
        if threads and not astray:
            return
        for thread in astray:
            parent.try_run("taskset", "--cpu-list", "--pid", cpus, str(thread.id))
    raise BootFailed(
        f"{guest.path}: {OVERCOMMIT.name} was not obtained: threads of its QEMU may run beside CPUs {cpus}"
    )
