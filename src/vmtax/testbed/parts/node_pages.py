"""Huge pages of the NUMA nodes that `memory.node` asks for: added to the pools of these nodes for the whole run.

The kernel chooses the node of surplus pages, so a plan that names nodes has none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from vmtax.core.records import Treatment
from vmtax.core.units import count_of, format_room
from vmtax.design.guest import GuestSettings, MemoryBacking, MemoryNode
from vmtax.machine import Machine
from vmtax.meter.text import GREP, Files, parse_files, whole
from vmtax.plan.guests import guests_at_once, largest
from vmtax.testbed.host import needs
from vmtax.testbed.host.cpus import NODE as NODES
from vmtax.testbed.host.cpus import read
from vmtax.testbed.parts.numa import NODE, huge_nodes, nodes_of, prove
from vmtax.testbed.parts.pages import BACKING, GIVE_BACK, no_such_pages, pages_at_once
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.session.examine import is_root
from vmtax.testbed.subjects.provisioned import Provisioned

Kind = tuple[MemoryBacking, int]  # the size of pages, and a NUMA node


class NodePages(Part):
    """Huge pages on the nodes that the plan names."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        by_kind = _by_kind(request)
        if not by_kind:
            return {}
        files, rooms = _read(request.host), dict(read(request.host).room)
        beside = needs.QEMU_MEMORY_BYTES
        if any(not GuestSettings.of(each.levels).backing.page_bytes for each in request.treatments):
            beside = needs.most_memory(request.plan)  # of guests without huge pages, while the pools have theirs
        refused: dict[str, str] = {}
        lacking = {kind: _lacking(files, kind, max(wanted.values())) for kind, wanted in by_kind.items()}
        taken: dict[int, int] = {}
        for (backing, node), more in lacking.items():
            taken[node] = taken.get(node, 0) + (more or 0) * (backing.page_bytes or 1)
        for (backing, node), wanted in by_kind.items():
            more, why = lacking[backing, node], ""
            if more is None:
                why = no_such_pages(backing)
            elif more and taken[node] + beside > rooms[node]:
                why = (
                    f"{NODE}: {format_room(taken[node])} of huge pages and {format_room(beside)} beside them are more"
                    f" than the {format_room(rooms[node])} that node {node} has available: lower guest.memory"
                )
            elif more and not is_root(request.host):
                why = (
                    f"{BACKING}={backing}: only root may have huge pages made (tee {_pool(backing, node)}/nr_hugepages)"
                )
            refused |= dict.fromkeys(wanted, why) if why else {}
        return refused

    def announced(self, request: Request) -> Sequence[str]:
        lines = []
        for (backing, node), wanted in _by_kind(request).items():
            count = max(wanted.values())
            size = format_room(count * (backing.page_bytes or 1))
            lines.append(
                f"{count_of(count, 'page')} of {backing} ({size}) of NUMA node {node}, for the whole run; given back"
            )
        return lines

    def take(self, request: Request) -> Mapping[str, str]:
        impossible: dict[str, str] = {}
        for kind, wanted in _by_kind(request).items():
            if why := _taken(request.host, kind, max(wanted.values())):
                impossible |= dict.fromkeys(wanted, why)
        return impossible

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        """Memory elsewhere is proved by `NumaMemory`."""
        settings = GuestSettings.of(treatment.levels)
        is_named = on.plan.space.first(NODE) is not None and settings.node is MemoryNode.LOCAL
        plan = largest(on.plan)
        nodes = nodes_of(on.topology, on.topology.equal(guests_at_once(plan) * plan.guest.vcpus).node, settings.node)
        if not (is_named and settings.backing.page_bytes and nodes):
            return order
        return order.then(lambda guest: prove(on.host, guest, nodes))


def _by_kind(request: Request) -> dict[Kind, dict[str, int]]:
    """The pages that are taken -> treatments that take some, with how many."""
    nodes = huge_nodes(request)
    found: dict[Kind, dict[str, int]] = {}
    for each in request.treatments:
        for node in nodes.get(each.name, ()):
            pages = -(-pages_at_once(request.plan, each) // len(nodes[each.name]))
            found.setdefault((GuestSettings.of(each.levels).backing, node), {})[each.name] = pages
    return found


def _pool(backing: MemoryBacking, node: int) -> PurePosixPath:
    return PurePosixPath(NODES) / f"node{node}/hugepages/hugepages-{(backing.page_bytes or 1) // 1024}kB"


def _read(machine: Machine) -> Files:
    pools = (f"{NODES}/node[0-9]*/hugepages/hugepages-*/{name}" for name in ("nr", "free", "surplus"))
    return parse_files(
        machine.try_run("sh", "-c", f"exec {' '.join(GREP)} '' {'_hugepages '.join(pools)}_hugepages").stdout
    )


def _counts(files: Files, kind: Kind) -> tuple[int, int] | None:
    """How many pages the node's pool has without surplus, and how many of them are free; None: there is no pool."""
    total, free, surplus = (whole(files.get(f"{_pool(*kind)}/{name}_hugepages")) for name in ("nr", "free", "surplus"))
    return None if total is None or free is None else (total - (surplus or 0), free)


def _lacking(files: Files, kind: Kind, wanted: int) -> int | None:
    counts = _counts(files, kind)
    return None if counts is None else max(0, wanted - counts[1])


def _taken(machine: Machine, kind: Kind, wanted: int) -> str | None:
    """Add to the node's pool what it lacks. Why the host does not give it; None if it does."""
    (backing, node), setting = kind, f"{_pool(*kind)}/nr_hugepages"
    counts = _counts(_read(machine), kind)
    if counts is None:
        return no_such_pages(backing)
    total, free = counts
    if free >= wanted:
        return None
    after = total + wanted - free
    undoing = machine.undo_later(*GIVE_BACK, setting, str(total), str(after))
    written = machine.try_run("tee", setting, input=str(after)).ok
    given = _counts(_read(machine), kind)
    if written and given is not None and given[1] >= wanted:
        return None
    undoing.undo()
    if not written:
        return f"{BACKING}={backing}: only root may have huge pages made (tee {setting})"
    there = given[1] if given is not None else 0
    return f"{BACKING}={backing} takes {wanted} pages of node {node}, and the kernel could give only {there} there"
