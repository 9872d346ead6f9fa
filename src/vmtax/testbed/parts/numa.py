"""The factor `memory.node`: which NUMA node of the host a guest's memory is on, beside that of its CPUs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace

from vmtax.core.records import Treatment
from vmtax.core.units import format_room
from vmtax.design.guest import GuestSettings, MemoryNode
from vmtax.hypervisor import BootFailed, Guest
from vmtax.machine import Machine
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.rights import why_not
from vmtax.meter.text import whole
from vmtax.plan.guests import guests_at_once, largest
from vmtax.testbed.host import needs
from vmtax.testbed.host.cpus import CpuTopology, Equal, read, why_unbound
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

NODE = GuestSettings.factors()["node"].name
LEAST_THERE = 0.9  # of a guest's memory that must be on the nodes that were asked for
MOST_UNEVEN = 1.5  # of interleaved memory, the largest part of a node over the smallest
# Starts a program with memory from some nodes. 238 is set_mempolicy on x86-64; 2 is MPOL_BIND, 3 MPOL_INTERLEAVE; both
# are inherited. Constant text, the arguments stay arguments.
_WITH_MEMORY = (
    "import ctypes, os, sys; mode, nodes = int(sys.argv[1]), sys.argv[2].split(','); "
    "libc = ctypes.CDLL(None, use_errno=True); mask = (ctypes.c_ulong * 16)();\n"
    "for node in map(int, nodes): mask[node // 64] |= 1 << node % 64\n"
    "failed = libc.syscall(238, mode, mask, ctypes.c_ulong(1024))\n"
    "sys.exit('set_mempolicy: ' + os.strerror(ctypes.get_errno())) if failed else os.execvp(sys.argv[3], sys.argv[3:])"
)
BIND, INTERLEAVE = "2", "3"
FAR = "is about nodes of this host, and guests are migrated to another one"


class NumaMemory(Part):
    """Memory on another node than the guest's CPUs, or on all nodes in turn. Local memory is what `EqualCpus` binds."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        if request.plan.space.first(NODE) is None:
            return {}
        wanted = {each.name: GuestSettings.of(each.levels).node for each in request.guests}
        plan = largest(request.plan)
        topology, memory = read(request.host), needs.most_memory(plan)
        chosen = topology.equal(guests_at_once(plan) * plan.guest.vcpus)
        huge = huge_nodes(request)
        kinds = {name: (node, name in huge and node is not MemoryNode.LOCAL) for name, node in wanted.items()}
        reasons = {
            (node, reserved): FAR
            if request.destination is not None and node is not MemoryNode.LOCAL
            else _why_not(request.host, topology, chosen, node, 0 if reserved else memory)  # `NodePages` looks at these
            for node, reserved in dict.fromkeys(kinds.values())
        }
        return {name: f"{NODE}={wanted[name]} {reasons[kind]}" for name, kind in kinds.items() if reasons[kind]}

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        node = GuestSettings.of(treatment.levels).node
        if node is MemoryNode.LOCAL:
            return order
        plan = largest(on.plan)
        home = on.topology.equal(guests_at_once(plan) * plan.guest.vcpus).node
        nodes = nodes_of(on.topology, home, node)
        within = (*order.spec.within, *with_memory(nodes, interleaved=node is MemoryNode.INTERLEAVED))
        return replace(order, spec=replace(order.spec, within=within)).then(lambda guest: prove(on.host, guest, nodes))


def nodes_of(topology: CpuTopology, home: int | None, wanted: MemoryNode) -> tuple[int, ...]:
    """The nodes that the memory comes from; () if there are none. `home`: that of the guest's CPUs"""
    if home is None:
        return ()
    if wanted is MemoryNode.LOCAL:
        return (home,)
    if wanted is MemoryNode.INTERLEAVED:
        return tuple(node for node, _ in topology.room)
    others = [(room, node) for node, room in topology.room if node != home]
    return (max(others)[1],) if others else ()


def huge_nodes(request: Request) -> dict[str, tuple[int, ...]]:
    """Treatments whose guests have huge pages of nodes that the plan names -> these nodes."""
    if request.plan.space.first(NODE) is None:
        return {}
    plan, topology = largest(request.plan), read(request.host)
    home = topology.equal(guests_at_once(plan) * plan.guest.vcpus).node
    found = {each.name: GuestSettings.of(each.levels) for each in request.guests}
    nodes = {name: nodes_of(topology, home, guest.node) for name, guest in found.items() if guest.backing.page_bytes}
    return {name: each for name, each in nodes.items() if each}


def with_memory(nodes: tuple[int, ...], *, interleaved: bool) -> tuple[str, ...]:
    """Command prefix that starts a program with memory from these nodes."""
    mode = INTERLEAVE if interleaved else BIND
    return (PYTHON, *ISOLATED, _WITH_MEMORY, mode, ",".join(map(str, nodes)))


def _why_not(host: Machine, topology: CpuTopology, chosen: Equal, wanted: MemoryNode, memory: int) -> str:
    """Why memory cannot be there; "" if it can. `memory`: bytes that are needed at most"""
    home = chosen.node
    if wanted is MemoryNode.LOCAL:  # with one node, all memory is
        unbound = why_unbound(host, topology, chosen, memory)
        return f"cannot be had: {unbound}" if unbound else ""
    if len(topology.room) < 2:
        return "needs a host with two NUMA nodes, and this one has one"
    if home is None:
        return "needs CPUs for the guests that are all on one NUMA node, and none has as many alike"
    nodes = nodes_of(topology, home, wanted)
    rooms = dict(topology.room)
    each = memory // len(nodes)
    if (scarce := min(nodes, key=rooms.__getitem__, default=None)) is not None and rooms[scarce] < each:
        return f"takes {format_room(each)} of node {scarce}, which has {format_room(rooms[scarce])} available"
    return why_not(host, command=(*with_memory(nodes, interleaved=wanted is MemoryNode.INTERLEAVED), "true"))


def prove(parent: Machine, guest: Guest, nodes: tuple[int, ...]) -> None:
    """Raises BootFailed if the guest's memory is not on these nodes."""
    threads = guest.threads(parent)
    text = parent.try_run("cat", f"/proc/{threads[0].id}/numa_maps").stdout if threads else ""
    bytes = bytes_by_node(text)
    every, there = sum(bytes.values()), [bytes.get(node, 0) for node in nodes]
    if not every:
        raise BootFailed(f"{guest.path}: {NODE}: the kernel does not say where the guest's memory is")
    if sum(there) < LEAST_THERE * every or max(there) > MOST_UNEVEN * min(there):
        parts = ", ".join(f"{format_room(bytes[node])} on node {node}" for node in sorted(bytes))
        raise BootFailed(f"{guest.path}: {NODE} was not obtained: its memory is {parts}")


def bytes_by_node(numa_maps: str) -> dict[int, int]:
    """NUMA node -> bytes of a process that are not read from files, from the kernel's list of its mappings."""
    sizes: dict[int, int] = {}
    for line in numa_maps.splitlines():
        if "file=" in line and "memfd" not in line and "huge" not in line:
            continue
        page = _figures(r" kernelpagesize_kB=(\d{1,9})\b", line)
        for node, pages in zip(
            _figures(r" N(\d{1,4})=", line), _figures(r" N\d{1,4}=(\d{1,12})\b", line), strict=False
        ):
            sizes[node] = sizes.get(node, 0) + pages * (page[0] if page else 4) * 1024
    return sizes


def _figures(pattern: str, line: str) -> list[int]:
    return [figure for text in re.findall(pattern, line) if (figure := whole(text)) is not None]
