"""Live migration: which guests cannot be migrated as a plan says."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.design.migration import MODE, MigrationSettings, Mode
from vmtax.design.net import PATH, Path, settings_of
from vmtax.machine import Machine
from vmtax.testbed.host import migration, needs
from vmtax.testbed.parts.part import EMULATED, Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

USERFAULTFD = "/proc/sys/vm/unprivileged_userfaultfd"
WIRED = "a guest is migrated on a bridge of its host alone: the card of a wire takes its packets for one tap"


class MigrationPart(Part):
    """The move of a running guest to another QEMU of its host, or to another host."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        late = [name for name, mode in _modes(request).items() if mode is Mode.POSTCOPY]
        # With QEMU 7.2, an emulated guest panicked at its destination in each of four attempts.
        is_emulated = request.accelerator == "tcg"
        emulated = dict.fromkeys(late, f"{MODE}={Mode.POSTCOPY} {EMULATED}") if is_emulated else {}
        if not needs.migrates(request.plan):
            idle = [each.name for each in request.guests] if request.plan.space.first(MODE) is not None else []
            return {**dict.fromkeys(idle, f"{MODE} needs the workload migration"), **emulated}
        reasons = {each.name: _why_not(each) for each in request.guests}
        if request.wire is not None:
            reasons = {name: why or WIRED for name, why in reasons.items()}
        refused = {name: why for name, why in reasons.items() if why}
        if late and not emulated and (why := _why_no_postcopy(request.host)):
            refused = {**dict.fromkeys(late, why), **refused}
        return {**refused, **emulated}

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        if not needs.migrates(on.plan):
            return order
        keeps_user = settings_of(treatment).path.has_function
        meeting = migration.meeting(on.host, on.guests.qemu, keeps_user=keeps_user)
        return replace(order, spec=replace(order.spec, meeting=meeting))


def _modes(request: Request) -> dict[str, Mode]:
    return {each.name: MigrationSettings.of(each.levels).mode for each in request.guests}


def _why_not(treatment: Treatment) -> str | None:
    settings = GuestSettings.of(treatment.levels)
    if settings.count > 1:
        return f"guest.count={settings.count}: one guest at a time is migrated"
    if settings.pinned:
        return "cpu.pinning=one-to-one: a guest that has been migrated is not pinned"
    if Path.MACVTAP in settings_of(treatment).path.parts:
        return f"{PATH}=macvtap: the kernel has no two macvtaps with the guest's address on one card"
    if Path.SRIOV in settings_of(treatment).path.parts:
        return f"{PATH}=sriov: QEMU does not migrate a guest that has a device of the host"
    return None


def _why_no_postcopy(machine: Machine) -> str | None:
    """Why post-copy does not work there: QEMU asks the kernel for userfaultfd after it has given up root. None if it
    works.
    """
    allowed = machine.try_run("cat", USERFAULTFD)
    if not allowed.ok:
        return f"{MODE}=postcopy needs userfaultfd, which that kernel does not have"
    if allowed.stdout.strip() == "1":
        return None
    return f"{MODE}=postcopy needs userfaultfd without root's rights: `sysctl vm.unprivileged_userfaultfd=1`"
