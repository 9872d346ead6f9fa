"""Guests that are ended while they write: by their own power, or by that of their host."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from vmtax.core.records import Treatment
from vmtax.plan.cuts import not_ended
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.session.power import not_there_again
from vmtax.testbed.storage import cutting
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.testbed.subjects.sites import devices


class CuttingPart(Part):
    """The end of a guest that writes."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        return not_ended(request.plan, request.treatments)

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        checking = on.checking
        if on.disks is None or checking is None:
            return order
        prepared = cutting.prepare(on.session, checking, on.disks, treatment, stack)
        return order.with_disks(prepared.drive).then(
            lambda guest: cutting.cut_of(checking, prepared, devices(guest)[cutting.CUT_ID], guest)
        )


class PowerCuts(Part):
    """Cuts of the host's own power."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        return not_there_again(request.treatments) if request.cuts_power else {}
