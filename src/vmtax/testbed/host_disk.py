"""The disk of a lab whose writes are all logged, under the guest's: found, copied, and how the guest's lies on it.

What the log has at any moment is what that disk holds if the lab loses its power then. So nothing need be cut, and all
of the lab's kernel is tried: its volumes, file systems and page cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings, Volume
from vmtax.image import cache, zfs
from vmtax.image.cache import Image
from vmtax.lab.home import Lab
from vmtax.lab.write_logs import SpareLog, spare_logs
from vmtax.machine import Machine, Reader
from vmtax.plan.schema import Plan
from vmtax.storage import Backing, Target
from vmtax.storage.copies import Copies
from vmtax.testbed.base import HostDisk
from vmtax.testbed.disks import backing_of
from vmtax.testbed.session import CannotMeasure
from vmtax.workload.durability import CHECK_SECONDS, EMULATED_CHECK_SECONDS, EMULATED_STACK_SECONDS, Durability
from vmtax.workload.durability.stacks import NO_FILE_SYSTEM, Stack

ZVOLS = "/dev/zvol/"
COPIES = 3  # of a disk that is rebuilt: before, what is flushed, and a state
SYNC_SECONDS = 300.0
UNUSED = (
    "Durability: the lab logs all writes to its spare disks, and no disk of this run lies on one, so what its host does"
    " below the image is not tried: --disk-device /dev/disk/by-id/virtio-{}."
)
# Constant text: the kernel's name of a disk, and its serial number.
SERIAL = ("sh", "-c", 'cat "/sys/block/$(basename "$(realpath -e "$1")")/serial"', "sh")
PARTITION = ("sh", "-c", 'cat "/sys/class/block/$(basename "$(realpath -e "$1")")/partition"', "sh")


@dataclass(frozen=True, slots=True)
class LoggedDisk:
    """The one disk of a lab that --disk-device names, all writes to which are logged."""

    spare: SpareLog
    target: Target

    def has(self, treatment: Treatment) -> bool:
        """Whether the guest's disk of a treatment lies on it."""
        settings = backing_of(treatment)
        if treatment.layer != "vm" or settings.lies_in_directory:
            return False
        named = self.target.group if settings.volume.is_lvm else self.target.pool if settings.volume.is_zfs else None
        return named is None

    def room(self, size: int) -> int:
        """Bytes that copies of it take, once it has a guest's disk of `size` bytes."""
        return COPIES * min(self.spare.size, self.spare.disk.stat().st_blocks * 512 + size)


def find_logged(one: Lab | None, machine: Machine | Reader, target: Target) -> LoggedDisk | None:
    """None where the host is no lab that logs, or no such disk of it is named. Only reads. Raises CannotMeasure."""
    spares = {spare.serial: spare for spare in spare_logs(one)} if one is not None else {}
    if not spares:
        return None
    found = [spares.get(machine.try_run(*SERIAL, device).stdout.strip()) for device in target.devices]
    first = next(filter(None, found), None)
    if first is not None and len(found) > 1:
        raise CannotMeasure(
            f"{machine.path}: durability in a lab that logs its writes takes one --disk-device, not {len(found)}: what"
            " was written first to several disks is in none of their logs"
        )
    if first is None:
        return None
    if one is not None and not first.log.is_file():
        raise CannotMeasure(f"{first.log} is gone, the log of {target.devices[0]}: start lab {one.name} again")
    return LoggedDisk(first, target)


def notes(one: Lab | None, found: LoggedDisk | None, treatments: Sequence[Treatment]) -> list[str]:
    """What a reader must know of what is tried in a lab that logs its writes. Raises LabError."""
    if found is None:
        spares = spare_logs(one) if one is not None else []
        return [UNUSED.format(spares[0].serial)] if spares else []
    guests = [treatment for treatment in treatments if treatment.layer == "vm" and treatment.repeats is None]
    number = sum(found.has(treatment) for treatment in guests)
    if not number:
        return [UNUSED.format(found.spare.serial)]
    return [
        f"Durability: {number} of {len(guests)} configurations have their disk on {found.target.devices[0]}, all writes"
        " to which the lab logs: a power cut of theirs takes the whole host."
    ]


def more_seconds(one: Lab | None, machine: Machine | Reader, target: Target, found: Plan, *, emulated: bool) -> float:
    """By how much the states of the host's disk make a round of a plan longer than states of guests' disks alone."""
    trials = [each for each in found.build_workloads() if isinstance(each, Durability)]
    logged = find_logged(one, machine, target) if trials else None
    if logged is None:
        return 0.0
    each = sum(
        EMULATED_STACK_SECONDS[_kind(treatment)] - EMULATED_CHECK_SECONDS
        for treatment in found.treatments()[0]
        if logged.has(treatment)
    )
    return trials[0].parameters.states * each * (1.0 if emulated else CHECK_SECONDS / EMULATED_CHECK_SECONDS)


def _kind(treatment: Treatment) -> str:
    """Of EMULATED_STACK_SECONDS."""
    settings = backing_of(treatment)
    if settings.volume.is_zfs:
        return "pool"
    return "volume" if settings.filesystem == NO_FILE_SYSTEM else "file system"


def needs_zfs(treatments: Sequence[Treatment]) -> bool:
    return any(DiskSettings.of(treatment.levels).volume.is_zfs for treatment in treatments)


def zfs_layers(image: Image, treatments: Sequence[Treatment]) -> tuple[str, ...]:
    """What is laid over the image that checks, so that it reads what these treatments lie on. Raises CannotMeasure."""
    if not needs_zfs(treatments):
        return ()
    pack = zfs.current(image)
    if pack is None:
        raise CannotMeasure("durability on ZFS takes ZFS where vmtax runs, to read what is left: vmtax image zfs")
    return (str(pack.path),)


def refuse(one: Lab | None, machine: Machine | Reader, treatments: Sequence[Treatment], target: Target) -> None:
    """Raises CannotMeasure where what durability finds on the host's own disk could not be read. Only reads."""
    found = find_logged(one, machine, target)
    image = cache.current()
    if found is not None and image is not None:
        zfs_layers(image, [treatment for treatment in treatments if found.has(treatment)])


def keep(host: Machine, logged: LoggedDisk, disk: Backing, copies: Copies) -> HostDisk:
    """Copy the disk as it is before the guest writes. Raises MachineError."""
    stack = stack_of(host, disk)
    host.run("sync", timeout=SYNC_SECONDS)  # what an earlier guest left would be written amid what is tried
    if disk.settings.volume.is_zfs:  # on which sync(1) does nothing with sync=disabled
        host.run("zpool", "sync", stack.pool, timeout=SYNC_SECONDS)
    since = logged.spare.log.stat().st_size
    # While the host may write to it: what changed meanwhile is in the log.
    copies.begin_with(logged.spare.disk)
    return HostDisk(logged.spare.log, since, logged.spare.log.stat().st_size, copies, stack)


def stack_of(host: Machine, disk: Backing) -> Stack:
    """How a guest's disk lies on the host's. Raises MachineError."""
    settings, image = disk.settings, "" if disk.is_device else disk.path.name
    kind, where = "partition", disk.lies_on
    if settings.volume is Volume.PLAIN:
        where = host.run(*PARTITION, disk.lies_on).strip()
    elif settings.volume.is_lvm:
        kind, where = "lvm", disk.lies_on.removeprefix("/dev/")
    elif settings.volume.is_zvol:
        kind, where = "zvol", disk.lies_on.removeprefix(ZVOLS)
    else:
        kind = "dataset"
    system = "zfs" if kind == "dataset" else settings.filesystem if image else NO_FILE_SYSTEM
    return Stack(kind, where, system, image, settings.format, settings.lazy_refcounts)
