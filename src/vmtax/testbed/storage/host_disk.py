"""A lab's disks with logged writes that hold guests' disks: find them, copy them, and find out how guests' disks are
laid out on them.

At any moment, the logs describe what these disks would hold if the lab lost its power then. So nothing has to be cut,
and all of the lab's kernel is tested: its volumes, file systems and page cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings, Volume
from vmtax.image import cache, zfs
from vmtax.image.cache import Image
from vmtax.lab.home import Lab
from vmtax.lab.write_logs import SpareLog, spare_logs
from vmtax.machine import Machine, MachineError, Reader
from vmtax.plan.schema import Plan
from vmtax.storage import Backing, Target
from vmtax.storage.copies import Copies
from vmtax.storage.ground import RAIDZ_DISKS
from vmtax.storage.power_cut import is_rebuilt, opened
from vmtax.storage.power_cuts import Lengths, at_rest, lengths
from vmtax.testbed.host.disks import backing_of
from vmtax.testbed.session.base import HostDisk, HostDisks
from vmtax.testbed.session.session import CannotMeasure
from vmtax.workload.durability import CHECK_SECONDS, EMULATED_CHECK_SECONDS, EMULATED_STACK_SECONDS, Durability
from vmtax.workload.durability.stacks import NO_FILE_SYSTEM, Stack

ZVOLS = "/dev/zvol/"
COPIES_TRIED = 5
COMPARISONS = 5  # attempts, because the host may write back its page cache meanwhile
COPIES = 3  # of each rebuilt disk: as it was before, with what was flushed, and in one state
REST_SECONDS = 60.0  # longest wait for a moment in which no log grows, while no workload writes
UNUSED = (
    "Durability: the lab logs all writes to its spare disks, and no disk of this run is on one, so what its host does"
    " below the image is not tried: --disk-device /dev/disk/by-id/virtio-{}."
)
# Prints the serial number of a disk. Constant text.
SERIAL = ("sh", "-c", 'cat "/sys/block/$(basename "$(realpath -e "$1")")/serial"', "sh")
PARTITION = ("sh", "-c", 'cat "/sys/class/block/$(basename "$(realpath -e "$1")")/partition"', "sh")


@dataclass(frozen=True, slots=True)
class LoggedDisks:
    """The disks of a lab that --disk-device names and whose writes are all logged."""

    spares: tuple[SpareLog, ...]  # one for each device of the target
    target: Target

    def of(self, treatment: Treatment) -> tuple[SpareLog, ...]:
        """The logged disks that hold the guest's disk of a treatment; () if none does."""
        settings = backing_of(treatment)
        volume = settings.volume
        if treatment.layer != "vm" or settings.lies_in_directory:
            return ()
        named = self.target.group if volume.is_lvm else self.target.pool if volume.is_zfs else None
        if volume.is_raidz:
            return self.spares[:RAIDZ_DISKS]
        return self.spares[:1] if named is None else ()

    def room(self, size: int) -> int:
        """Bytes that copies of these disks take once they hold a guest's disk of `size` bytes."""
        return sum(COPIES * min(spare.size, spare.disk.stat().st_blocks * 512 + size) for spare in self.spares)


def find_logged(one: Lab | None, machine: Machine | Reader, target: Target) -> LoggedDisks | None:
    """The logged disks of the target; None if the host is no lab that logs, or none of its disks is used. Only reads.
    Raises CannotMeasure.
    """
    spares = {spare.serial: spare for spare in spare_logs(one)} if one is not None else {}
    if not spares:
        return None
    found = [spares.get(machine.try_run(*SERIAL, device).stdout.strip()) for device in target.devices]
    logged = tuple(spare for spare in found if spare is not None)
    if not logged:
        return None
    if len(logged) < len(found):
        raise CannotMeasure(
            f"{machine.path}: the lab logs no writes to {target.devices[found.index(None)]}, and it logs those to other"
            " devices of --disk-device: for durability name only spare disks, virtio-vmtax-spare1 and so on"
        )
    for spare, device in zip(logged, target.devices, strict=True):
        if one is not None and not spare.log.is_file():
            raise CannotMeasure(f"{spare.log} is gone, the log of {device}: start lab {one.name} again")
    return LoggedDisks(logged, target)


def notes(one: Lab | None, found: LoggedDisks | None, treatments: Sequence[Treatment]) -> list[str]:
    """What a reader must know about tests in a lab that logs its writes. Raises LabError."""
    if found is None:
        spares = spare_logs(one) if one is not None else []
        return [UNUSED.format(spares[0].serial)] if spares else []
    guests = [treatment for treatment in treatments if treatment.layer == "vm" and treatment.repeats is None]
    number = sum(bool(found.of(treatment)) for treatment in guests)
    if not number:
        return [UNUSED.format(found.spares[0].serial)]
    several = sum(len(found.of(treatment)) > 1 for treatment in guests)
    where = " and ".join(filter(None, (_on(found, number - several, 1), _on(found, several, RAIDZ_DISKS))))
    return [
        f"Durability: of {len(guests)} configurations {where}, all writes to which the lab logs: a power cut of theirs"
        " takes the whole host."
    ]


def _on(found: LoggedDisks, number: int, disks: int) -> str:
    """How many configurations have their disk on the first `disks` devices, as a phrase."""
    names = found.target.devices[:disks]
    verb = "has its disk" if number == 1 else "have their disks"
    return f"{number} {verb} on {', '.join(names)}" if number else ""


def more_seconds(one: Lab | None, machine: Machine | Reader, target: Target, found: Plan, *, emulated: bool) -> float:
    """Seconds by which a round takes longer because states of the host's disk are tested, not only of the guests'
    disks.
    """
    trials = [each for each in found.build_workloads() if isinstance(each, Durability)]
    logged = find_logged(one, machine, target) if trials else None
    if logged is None:
        return 0.0
    each = sum(
        EMULATED_STACK_SECONDS[_kind(treatment)] - EMULATED_CHECK_SECONDS
        for treatment in found.treatments()[0]
        if logged.of(treatment)
    )
    return trials[0].parameters.states * each * (1.0 if emulated else CHECK_SECONDS / EMULATED_CHECK_SECONDS)


def _kind(treatment: Treatment) -> str:
    """The key of EMULATED_STACK_SECONDS."""
    settings = backing_of(treatment)
    if settings.volume.is_zfs:
        return "RAIDZ1" if settings.volume.is_raidz else "pool"
    return "volume" if settings.filesystem == NO_FILE_SYSTEM else "file system"


def needs_zfs(treatments: Sequence[Treatment]) -> bool:
    return any(DiskSettings.of(treatment.levels).volume.is_zfs for treatment in treatments)


def zfs_layers(image: Image, treatments: Sequence[Treatment]) -> tuple[str, ...]:
    """Layers over the checking guest's image that let it read these treatments' disks. Raises CannotMeasure."""
    if not needs_zfs(treatments):
        return ()
    pack = zfs.current(image)
    if pack is None:
        raise CannotMeasure("durability on ZFS takes ZFS where vmtax runs, to read what is left: vmtax image zfs")
    return (str(pack.path),)


def refuse(one: Lab | None, machine: Machine | Reader, treatments: Sequence[Treatment], target: Target) -> None:
    """Raises CannotMeasure if durability could not read the states of the host's own disk. Only reads."""
    found = find_logged(one, machine, target)
    image = cache.current()
    if found is not None and image is not None:
        zfs_layers(image, [treatment for treatment in treatments if found.of(treatment)])


def keep(host: Machine, spares: Sequence[SpareLog], disk: Backing, copies: Sequence[Copies]) -> HostDisks:
    """Copy the disks as they are before the guest writes, each to one of `copies`. Raises MachineError.

    The copy is only valid if nothing is written meanwhile: QEMU logs a write after carrying it out.
    """
    stack = stack_of(host, disk)
    host.run("sync")  # otherwise an earlier guest's data would be written back during the test
    if disk.settings.volume.is_zfs:  # with sync=disabled, sync(1) does nothing on it
        host.run("zpool", "sync", stack.pool)
    logs = [spare.log for spare in spares]
    for _ in range(COPIES_TRIED):
        at = at_rest(logs, REST_SECONDS)
        if at is None:
            break
        for spare, each in zip(spares, copies, strict=True):
            each.begin_with(spare.disk)
        if lengths(logs) == at:
            each_disk = zip(spares, at, copies, strict=True)
            return HostDisks(tuple(HostDisk(one.disk, one.log, end, of) for one, end, of in each_disk), stack)
    raise MachineError(f"{host.path}: it wrote to its disks all the time, so they were not copied as they are")


def refuse_unlike(below: HostDisks) -> None:
    """Raises MachineError if a disk differs from what is rebuilt from its log: then every state was wrong.

    Takes some seconds, during which the host must not write to the disks.
    """
    for _ in range(COMPARISONS):
        at = at_rest(below.logs, REST_SECONDS)
        if at is None:
            continue
        unlike = _unlike(below, at)
        if lengths(below.logs) != at:  # the host wrote meanwhile
            continue
        if unlike:
            raise MachineError(f"{unlike} is not what its log and the copy of it say, so nothing counts")
        return
    raise MachineError("the host wrote to its disks all the time, so they were not compared with what was rebuilt")


def _unlike(below: HostDisks, at: Lengths) -> Path | None:
    """The first disk that differs from the disk rebuilt from its log at those lengths."""
    for one, end in zip(below.disks, at, strict=True):
        with opened(one.log, one.since) as history:
            place, copies = history.place(end), one.copies
            if not is_rebuilt(history, place, copies.before, copies.directory / "compared", one.disk):
                return one.disk
    return None


def stack_of(host: Machine, disk: Backing) -> Stack:
    """How a guest's disk is laid out on the host's disks. Raises MachineError."""
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
