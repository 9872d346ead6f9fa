"""A guest that fits on one NUMA node of its host, and is free to have its CPUs and its memory on several.

Sources: the kernel's Documentation/admin-guide/mm/numaperf.rst; libvirt's formatdomain (numatune); qm(1) (affinity).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vmtax.core.machines import Reader
from vmtax.core.units import cpu_numbers
from vmtax.existing.advice import SettingAdvice
from vmtax.existing.guest import ExistingGuest

NODES = "/sys/devices/system/node"
SECONDS = 10.0  # for reading a few lines
MEMORY = re.compile(r"MemTotal:\s*(\d{1,15}) kB")
WHY = (
    "its CPUs may run on {} NUMA nodes of the host, and it would fit on one, where no access to its memory is remote;"
    " the other guests on that node count, too"
)


@dataclass(frozen=True, slots=True)
class HostNode:
    """A NUMA node of a host."""

    number: int
    cpus: frozenset[int]
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class NodeAdvice(SettingAdvice):
    """That a guest should be kept on this node."""

    node: HostNode = field(kw_only=True)

    def patch(self, guest: ExistingGuest) -> str:
        """How to keep it there, for the tool that the guest is configured with."""
        cpus, number = _ranges(self.node.cpus), self.node.number
        if guest.kind == "libvirt":
            pinned = f"only CPUs of {cpus} in every cpuset of <vcpu> and <vcpupin>"
            where = pinned if guest.placement.cpus else f"<vcpu … cpuset='{cpus}'>"
            memory = f", <numatune><memory mode='preferred' nodeset='{number}'/></numatune>"
            return f"virsh edit {guest.name}: {where}{memory if guest.placement.node is None else ''}"
        if guest.kind == "proxmox":
            return f"qm set VMID --affinity {cpus}"
        return f"start it by: numactl --cpunodebind={number} --preferred={number} qemu-system-x86_64 …"


def host_nodes(reader: Reader) -> tuple[HostNode, ...]:
    """Those that have CPUs; empty where the host does not say. Raises MachineLost."""
    online = reader.try_run("cat", f"{NODES}/online", timeout=SECONDS)
    nodes = []
    for number in cpu_numbers(online.stdout if online.ok else ""):
        paths = (f"{NODES}/node{number}/cpulist", f"{NODES}/node{number}/meminfo")
        said = reader.try_run("cat", *paths, timeout=SECONDS)
        cpus, _, meminfo = said.stdout.partition("\n")
        memory = MEMORY.search(meminfo)
        if said.ok and memory and cpu_numbers(cpus):
            nodes.append(HostNode(number, frozenset(cpu_numbers(cpus)), int(memory[1]) << 10))
    return tuple(nodes)


def node_advice(guest: ExistingGuest, nodes: Sequence[HostNode]) -> Iterator[NodeAdvice]:
    """That it be kept on one node of its host: the one where its memory is bound, or else where most of its CPUs are.

    Nothing if it is kept on one, if it is not known where it is, if it is spread on purpose, or if no node has room.
    """
    cpus, bound = guest.placement.cpus, guest.placement.node
    if cpus is None or guest.placement.is_spread:
        return
    its = [node for node in nodes if not cpus or cpus & node.cpus]
    fitting = [
        node
        for node in nodes
        if guest.vcpus <= len(node.cpus) and guest.memory_bytes <= node.memory_bytes and bound in (None, node.number)
    ]
    if len(its) > 1 and fitting:
        best = max(fitting, key=lambda node: len(cpus & node.cpus))
        yield NodeAdvice("slow", guest.name, "memory.node", "any", "local", WHY.format(len(its)), node=best)


def _ranges(cpus: Iterable[int]) -> str:
    """In the kernel's list notation: "0-3,8"."""
    runs = [
        [cpu for _, cpu in run] for _, run in itertools.groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])
    ]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
