"""Find out which CPUs a host offers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from vmtax.core.units import cpu_numbers
from vmtax.machine import Machine

# The CPUs that our processes may use, then one line for each CPU of the machine with the CPUs of its core. Constant
# text.
QUESTION = (
    "sh",
    "-c",
    "grep Cpus_allowed_list /proc/self/status || exit 1;"
    " cat /sys/devices/system/cpu/cpu[0-9]*/topology/core_cpus_list 2> /dev/null; true",
)


def cores(machine: Machine) -> list[list[int]]:
    """The CPUs that our processes may use there, grouped by core, in the order of their first CPUs."""
    first, _, rest = machine.run(*QUESTION).partition("\n")
    return by_core(cpu_numbers(first.rpartition(":")[2]), rest)


def by_core(cpus: Sequence[int], siblings: str) -> list[list[int]]:
    """Those CPUs, grouped by core. `siblings`: lines of sysfs' core_cpus_list; a CPU that no line names is a core by
    itself.
    """
    core = {cpu: each[0] for line in siblings.splitlines() if (each := cpu_numbers(line)) for cpu in each}
    found: dict[int, list[int]] = {}
    for cpu in cpus:
        found.setdefault(core.get(cpu, cpu), []).append(cpu)
    return list(found.values())


def apart(each: Sequence[Sequence[int]]) -> list[int]:
    """The CPUs of these cores, spread out: the first thread of every core, then the second thread of every core."""
    return [cpu for threads in zip_longest(*each) for cpu in threads if cpu is not None]


def in_pairs(each: Sequence[Sequence[int]]) -> list[int]:
    """The CPUs of these cores in pairs: two threads of one core, two of the next; cores with one thread come last."""
    pairs = [core[start : start + 2] for core in each for start in range(0, len(core), 2)]
    return [cpu for pair in sorted(pairs, key=len, reverse=True) for cpu in pair]


def allowed_cpus(machine: Machine) -> list[int]:
    """The CPUs that our processes may use there, one of each core first, because two threads share one core's speed."""
    return apart(cores(machine))
