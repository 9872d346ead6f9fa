"""Equal CPUs: which ones all layers get, said before a run and beside its result. `boots.py` keeps guests on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.plan.guests import guests_at_once
from vmtax.testbed import needs
from vmtax.testbed.cpus import read, why_unbound
from vmtax.testbed.parts.part import Part, Request


class EqualCpus(Part):
    """The CPUs of the host under test that its layers get."""

    def announced(self, request: Request) -> Sequence[str]:
        return [*_said(request)]

    def notes(self, request: Request) -> Sequence[str]:
        return [f"{line}." for line in _said(request)]


def _said(request: Request) -> Iterator[str]:
    """What a person must know about the choice, a line each; none on a host whose CPUs are all alike."""
    plan = request.plan
    topology = read(request.host)
    chosen = topology.equal(guests_at_once(plan) * plan.guest.vcpus)
    if chosen.said:
        yield chosen.said
    if unbound := why_unbound(request.host, topology, chosen, needs.most_memory(plan)):
        yield f"memory is not bound to the NUMA node of the CPUs: {unbound}"
