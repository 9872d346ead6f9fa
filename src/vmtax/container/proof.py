"""Whether a container is confined as requested, read back from inside. Pure: `READ_BACK` is run by others."""

from __future__ import annotations

from vmtax.container.bundle import Container
from vmtax.core.units import cpu_numbers

PAGE_BYTES = 4096  # the kernel rounds limits down to pages
# Prints the state of a process in the container, then the limits of its cgroup, of version 2 or 1. Constant text.
READ_BACK = (
    *("sh", "-c"),
    "cat /proc/self/status; cd /sys/fs/cgroup; if test -e memory.max; then"
    ' echo "memory: $(cat memory.max)"; echo "swap: $(cat memory.swap.max)"; else'
    ' most=$(cat memory/memory.limit_in_bytes); echo "memory: $most";'
    ' echo "swap: $(($(cat memory/memory.memsw.limit_in_bytes) - most))"; fi',
)


def why_not_confined(container: Container, text: str) -> str | None:
    """The first difference between a container and what `READ_BACK` printed in it; None if there is none."""
    seen = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        seen[name] = value.strip()
    wanted = {
        "Seccomp": "2",
        "NoNewPrivs": "1",
        "memory": str(container.memory_bytes // PAGE_BYTES * PAGE_BYTES),
        "swap": "0",
    }
    for name, value in wanted.items():
        if seen.get(name) != value:
            return f"{name} is {seen.get(name) or 'unreadable'}, not {value}"
    capabilities = int(seen.get("CapEff", "0"), 16).bit_count()
    if capabilities != len(container.capabilities):
        return f"it has {capabilities} capabilities, not {len(container.capabilities)}"
    cpus = seen.get("Cpus_allowed_list", "")
    if not cpus or set(cpu_numbers(cpus)) != set(cpu_numbers(container.cpus)):
        return f"its CPUs are {cpus or 'unreadable'}, not {container.cpus}"
    return None
