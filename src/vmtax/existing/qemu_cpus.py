"""The CPUs of a command line of QEMU: -smp, and those that were plugged in later."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from vmtax.existing.guest import MOST_VCPUS, CpuShape, NoGuest, Remarks, shown, topology_level, whole_of_text
from vmtax.existing.qemu_words import QemuOptions, settings_of

VERSION = re.compile(r"-(\d{1,4})\.(\d{1,4})")  # of a machine: "pc-q35-5.2"
NEWEST = ("", "q35", "pc")  # machines that have the version of their QEMU
CORES_FIRST = (6, 2)  # the version of a machine from which CPUs that are only counted are cores of one socket
CPU_DEVICE = re.compile(r"(?:driver=)?[\w.-]+-(?:x86_64|i386)-cpu\b")


def cpus_of_line(line: QemuOptions, machine: str, remarks: Remarks) -> tuple[int, CpuShape, dict[str, str]]:
    """How many it has, what they are to the guest, and the level of cpu.topology. machine: its type. Raises NoGuest."""
    machine = machine.partition("+")[0]  # Proxmox writes "pc+pve0"
    settings = settings_of(line.last("smp") or "1", "cpus")
    counts: dict[str, int] = {}
    for name in ("cpus", "sockets", "cores", "threads", "maxcpus", "dies", "clusters", "modules"):
        if name in settings:
            count = whole_of_text(settings[name]) or 0
            if not 0 < count <= MOST_VCPUS:
                raise NoGuest(f"-smp {name}={shown('', settings[name])}: must be a number from 1 to {MOST_VCPUS}")
            counts[name] = count
    product = counts.get("sockets", 1) * counts.get("cores", 1) * counts.get("threads", 1) * counts.get("dies", 1)
    cpus = counts.get("cpus") or counts.get("maxcpus") or product
    cpus += sum(CPU_DEVICE.match(value) is not None for value in line.all("device"))  # plugged in later
    if counts.get("maxcpus", cpus) > cpus:
        remarks.add("-smp maxcpus", str(counts["maxcpus"]), "no CPU can be added to our guest")
    most = max(cpus, counts.get("maxcpus", 0))
    sockets, cores, threads = _shape(counts, most, machine)
    shape, said = CpuShape(sockets, most), line.last("smp") or ""
    level = topology_level(sockets, cores, threads)
    if level is None or counts.get("dies", 1) > 1:
        remarks.add("-smp", said, "is measured as one socket with cores")
        return cpus, shape, {}
    if {"sockets", "cores", "threads"} & counts.keys() or level != "cores":
        return cpus, shape, {"cpu.topology": level}
    if cpus > 1 and machine not in NEWEST and VERSION.search(machine) is None:
        remarks.add("-smp", said, "is measured as cores of one socket, which QEMU has from version 6.2 on")
    return cpus, shape, {}


def _shape(counts: Mapping[str, int], most: int, machine: str) -> tuple[int, int, int]:
    """Sockets, cores of each and threads of each, where some are not said. most: CPUs, with those still to be plugged.

    Machines before version 6.2 of QEMU have sockets rather than cores. Source: qemu-system-x86_64(1), -smp.
    """
    version = VERSION.search(machine)
    has_sockets = version is not None and (int(version[1]), int(version[2])) < CORES_FIRST
    parts = math.prod(counts.get(name, 1) for name in ("dies", "clusters", "modules"))
    sockets, cores, threads = (counts.get(name, 0) for name in ("sockets", "cores", "threads"))
    if not (sockets and cores):
        threads = threads or 1
        sockets = sockets or (0 if has_sockets or cores else 1)
        cores = cores or (1 if not sockets else max(1, most // (sockets * parts * threads)))
        sockets = sockets or max(1, most // (cores * parts * threads))
    return sockets, cores, threads or max(1, most // (sockets * cores * parts))
