"""A second host as the destination of migrations: which guests cannot move there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vmtax.core.records import Treatment
from vmtax.design import guest as guest_settings
from vmtax.design.guest import GuestSettings
from vmtax.testbed.parts.migration import MigrationPart
from vmtax.testbed.parts.network import NetworkPart
from vmtax.testbed.parts.part import Part, Request


class Arrival(Part):
    """Guests at the destination of their migration."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        far = request.destination
        if far is None:
            return {}
        there = replace(
            request, host=far, treatments=request.guests, accelerator=None, card=request.far_card, wire=None
        )
        reasons = {**NetworkPart().lacking(there), **MigrationPart().lacking(there)}
        impossible = {name: f"{far.path}: {why}" for name, why in reasons.items()}
        return impossible | {each.name: why for each in request.guests if (why := _why_not(each))}


def _why_not(treatment: Treatment) -> str | None:
    settings = GuestSettings.of(treatment.levels)
    for what in ("backing", "halt_polling"):
        factor = GuestSettings.factors()[what].name
        if settings.levels[factor] != guest_settings.DEFAULT.levels[factor]:
            return f"{factor}={settings.levels[factor]}: is set on the host under test, and not at the destination"
    return None
