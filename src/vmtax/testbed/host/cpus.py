"""Find out which CPUs a host offers, and choose equal ones for all layers: the one place that chooses.

CPUs are alike if they are of one type (core type of a hybrid processor, base or highest frequency, capacity, size of
the last cache), on one NUMA node and in one socket. Two CPUs of one core are a worse choice than two cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from operator import attrgetter

from vmtax.core.units import count_of, cpu_numbers, format_room
from vmtax.machine import Machine, Reader, rights
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.meter.text import Files, fields, kibibytes, parse_files, whole

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
# Values of neighbours in their order that differ by less are of one type: the cores that a processor prefers reach a
# few percent more than the others (Intel's Turbo Boost Max, AMD's preferred cores).
SAME_TYPE = 1.12
# The kernel's lists of the CPUs of each core type.
TYPES = ("cpu_core", "cpu_atom", "cpu_lowpower")
PER_CPU = (
    *("topology/core_cpus_list", "topology/thread_siblings_list", "topology/physical_package_id", "cpu_capacity"),
    *("cpufreq/base_frequency", "cpufreq/cpuinfo_max_freq", "cache/index3/size"),
)
# Starts a program on some CPUs, with memory of one node. 238 is set_mempolicy on x86-64, 2 is MPOL_BIND; both are
# inherited. Constant text, the arguments stay arguments.
_BOUND = (
    "import ctypes, os, sys; cpus, node = sys.argv[1], int(sys.argv[2]); "
    "libc = ctypes.CDLL(None, use_errno=True); mask = (ctypes.c_ulong * 16)(); mask[node // 64] = 1 << node % 64; "
    "failed = libc.syscall(238, 2, mask, ctypes.c_ulong(1024)); "
    "sys.exit('set_mempolicy: ' + os.strerror(ctypes.get_errno())) if failed else "
    "os.execvp('taskset', ['taskset', '-c', cpus, *sys.argv[3:]])"
)


def question(root: str = "") -> tuple[str, ...]:
    """The command that prints what a machine's kernel says of its CPUs: those that our processes may use first.

    `root`: for tests: a directory in place of /
    """
    wanted = (
        *(f"{CPU}/{name}" for name in ("online", "isolated")),
        *(f"/sys/devices/{name}/cpus" for name in TYPES),
        *(f"{NODE}/node[0-9]*/{name}" for name in ("cpulist", "meminfo")),
        *(f"{CPU}/cpu[0-9]*/{name}" for name in PER_CPU),
    )
    text = (
        f"grep -s -H Cpus_allowed_list {root}/proc/self/status || exit 1;"
        f" grep -s -H '' {' '.join(root + path for path in wanted)}; true"
    )
    return ("sh", "-c", text)


QUESTION = question()


@dataclass(frozen=True, slots=True)
class Cpu:
    """One CPU that our processes may use."""

    number: int
    core: int  # number of the first CPU of its core
    type: tuple[object, ...] = ()  # equal for CPUs that are as fast as each other, greater for faster ones
    named: str = ""  # its type for people: "cpu_core, up to 4.9 GHz"
    node: int | None = None  # NUMA node; None: not known
    socket: int | None = None

    @property
    def place(self) -> tuple[object, ...]:
        return (self.type, self.node, self.socket)


@dataclass(frozen=True, slots=True)
class Equal:
    """The CPUs that every layer gets."""

    cpus: tuple[int, ...]  # those of the workloads and of the guests' CPUs, one of each core first
    alike: tuple[int, ...]  # all CPUs like these, on which the other threads of a guest's QEMU run
    others: int  # how many CPUs are unlike these; 0: nothing is kept off any CPU
    named: str = ""  # their type and place for people; empty: all CPUs are alike
    why: str = ""  # why they are not equal, or not as good as they could be, with the figures; empty: they are
    node: int | None = None  # the NUMA node whose memory belongs to them; None: there is one, or they are on several
    shared: bool = False  # two of them are threads of one core

    @property
    def text(self) -> str:
        """As taskset takes them."""
        return ",".join(map(str, self.cpus))

    @property
    def said(self) -> str:
        """What a person must know about the choice; empty if there was none."""
        if not self.others:
            return self.why
        where = f" ({self.named})" if self.named else ""
        kept = f"CPUs {self.text}{where} for every layer; guests keep off {count_of(self.others, 'other CPU')}"
        return f"{kept}; {self.why}" if self.why else kept


@dataclass(frozen=True, slots=True)
class CpuTopology:
    """The CPUs of a machine that our processes may use."""

    cpus: tuple[Cpu, ...] = ()
    isolated: frozenset[int] = frozenset()  # over which the kernel does not spread processes
    room: tuple[tuple[int, int], ...] = ()  # NUMA node, bytes that are free or hold files; one for each node

    @property
    def numbers(self) -> list[int]:
        """All of them, one of each core first, because two threads share one core's speed."""
        return apart(self.cores)

    @property
    def cores(self) -> list[list[int]]:
        """All of them by core, in the order of their first CPUs."""
        return by_core(self.cpus)

    def equal(self, count: int) -> Equal:
        """`count` CPUs that are alike, or as alike as there are."""
        count = min(count, len(self.cpus))  # emulated guests may have more
        spread = [cpu for cpu in self.cpus if cpu.number not in self.isolated]
        usable = spread if len(spread) >= count else [*self.cpus]
        alone = "" if len(spread) >= count else _isolated(self.isolated)
        found = self._of_one_type(usable, count)
        if found is None:
            found, why = usable, _unlike(usable, count)
        else:
            places, nodes = {(cpu.node, cpu.socket) for cpu in found}, {cpu.node for cpu in found}
            kind = "NUMA nodes" if len(nodes) == len(places) else "sockets"
            why = f"the {count} CPUs lie on {len(places)} {kind}: none has as many alike" if len(places) > 1 else ""
        chosen = tuple(apart(by_core(found))[:count])
        if len({cpu.type for cpu in found}) > 1:  # then guests get no other ones either
            found = [cpu for cpu in found if cpu.number in chosen]
        cores = {cpu.number: cpu.core for cpu in found}
        of_nodes = {cpu.node for cpu in found}
        (node,) = of_nodes if len(of_nodes) == 1 and len(self.room) > 1 else (None,)
        shared = len({cores[cpu] for cpu in chosen}) < len(chosen)
        why = "; ".join(filter(None, (why, alone)))
        others, named = len(self.cpus) - len(found), _named(found, node)
        return Equal(chosen, tuple(cpu.number for cpu in found), others, named if others else "", why, node, shared)

    @staticmethod
    def _of_one_type(usable: Sequence[Cpu], count: int) -> list[Cpu] | None:
        """The best group of that many CPUs of one type; None if there is none."""
        for by in (attrgetter("place"), attrgetter("type")):
            groups: dict[object, list[Cpu]] = {}
            for cpu in usable:
                groups.setdefault(by(cpu), []).append(cpu)
            large = [each for each in groups.values() if len(each) >= count]
            own = [each for each in large if len(by_core(each)) >= count]  # a core for each
            if large:
                return max(own or large, key=lambda each: (each[0].type, -each[0].number))
        return None


@dataclass(frozen=True, slots=True)
class Sets:
    """Machines, or sets of processes, that work at the same time."""

    count: int = 1
    share: int = 1  # how many of their CPUs share one of the host

    def cpus(self, each: int) -> int:
        """How many CPUs of the host are for all of them, if each has that many."""
        return max(1, self.count * each // self.share)


ONE = Sets()


def read(machine: Reader) -> CpuTopology:
    """The CPUs of a machine; none if they cannot be read."""
    return parse(parse_files(machine.try_run(*QUESTION).stdout))


def parse(files: Files) -> CpuTopology:
    """The CPUs in what QUESTION prints."""
    allowed = cpu_numbers(fields(files.get("/proc/self/status", "")).get("Cpus_allowed_list"))
    online = cpu_numbers(files.get(f"{CPU}/online"))
    numbers = [cpu for cpu in allowed if cpu in set(online)] if online else allowed
    said = {cpu: {name: files.get(f"{CPU}/cpu{cpu}/{name}") for name in PER_CPU} for cpu in numbers}
    of_type = {cpu: name for name in TYPES for cpu in cpu_numbers(files.get(f"/sys/devices/{name}/cpus"))}
    nodes = {_number(path): text for path, text in files.items() if path.startswith(NODE) and path.endswith("cpulist")}
    of_node = {cpu: node for node, text in nodes.items() for cpu in cpu_numbers(text)}
    base, top, capacity = (
        {cpu: whole(each[name]) or 0 for cpu, each in said.items()}
        for name in ("cpufreq/base_frequency", "cpufreq/cpuinfo_max_freq", "cpu_capacity")
    )
    # The base tells types apart where it is known for all: the highest frequency differs between cores of one type.
    speeds = base if all(base.values()) else top
    ranks, rooms = _classes(speeds.values()), _classes(capacity.values())
    cpus = []
    for cpu in numbers:
        siblings = said[cpu]["topology/core_cpus_list"] or said[cpu]["topology/thread_siblings_list"]
        kind, cache = of_type.get(cpu, ""), kibibytes((said[cpu]["cache/index3/size"] or "").replace("K", " kB")) or 0
        named = [*([kind] if kind else []), *([f"up to {top[cpu] / 1e6:.1f} GHz"] if top[cpu] else [])]
        cpus.append(
            Cpu(
                number=cpu,
                core=next(iter(cpu_numbers(siblings)), cpu),
                type=(rooms[capacity[cpu]], ranks[speeds[cpu]], kind == TYPES[0], kind, cache),
                named=", ".join(named),
                node=of_node.get(cpu),
                socket=whole(said[cpu]["topology/physical_package_id"]),
            )
        )
    room = tuple((node, _room(files.get(f"{NODE}/node{node}/meminfo", ""))) for node in sorted(nodes))
    return CpuTopology(tuple(cpus), frozenset(cpu_numbers(files.get(f"{CPU}/isolated"))), room)


def by_core(cpus: Iterable[Cpu]) -> list[list[int]]:
    """The numbers of these CPUs, grouped by core; a CPU whose core is unknown forms a group of its own."""
    found: dict[int, list[int]] = {}
    for cpu in cpus:
        found.setdefault(cpu.core, []).append(cpu.number)
    return list(found.values())


def apart(each: Sequence[Sequence[int]]) -> list[int]:
    """The CPUs of these cores, spread out: the first thread of every core, then the second thread of every core."""
    return [cpu for threads in zip_longest(*each) for cpu in threads if cpu is not None]


def in_pairs(each: Sequence[Sequence[int]]) -> list[int]:
    """The CPUs of these cores in pairs: two threads of one core, two of the next; cores with one thread come last."""
    pairs = [core[start : start + 2] for core in each for start in range(0, len(core), 2)]
    return [cpu for pair in sorted(pairs, key=len, reverse=True) for cpu in pair]


def allowed_cpus(machine: Machine) -> list[int]:
    """The CPUs that our processes may use there, one of each core first."""
    return read(machine).numbers


def bound(cpus: str, node: int | None) -> tuple[str, ...]:
    """Command prefix that keeps a program on CPUs, as taskset takes them, and its memory on a node."""
    return ("taskset", "-c", cpus) if node is None else (PYTHON, *ISOLATED, _BOUND, cpus, str(node))


def why_unbound(machine: Reader, topology: CpuTopology, chosen: Equal, memory: int) -> str:
    """Why memory is bound to no node, for any guest of a plan; empty if it is, or if there is one node.

    chosen: the CPUs of all guests that run at once
    memory: bytes that are needed at most
    """
    if len(topology.room) < 2:
        return ""
    if chosen.node is None:  # fewer guests would fit: they would be treated unlike the others
        return f"it is bound for all guests of a plan or for none, and no node has their {len(chosen.cpus)} CPUs"
    if (room := dict(topology.room)[chosen.node]) < memory:
        return f"node {chosen.node} has {format_room(room)} of memory available, {format_room(memory)} are needed"
    return rights.why_not(machine, command=(*bound(chosen.text, chosen.node), "true"))


def _classes(values: Iterable[int]) -> Mapping[int, int]:
    """A number for each value, the same for values that are nearly equal, and growing with them; -1: not known."""
    found, number, before = {0: -1}, 0, 0
    for value in sorted({*values} - {0}):
        number += before > 0 and value > before * SAME_TYPE
        found[value], before = number, value
    return found


def _number(path: str) -> int:
    """The node's number in a path of its directory."""
    return whole(path.removeprefix(f"{NODE}/node").partition("/")[0]) or 0


def _room(meminfo: str) -> int:
    """Bytes of a node that are free or hold files."""
    values = [line.split()[-2:] for line in meminfo.splitlines() if any(f" {name}:" in line for name in ROOM)]
    return sum(kibibytes(" ".join(words)) or 0 for words in values)


ROOM = ("MemFree", "Active(file)", "Inactive(file)")


def _named(cpus: Sequence[Cpu], node: int | None) -> str:
    names = [*dict.fromkeys(cpu.named for cpu in cpus)]
    # The preferred cores of one type have frequencies of their own: the highest one names the type.
    name = max(names, default="")
    return ", ".join(filter(None, (name, f"node {node}" if node is not None else "")))


def _unlike(cpus: Sequence[Cpu], count: int) -> str:
    """That no `count` CPUs are alike, with how many there are of each type."""
    ordered = sorted(cpus, key=lambda cpu: cpu.type, reverse=True)
    types = [[*each] for _, each in groupby(ordered, key=lambda cpu: cpu.type)]
    each = ", ".join(f"{len(one)} of {_named(one, None) or 'another type'}" for one in types)
    return f"no {count} CPUs are alike ({each}): what a layer costs depends on which ones it gets"


def _isolated(cpus: Iterable[int]) -> str:
    named = ",".join(map(str, sorted(cpus)))
    return f"the kernel spreads no processes over the isolated CPUs {named}, so they may share one"
