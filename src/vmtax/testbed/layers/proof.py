"""Verify what a boot really got of the levels that its treatment asks for."""

from __future__ import annotations

from collections.abc import Set

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import BootFailed, Guest
from vmtax.testbed.host import obtained
from vmtax.testbed.parts import enlightenments, governor, isolation, pinning, polling
from vmtax.testbed.session.base import RunningTreatment
from vmtax.testbed.subjects.provisioned import Provisioned


def check(on: Provisioned, treatment: Treatment, running: RunningTreatment) -> None:
    """Read what the host and each guest got. Raises BootFailed if that differs from a factor's level in the plan."""
    governor.check(on.host, treatment)
    settings = GuestSettings.of(treatment.levels)
    named = {name for name in settings.levels if on.plan.space.first(name) is not None}
    for number, subject in enumerate(running.subjects, start=1):
        guest, why = subject.guest, None
        if guest is None:
            continue
        if treatment.layer == "vm":
            guest.obtained.update(_readings(on, guest, number, settings, named))
            why = obtained.why_not(settings, guest.spec.vcpus, guest.obtained, named)
        if obtained.TIMER in named:
            clock = guest.machine.try_run(*obtained.CLOCK).stdout.strip()
            why = why or obtained.why_no_clock(settings, clock, named)
        if obtained.HPET in named:
            clocks = guest.machine.try_run(*obtained.CLOCKS).stdout.strip()
            why = why or obtained.why_no_hpet(settings, clocks, named)
        if enlightenments.HYPERV in named:
            why = why or enlightenments.why_not_obtained(guest.machine, settings)
        if why:
            raise BootFailed(f"{guest.path}: {why}")


def _readings(on: Provisioned, guest: Guest, number: int, settings: GuestSettings, named: Set[str]) -> dict[str, float]:
    """Readings of a VM. `number`: of the guest, among those that run at once."""
    found: dict[str, float] = {}
    if obtained.TOPOLOGY in named:
        found |= obtained.parse_shape(guest.machine.try_run(*obtained.SHAPE).stdout)
    if settings.pinned and not named.isdisjoint((obtained.PINNING, obtained.SIBLINGS)):
        found |= pinning.readings(on.host, on.topology, guest, number, settings.count)
    if obtained.ISOLATION in named and settings.isolated:
        found |= isolation.readings(on, number)
    if obtained.POLLING in named:
        found |= polling.readings(on.host)
    memory = guest.memory_readings(on.host)
    return {f"cpu.{name}": value for name, value in found.items()} | {
        f"memory.{name}": value for name, value in memory.items()
    }
