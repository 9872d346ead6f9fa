"""How a guest's memory is really backed: QEMU's mapping of it in /proc, and the pages that KVM maps for the guest."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.machine import Machine

# Prints the relevant lines of the mappings of one QEMU. $1: an argument that only this QEMU has.
MAPPINGS = (
    *("sh", "-c"),
    'grep -hsE "^[0-9a-f]+-|^(Size|KernelPageSize|Rss|Pss|AnonHugePages|ShmemPmdMapped|FilePmdMapped|Shared_Hugetlb|'
    'Private_Hugetlb|VmFlags):" $(grep -lsF -e "$1" /proc/[0-9]*/cmdline | sed s/cmdline/smaps/); true',
    "sh",
)
KVM_PAGES = ("pages_4k", "pages_2m", "pages_1g")
HUGE = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")
HUGETLB = ("Shared_Hugetlb", "Private_Hugetlb")


def memory_readings(parent: Machine, qmp: Qmp, unique: str, memory_bytes: int) -> dict[str, float]:
    """How the guest's memory is mapped now, in bytes; unreadable values are left out.

    unique: an argument that only this QEMU has
    """
    return {**parse_smaps(parent.try_run(*MAPPINGS, unique).stdout, memory_bytes), **_kvm_pages(qmp)}


def parse_smaps(text: str, memory_bytes: int) -> dict[str, float]:
    """Readings of the mapping that holds the guest's memory:

    resident_bytes, huge_bytes: touched, and of that in transparent huge pages
    hugetlb_bytes: in huge pages of a pool
    page_bytes: the size of the pages that the kernel takes for it
    shared, mergeable: 1 if it is a file that others could map too; if ksmd may merge its pages

    And beyond_bytes: the other memory of the process; of memory that it shares with others, its part (Pss).
    """
    mappings = list(_mappings(text))
    fitting = [
        (sizes["Size"], permissions, sizes, flags)
        for permissions, sizes, flags in mappings
        # Code translated by QEMU may be as large, but is executable.
        if permissions.startswith("rw-") and sizes.get("Size", 0) >= memory_bytes
    ]
    if not fitting:
        return {}
    _, permissions, sizes, flags = min(fitting, key=lambda one: one[0])
    return {
        "resident_bytes": sizes.get("Rss", 0),
        "huge_bytes": sum(sizes.get(name, 0) for name in HUGE),
        "hugetlb_bytes": sum(sizes.get(name, 0) for name in HUGETLB),
        "page_bytes": sizes.get("KernelPageSize", 0),
        "shared": int(permissions.endswith("s")),
        "mergeable": int("mg" in flags),
        "beyond_bytes": sum(each.get("Pss", 0) for _, each, _ in mappings) - sizes.get("Pss", 0),
    }


def _mappings(text: str) -> Iterator[tuple[str, dict[str, int], list[str]]]:
    """Permissions, sizes in bytes, and flags of each mapping."""
    for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", text):
        first, _, rest = block.partition("\n")
        words = first.split()
        if len(words) > 1:
            sizes = {name: int(size) * 1024 for name, size in re.findall(r"(?m)^(\w+):\s+(\d{1,15}) kB$", rest)}
            flags = re.search(r"(?m)^VmFlags:(.*)$", rest)
            yield words[1], sizes, flags[1].split() if flags else []


def _kvm_pages(qmp: Qmp) -> dict[str, float]:
    """How many pages of each size KVM maps for the guest; {} if it is emulated, or if QEMU does not report it."""
    found: dict[str, float] = {}
    with contextlib.suppress(QmpError, AttributeError, KeyError, TypeError):
        for provider in qmp.execute("query-stats", target="vm"):
            for each in provider["stats"]:
                name = str(each["name"]).replace("-", "_")
                if name in KVM_PAGES and isinstance(each["value"], int):
                    found[f"kvm_{name}"] = each["value"]
    return found
