"""What a host needs for live migration: which treatments cannot be migrated, and where two QEMUs meet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.design.migration import MODE, MigrationSettings, Mode
from vmtax.design.net import PATH, Path, settings_of
from vmtax.hypervisor import MEETING_MODE, Qemu
from vmtax.machine import Machine
from vmtax.plan.schema import Plan
from vmtax.testbed import needs
from vmtax.workload.fio import Disk

USERFAULTFD = "/proc/sys/vm/unprivileged_userfaultfd"
_numbers = itertools.count(1)


def not_here(
    machine: Machine, plan: Plan, treatments: Sequence[Treatment], *, is_wired: bool = False
) -> dict[str, str]:
    """Treatments whose guests cannot be migrated there as the plan says -> why.

    `is_wired`: the network goes over a wire to a peer that the user names
    """
    guests = [each for each in treatments if each.layer == "vm"]
    if not needs.migrates(plan):
        named = plan.space.first(MODE) is not None
        return {each.name: f"{MODE} means nothing without the workload migration" for each in guests if named}
    reasons = {each.name: _why_not(plan, each) for each in guests}
    if is_wired:
        over = "a guest is migrated on a bridge of its host alone: the card of a wire takes its packets for one tap"
        reasons = {name: found or over for name, found in reasons.items()}
    late = [each.name for each in guests if MigrationSettings.of(each.levels).mode is Mode.POSTCOPY]
    if late and (why := _why_no_postcopy(machine)):
        reasons = {**dict.fromkeys(late, why), **{name: found for name, found in reasons.items() if found}}
    return {name: why for name, why in reasons.items() if why}


def _why_not(plan: Plan, treatment: Treatment) -> str | None:
    settings = GuestSettings.of(treatment.levels)
    if any(choice.name == Disk.name for choice in plan.workloads):
        return "a guest that is migrated has no disk of its own here: measure disk in another plan"
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
        return f"{MODE}=postcopy takes userfaultfd, which that kernel does not have"
    if allowed.stdout.strip() == "1":
        return None
    return f"{MODE}=postcopy takes userfaultfd without root's rights: `sysctl vm.unprivileged_userfaultfd=1`"


def meeting(machine: Machine, qemu: Qemu, *, keeps_user: bool = False) -> str:
    """A new directory on that machine for the sockets of two QEMUs. Raises MachineError.

    `keeps_user`: these QEMUs keep the user that started them, because of their guests' devices
    """
    directory = str(machine.scratch / f"meeting-{next(_numbers)}")
    machine.run("mkdir", "-m", MEETING_MODE, directory)
    if qemu.user is not None and not keeps_user:
        machine.run("chown", str(qemu.user), directory)
    return directory
