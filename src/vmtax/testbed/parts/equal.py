"""Equal CPUs: which ones all layers get, said before a run and beside its result. `boots.py` keeps guests on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vmtax.core.units import as_size, format_room
from vmtax.design.size import MEMORY, VCPUS
from vmtax.design.topology import machines_at_once
from vmtax.meter.memory import available_memory
from vmtax.plan.guests import guests_at_once, largest, names_size, sized
from vmtax.testbed.host import needs
from vmtax.testbed.host.cpus import read, why_unbound
from vmtax.testbed.parts.overcommit import sets_of
from vmtax.testbed.parts.part import Part, Request
from vmtax.testbed.session.room import why_few_cpus


class EqualCpus(Part):
    """The CPUs of the host under test that its layers get, and whether guests of several sizes find room there."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        if not names_size(request.plan):
            return {}  # then the plan is refused as a whole
        host, has, memory = request.host, len(read(request.host).cpus), available_memory(request.host)
        refused: dict[str, str] = {}
        for each in request.treatments:
            plan, count = sized(request.plan, each.levels), machines_at_once(each) or 1
            cpus, bytes = plan.guest.vcpus, needs.memory_bytes(plan, each.layer, count=count)
            few = why_few_cpus(host, sets_of(each), cpus) if request.accelerator != "tcg" else None
            if has < cpus or few:
                refused[each.name] = f"{VCPUS}={cpus}: the host {few or f'has {has} CPUs'}"
            elif memory is not None and bytes > memory:
                refused[each.name] = (
                    f"{MEMORY}={as_size(plan.guest.memory)}: {format_room(bytes)} are needed at a time, and"
                    f" the host has {format_room(memory)} available"
                )
        return refused

    def announced(self, request: Request) -> Sequence[str]:
        return [*_said(request)]

    def notes(self, request: Request) -> Sequence[str]:
        return [f"{line}." for line in _said(request)]


def _said(request: Request) -> Iterator[str]:
    """What a person must know about the choice, a line each; none on a host whose CPUs are all alike."""
    plan = largest(request.plan)
    topology = read(request.host)
    chosen = topology.equal(guests_at_once(plan) * plan.guest.vcpus)
    if names_size(request.plan):
        yield f"host and containers get as many CPUs as the guests that they are compared with ({VCPUS})"
    if chosen.said:
        yield chosen.said
    if unbound := why_unbound(request.host, topology, chosen, needs.most_memory(plan)):
        yield f"memory is not bound to the NUMA node of the CPUs: {unbound}"
