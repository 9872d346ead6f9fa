"""`guest.cycles` and `guest.exit_trace`: whether a host can count the CPU cycles and the exits of its guests."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.core.records import Treatment
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import why_no_cycles
from vmtax.machine import Machine

CYCLES, EXIT_TRACE = (GuestSettings.factors()[name].name for name in ("cycles", "exit_trace"))


def not_here(machine: Machine, treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments the cycles of whose guests cannot be counted there, with KVM -> why."""
    wanted = [each.name for each in treatments if each.layer != "host" and GuestSettings.of(each.levels).cycles]
    why = why_no_cycles(machine) if wanted else None
    return dict.fromkeys(wanted, f"{CYCLES}=on: {why}") if why else {}


def without_kvm(treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments whose guests are to be counted in ways that only KVM has -> why not, if guests are emulated.

    A nested guest's outer VM is counted as well, and it is the one that is emulated.
    """
    found = {}
    for each in treatments:
        settings = GuestSettings.of(each.levels)
        asked = {CYCLES: settings.cycles, EXIT_TRACE: settings.exit_trace}
        if each.layer != "host" and (level := next((name for name, is_on in asked.items() if is_on), None)):
            found[each.name] = f"{level}=on takes KVM, and the guests here are emulated"
    return found
