"""What the kernels of other machines say of their CPUs, as files of /proc and /sys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CPU, NODE = "/sys/devices/system/cpu", "/sys/devices/system/node"


@dataclass(frozen=True)
class Cores:
    """CPUs of one kind, one after the other."""

    count: int  # CPUs
    threads: int = 1  # of each core
    kind: str = ""  # "cpu_core", "cpu_atom"; empty: the processor is not hybrid
    top: float = 0.0  # highest frequency, GHz; 0: the kernel does not tell
    base: float = 0.0
    capacity: int = 0
    cache: str = "30720K"  # of the third level
    node: int = 0
    socket: int = 0
    preferred: float = 0.0  # GHz more that the first core reaches


ALDER = (Cores(16, 2, "cpu_core", 4.9, 3.6, preferred=0.1), Cores(4, 1, "cpu_atom", 3.8, 2.7))  # i7-12700K


def files(*cores: Cores, **changed: str) -> dict[str, str]:
    """The files of a machine. Changed: allowed, online, isolated (lists of CPUs), far (siblings are numbered far
    apart, as on servers: the second threads after all cores), room (kB that each node has free).
    """
    every = [(each, place) for each in cores for place in range(each.count)]
    found = {"/proc/self/status": f"Cpus_allowed_list:\t{changed.get('allowed', f'0-{len(every) - 1}')}"}
    found[f"{CPU}/online"] = changed.get("online", f"0-{len(every) - 1}")
    found[f"{CPU}/isolated"] = changed.get("isolated", "")
    kinds: dict[str, list[str]] = {}
    nodes: dict[int, list[str]] = {}
    start = 0
    for each in cores:
        half = each.count // each.threads
        for place in range(each.count):
            number, own = start + place, f"{CPU}/cpu{start + place}"
            core = place % half if "far" in changed else place // each.threads
            mates = [start + other for other in range(each.count) if _core(other, half, each, changed) == core]
            found[f"{own}/topology/core_cpus_list"] = ",".join(map(str, mates))
            found[f"{own}/topology/physical_package_id"] = str(each.socket)
            found[f"{own}/cache/index3/size"] = each.cache
            top = each.top + (each.preferred if core == 0 else 0)
            numbers = {"cpufreq/cpuinfo_max_freq": top * 1e6, "cpufreq/base_frequency": each.base * 1e6}
            numbers["cpu_capacity"] = each.capacity
            found |= {f"{own}/{name}": f"{value:.0f}" for name, value in numbers.items() if value}
            kinds.setdefault(each.kind, []).append(str(number))
            nodes.setdefault(each.node, []).append(str(number))
        start += each.count
    found |= {f"/sys/devices/{kind}/cpus": ",".join(each) for kind, each in kinds.items() if kind}
    for node, each in nodes.items():
        found[f"{NODE}/node{node}/cpulist"] = ",".join(each)
        room = changed.get("room", "64000000")
        found[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: 9 kB\nNode {node} MemFree:  {room} kB"
    return {path: text for path, text in found.items() if text}


def _core(place: int, half: int, each: Cores, changed: dict[str, str]) -> int:
    return place % half if "far" in changed else place // each.threads


def printed(found: dict[str, str]) -> str:
    """What `cpus.QUESTION` prints on such a machine."""
    return "".join(f"{path}:{line}\n" for path, text in found.items() for line in text.splitlines())


def lay(root: Path, found: dict[str, str]) -> None:
    """Write the files below a directory."""
    for path, text in found.items():
        file = root / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


def listed(allowed: str, siblings: str = "") -> str:
    """What `cpus.QUESTION` prints where nothing is known but which CPUs we may use, and the siblings of each CPU."""
    found = {"/proc/self/status": f"Cpus_allowed_list:\t{allowed}"}
    lines = siblings.splitlines()
    return printed(found | {f"{CPU}/cpu{n}/topology/core_cpus_list": line for n, line in enumerate(lines)})
