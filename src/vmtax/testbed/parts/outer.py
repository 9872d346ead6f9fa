"""The factor `guest.outer_cpus`: an outer VM that has more CPUs than its nested guests together."""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.core.units import count_of
from vmtax.design.guest import GuestSettings
from vmtax.design.topology import machines_at_once
from vmtax.plan.guests import sized
from vmtax.testbed.host.cpus import read
from vmtax.testbed.parts.part import Part, Request

OUTER_CPUS = GuestSettings.factors()["outer_cpus"].name


class OuterCpus(Part):
    """Whether the host has that many CPUs: those of an outer VM would wait for each other otherwise, at any level."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        times = {each.name: GuestSettings.of(each.levels).outer_cpus for each in request.treatments}
        refused: dict[str, str] = {}
        for each in request.treatments:
            if times[each.name] == 1:
                continue
            guests = (machines_at_once(each) or 1) * sized(request.plan, each.levels).guest.vcpus
            if (wanted := guests * times[each.name]) > (has := len(read(request.host).cpus)):
                others = ", or lower guest.vcpus or guest.count" if times[each.name] <= has and guests > 1 else ""
                refused[each.name] = (
                    f"{OUTER_CPUS}={times[each.name]}: {wanted} CPUs of outer VMs, and the host has"
                    f" {count_of(has, 'CPU')}: leave out that level{others}"
                )
        return refused
