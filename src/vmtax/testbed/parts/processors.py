"""The factors of a guest's CPUs and clocks: which of their levels QEMU can give to guests."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.core.layers import GUESTS
from vmtax.design.guest import DEFAULT, GuestSettings
from vmtax.testbed.parts.part import EMULATED, Part, Request

MODEL, TIMER, HPET = (GuestSettings.factors()[name].name for name in ("model", "timer", "hpet"))


class Processors(Part):
    """The guests' CPUs and clocks."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        """Nested guests are not checked here but when they boot. Raises QemuError if QEMU does not know a CPU model."""
        guests = {each.name: GuestSettings.of(each.levels) for each in request.guests}
        clocks: dict[str, str] = {}
        if request.accelerator == "tcg":
            with_clock = [name for name, guest in guests.items() if guest.timer == "kvm-clock"]
            clocks = dict.fromkeys(with_clock, f"{TIMER}=kvm-clock {EMULATED}")
        return {**_refused(request, guests), **clocks}


def _refused(request: Request, guests: Mapping[str, GuestSettings]) -> dict[str, str]:
    """Guests that QEMU refuses -> why."""
    qemu, accelerator = request.qemu, request.accelerator
    if qemu is None or accelerator is None:
        return {}
    models = dict.fromkeys(GuestSettings.of(each.levels).model for each in request.treatments if each.layer in GUESTS)
    asked = {model: qemu.why_no_cpu(request.host, model, accelerator) for model in models if model != DEFAULT.model}
    reasons = {model: why for model, why in asked.items() if why is not None}
    impossible = {
        name: f"{MODEL}={guest.model}: {reasons[guest.model]}"
        for name, guest in guests.items()
        if guest.model in reasons
    }
    with_hpet = {name: f"{TIMER}=hpet" for name, guest in guests.items() if guest.timer == "hpet"}
    with_hpet |= {name: f"{HPET}=on" for name, guest in guests.items() if guest.hpet}
    if with_hpet and (why := qemu.why_no_hpet(request.host, accelerator)) is not None:
        impossible |= {name: f"{level}: {why}" for name, level in with_hpet.items()}
    return impossible
