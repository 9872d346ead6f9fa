"""The factor `cpu.siblings`: whether two CPUs of a pinned guest are on the two threads of a core, or on two cores.

`pinning.py` chooses the CPUs; here it is judged whether the host has such cores.
"""

from __future__ import annotations

from collections.abc import Mapping

from vmtax.core.units import count_of
from vmtax.design.guest import GuestSettings
from vmtax.plan.guests import sized
from vmtax.testbed.host.cpus import CpuTopology, by_core, read
from vmtax.testbed.parts.part import Part, Request

SIBLINGS = GuestSettings.factors()["siblings"].name


class Siblings(Part):
    """Cores with two threads."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        guests = {each.name: GuestSettings.of(each.levels) for each in request.guests}
        if all(guest.siblings == "auto" for guest in guests.values()):
            return {}
        topology = read(request.host)
        vcpus = {each.name: sized(request.plan, each.levels).guest.vcpus for each in request.guests}
        reasons = {
            name: _why_not(topology, guest.siblings, guest.count * vcpus[name])
            for name, guest in guests.items()
            if guest.pinned
        }
        return {name: f"{SIBLINGS}={guests[name].siblings} {why}" for name, why in reasons.items() if why}


def _why_not(topology: CpuTopology, wanted: str, taken: int) -> str:
    """Why `taken` CPUs of guests cannot be placed so; empty if they can."""
    alike = topology.equal(taken).alike
    cores = by_core(cpu for cpu in topology.cpus if cpu.number in alike)
    pairs = sum(len(core) // 2 for core in cores)
    if wanted == "together" and 2 * pairs < taken:
        has = "no core with two threads" if not pairs else f"{pairs} of them"
        return f"needs {count_of(taken // 2, 'core')} with two threads that are alike, and the host has {has}"
    if wanted == "apart" and len(cores) < taken:
        return f"needs {count_of(taken, 'core')} that are alike, and the host has {len(cores)}"
    return ""
