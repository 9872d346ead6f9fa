"""The threads of a QEMU: which of them run the guest's CPUs, and on which CPUs of the parent each may run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from vmtax.hypervisor.base import Thread
from vmtax.hypervisor.qemu.qmp import Qmp
from vmtax.machine import Machine

# Prints a line for each thread of each process that has the argument $1: only this QEMU and its starter have it.
THREADS = (
    *("sh", "-c"),
    'for file in $(grep -lsF -e "$1" /proc/[0-9]*/cmdline); do '
    'grep -HsE "^(NSpid|Cpus_allowed_list):" "${file%cmdline}"task/*/status; done; true',
    "sh",
)
_LINE = re.compile(
    r"^/proc/(\d{1,10})/task/(\d{1,10})/status:(NSpid|Cpus_allowed_list):\s*(.*)$", re.MULTILINE | re.ASCII
)
_LAST = re.compile(r"\b\d{1,10}$", re.ASCII)


def threads(parent: Machine, qmp: Qmp, unique: str) -> tuple[Thread, ...]:
    """Threads of the QEMU that has the argument `unique`; () if they cannot be read. Raises QmpError."""
    vcpus = {cpu["thread-id"]: cpu["cpu-index"] for cpu in qmp.execute("query-cpus-fast")}
    return parse_threads(parent.try_run(*THREADS, unique).stdout, vcpus)


def parse_threads(text: str, vcpus: Mapping[int, int]) -> tuple[Thread, ...]:
    """`text`: output of THREADS; `vcpus`: thread id as QEMU reports it -> number of the guest's CPU.

    A QEMU in a PID namespace of its own counts from 1: NSpid has a thread's id in each of its namespaces.
    """
    processes: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for process, thread, name, value in _LINE.findall(text):
        processes[process][thread][name] = value
    for found in processes.values():
        own = {
            thread: int(match[0]) for thread, each in found.items() if (match := _LAST.search(each.get("NSpid", "")))
        }
        if vcpus and vcpus.keys() <= set(own.values()):
            return tuple(
                Thread(int(thread), vcpus.get(number), found[thread].get("Cpus_allowed_list", ""))
                for thread, number in own.items()
            )
    return ()
