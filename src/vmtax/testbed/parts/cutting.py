"""Guests that are ended while they write: by their own power, or by that of their host."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.plan.cuts import not_ended
from vmtax.testbed.parts.part import Part, Request
from vmtax.testbed.power import not_there_again


class Cutting(Part):
    """The end of a guest that writes."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        return not_ended(request.plan, request.treatments)


class PowerCuts(Part):
    """Cuts of the host's own power."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        return not_there_again(request.treatments) if request.cuts_power else {}
