"""How many bytes of memory and disk a plan needs on a host. All functions are pure, except that they use the plan's own
checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmtax.core.errors import BadInput
from vmtax.core.layers import EXISTING
from vmtax.core.units import count_of, format_room
from vmtax.design.disk import DiskSettings, During
from vmtax.plan.guests import guest_levels, guests_at_once, largest, smallest
from vmtax.plan.schema import Plan
from vmtax.storage.chain import snapshots_of
from vmtax.testbed.host import disks
from vmtax.workload import Workload
from vmtax.workload.build import Build
from vmtax.workload.durability import Durability
from vmtax.workload.memory import Memory
from vmtax.workload.migration import Migration
from vmtax.workload.tlb import Tlb
from vmtax.workload.touch import Touch

COPIES = 5  # of a disk that is checked: see storage.copies.Copies
CARRIER_SPARE = 1.15  # the ext4 of an outer VM needs room beside the nested guests' disks
CARRIER_DISK_BYTES = 256 * 2**20
CARRIER_MEMORY_BYTES = 2**30  # for an outer VM beyond its guests' memory: kernel, QEMU and page cache
KERNEL_MEMORY_BYTES = 128 * 2**20  # for a guest's kernel, its root file system's changes and sshd
GUEST_MEMORY_BYTES = 256 * 2**20  # least memory of a guest that is ended while it writes
DATABASE_MEMORY_BYTES = 128 * 2**20  # for a PostgreSQL server, its client, and the program that makes its database
QEMU_MEMORY_BYTES = 128 * 2**20  # for a QEMU beyond its guest's memory


def memory_bytes(plan: Plan, layer: str, *, leaves: bool = False, count: int | None = None) -> int:
    """Bytes that the guests of one layer take of the host at a time, or that the host layer uses itself.

    leaves: migrated guests move between this host and another one; count: of guests at once, if not the plan's most
    """
    at_once, size = count or guests_at_once(plan), largest(plan).guest.memory
    if layer == "host":
        return max((needed for needed, _ in _builds(plan)), default=0) * at_once
    if layer == "container":
        return size * at_once
    if layer == EXISTING:
        return 0  # it has its memory already
    twice = layer == "vm" and migrates(plan) and not leaves
    guests = (size + QEMU_MEMORY_BYTES) * (at_once + twice)
    return guests + CARRIER_MEMORY_BYTES * outer_vms(plan) if layer == "nested" else guests


def most_memory(plan: Plan) -> int:
    """Bytes of memory that the layer which takes most of it takes."""
    return max(memory_bytes(plan, layer) for layer in plan.layers)


def memory_sum(plan: Plan, layer: str) -> str:
    """How `memory_bytes` is calculated if there are several guests at once: "4 guests x (…) = 2.5 GiB"."""
    guests, whole = guests_at_once(plan), format_room(memory_bytes(plan, layer))
    size = largest(plan).guest.memory / 2**20
    each = f"({size:.0f} MiB + {QEMU_MEMORY_BYTES / 2**20:.0f} MiB for its QEMU)"
    if layer == "vm" and migrates(plan):
        return f"2 x {each}, at the source and at the destination, = {whole}"
    if guests == 1:
        return whole
    if layer == "host":
        return f"{guests} kernel builds at once take {whole}"
    if layer == "container":
        return f"{guests} containers x {size:.0f} MiB = {whole}"
    outers = f"{outer_vms(plan)} outer VMs x " if outer_vms(plan) > 1 else "the outer VM's "
    outer = f" + {outers}{format_room(CARRIER_MEMORY_BYTES)}" if layer == "nested" else ""
    return f"{guests} guests x {each}{outer} = {whole}"


def refuse_small(plan: Plan) -> None:
    """Raises BadInput if a guest has too little memory for a kernel build. The host layer must meet the same limit."""
    memory = smallest(plan).guest.memory
    for needed, how in _builds(plan):
        if needed > memory:
            raise BadInput(
                f"build: {how} take {format_room(needed)} of memory, a guest has {format_room(memory)};"
                f" set guest.memory to {-(-needed // 2**30)}GiB, or name another target or fewer jobs"
            )


def refuse_small_for_databases(plan: Plan) -> None:
    """Raises BadInput if a guest has too little memory for the servers of its databases."""
    memory = smallest(plan).guest.memory
    servers = databases(plan)
    needed = GUEST_MEMORY_BYTES + servers * DATABASE_MEMORY_BYTES
    if servers and needed > memory:
        raise BadInput(
            f"durability: guests with {count_of(servers, 'PostgreSQL server')} need {needed // 2**20} MiB of memory"
            f" each, and have {memory // 2**20} MiB; set guest.memory to {needed // 2**20}MiB"
        )


def refuse_small_for_arrays(plan: Plan) -> None:
    """Raises BadInput if a guest has too little memory for what a workload fills: its kernel would end the workload, or
    panic.
    """
    memory = smallest(plan).guest.memory
    if not plan.has_guests:
        return
    sizes = {one.name: one.array_bytes for one in plan.build_workloads() if isinstance(one, Memory | Tlb | Touch)}
    name = max(sizes, key=lambda one: sizes[one], default="")
    if name and sizes[name] and (needed := sizes[name] + KERNEL_MEMORY_BYTES) > memory:
        raise BadInput(
            f"{name}: fills {sizes[name] // 2**20} MiB of memory, and a guest needs {KERNEL_MEMORY_BYTES // 2**20} MiB"
            f" besides, but has {memory // 2**20} MiB; set guest.memory to {needed // 2**20}MiB"
        )


def work_memory(plan: Plan) -> int:
    """Bytes of memory that a guest needs for what the plan's workloads keep in it at once, its kernel included; 0 if
    none is known to need much.
    """
    arrays = [one.array_bytes for one in plan.build_workloads() if isinstance(one, Memory | Tlb | Touch)]
    servers = databases(plan)
    return max(
        max((needed for needed, _ in _builds(plan)), default=0),
        max(arrays, default=0) + KERNEL_MEMORY_BYTES if any(arrays) else 0,
        GUEST_MEMORY_BYTES + servers * DATABASE_MEMORY_BYTES if servers else 0,
    )


def _builds(plan: Plan) -> list[tuple[int, str]]:
    """The memory of each kernel build in bytes, and how it is calculated."""
    workloads = (workload for workload in plan.build_workloads() if isinstance(workload, Build))
    return [workload.memory_bytes(largest(plan).guest.vcpus) for workload in workloads]


def migrates(plan: Plan) -> bool:
    """Whether guests are migrated: then there are two QEMUs for one guest, each with all of its memory."""
    return any(choice.name == Migration.name for choice in plan.workloads)


def with_own_disk(plan: Plan) -> str:
    """The first workload of the plan whose guests end or move with their disks, which nothing else opens or copies; ""
    if there is none.
    """
    return next((choice.name for choice in plan.workloads if choice.name in (Durability.name, Migration.name)), "")


def outer_vms(plan: Plan) -> int:
    """The most outer VMs that the plan runs at the same time, if it has nested guests."""
    return guests_at_once(plan) if "own" in guest_levels(plan, "outer") else 1


def disk_bytes(plan: Plan) -> int:
    """Bytes that are written on the host under test before the first round: every disk under test once, and the file
    from which images are filled.
    """
    size, _, beside = disk_sizes(plan)
    if not any(workload.filled_bytes for workload in plan.build_workloads()):
        return beside  # no disk is filled
    return disks.written_bytes(plan.treatments()[0], size) + beside


def disk_sizes(plan: Plan) -> tuple[int, int, int]:
    """Bytes of each disk under test; of the disks made for each boot beside one of them; and of other files: the outer
    VMs' disks, and copies of the disks of guests that were ended.
    """
    workloads = plan.build_workloads()
    size = disk_size(workloads)
    outer = sum(outer_disks(plan, size)) if size and "nested" in plan.layers else 0
    fresh = fresh_size(workloads)
    images = (size + fresh) * (has_snapshots(plan) + is_copied(plan))
    return size, fresh + images + cut_size(workloads) + _directory_room(plan), outer + cut_room(plan)


def _directory_room(plan: Plan) -> int:
    """Bytes of a directory beside a disk's file, in which the host builds a kernel, or a guest that shares it."""
    room = max((one.filled_bytes for one in plan.build_workloads() if isinstance(one, Build)), default=0)
    beside = (each.layer == "host" or DiskSettings.of(each.levels).is_shared for each in plan.treatments()[0])
    return room if room and any(beside) else 0


def has_snapshots(plan: Plan) -> bool:
    """Whether some guest writes to an image over its disk, which then needs as much space again."""
    return any(snapshots_of(DiskSettings.of(each.levels)) for each in plan.treatments()[0] if each.layer == "vm")


def is_copied(plan: Plan) -> bool:
    """Whether a disk of some guest is copied while the guest works, which needs as much space again."""
    levels = (each.levels for each in plan.treatments()[0] if each.layer == "vm")
    return any(DiskSettings.of(each).copied is not During.NONE for each in levels)


def outer_disks(plan: Plan, size: int) -> list[int]:
    """Bytes of the disk of each outer VM; the first may carry all nested guests, with a disk of `size` bytes each."""
    return [carrier_disk_bytes(size * guests_at_once(plan)), *[carrier_disk_bytes(size)] * (outer_vms(plan) - 1)]


def disk_size(workloads: Sequence[Workload[Any]]) -> int:
    """Bytes of the disk under test, the same on every layer; 0 if there is none."""
    cut = (workload.parameters.size_bytes for workload in workloads if isinstance(workload, Durability))
    return max((*cut, *(workload.filled_bytes for workload in workloads)), default=0)


def databases(plan: Plan) -> int:
    """How many PostgreSQL servers write in a guest at once."""
    workloads = plan.build_workloads()
    return max((one.parameters.databases for one in workloads if isinstance(one, Durability)), default=0)


def fresh_size(workloads: Sequence[Workload[Any]]) -> int:
    """Bytes of the disk that is made anew for each boot; 0 if there is none."""
    return max((workload.fresh_bytes for workload in workloads), default=0)


def cut_room(plan: Plan) -> int:
    """Bytes of the log and of the copies for a guest that is ended while it writes."""
    workloads = plan.build_workloads()
    size = cut_size(workloads)
    if not size:
        return 0
    disk = carrier_disk_bytes(size) if "nested" in plan.layers else size
    written = sum(one.written_bytes("") for one in workloads if isinstance(one, Durability))
    return COPIES * disk + int(written)


def cut_size(workloads: Sequence[Workload[Any]]) -> int:
    """Bytes of the disk of a guest that is ended while it writes; 0 if none is."""
    return max((one.parameters.size_bytes for one in workloads if isinstance(one, Durability)), default=0)


def carrier_disk_bytes(size: int) -> int:
    """Bytes of an outer VM's disk whose nested guests' disks have `size` bytes together."""
    # Whole MiB, because QEMU does not open a disk with O_DIRECT whose size is no multiple of the block size.
    return (int(size * CARRIER_SPARE) + CARRIER_DISK_BYTES) // 2**20 * 2**20
