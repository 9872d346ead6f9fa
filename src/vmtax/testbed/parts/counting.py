"""`guest.cycles` and `guest.exit_trace`: whether a host can count the CPU cycles and the exits of its guests."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.core.layers import GUESTS
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor import why_no_cycles
from vmtax.testbed.parts.part import EMULATED, Part, Request

CYCLES, EXIT_TRACE = (GuestSettings.factors()[name].name for name in ("cycles", "exit_trace"))


class Counting(Part):
    """Counters of a guest's CPU cycles and exits, which the host has."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        """With nested guests: their outer VM is counted as well, and it is the one that is emulated."""
        guests = {each.name: GuestSettings.of(each.levels) for each in request.treatments if each.layer in GUESTS}
        asked = {name: _asked(settings) for name, settings in guests.items()}
        if request.accelerator == "tcg":
            return {name: f"{levels[0]}=on {EMULATED}" for name, levels in asked.items() if levels}
        cycles = [name for name, levels in asked.items() if CYCLES in levels]
        why = why_no_cycles(request.host) if cycles and request.accelerator == "kvm" else None
        return dict.fromkeys(cycles, f"{CYCLES}=on: {why}") if why else {}


def _asked(settings: GuestSettings) -> list[str]:
    """The factors that are on."""
    return [name for name, is_on in ((CYCLES, settings.cycles), (EXIT_TRACE, settings.exit_trace)) if is_on]
