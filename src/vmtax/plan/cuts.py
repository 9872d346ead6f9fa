"""Which guests of a plan cannot be ended while they write, and why; checked before a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings, Volume
from vmtax.design.guest import GuestSettings
from vmtax.plan.schema import Plan
from vmtax.workload.durability import Durability
from vmtax.workload.fio import Disk


def not_ended(plan: Plan, treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments whose guests cannot be ended while they write -> why."""
    names = {choice.name for choice in plan.workloads}
    if Durability.name not in names:
        return {}
    found = {one.name: _why_not(one, has_disk=Disk.name in names) for one in treatments if one.boots}
    return {name: why for name, why in found.items() if why is not None}


def _why_not(treatment: Treatment, *, has_disk: bool) -> str | None:
    """`has_disk`: the plan measures the speed of disks, too."""
    settings = DiskSettings.of(treatment.levels)
    if GuestSettings.of(treatment.levels).count > 1:
        return "durability ends one guest at a time: leave guest.count=1"
    if has_disk and treatment.layer == "nested":
        return "the outer VM that loses its power has one disk: measure disk on layer nested in another plan"
    if has_disk and settings.volume is Volume.PLAIN and not settings.is_file:
        return "durability takes a block device of its own, and the guest has the only one: measure disk apart"
    return None
