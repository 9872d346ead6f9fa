"""End guests while they write: prepare the disk and its log, and the guest that checks the disk afterwards."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from vmtax.core.records import Treatment
from vmtax.design.disk import CacheMode, DiskSettings
from vmtax.hypervisor import Drive, Guest, GuestSpec, Qemu, boot, choose, probe_spec
from vmtax.hypervisor.confine import Reach, alone, image_program
from vmtax.image.place import place
from vmtax.machine import Machine
from vmtax.meter.memory import available_memory
from vmtax.plan.schema import Plan
from vmtax.storage import Backing, RawFile
from vmtax.storage.copies import Copies
from vmtax.storage.file import check_free, free_bytes
from vmtax.testbed.host import disks, needs
from vmtax.testbed.host.disks import Disks
from vmtax.testbed.session.base import Cut, HostDisks
from vmtax.testbed.session.session import Session
from vmtax.testbed.storage import host_disk
from vmtax.testbed.storage.databases import DatabasePack, open_pack
from vmtax.testbed.storage.host_disk import LoggedDisks

CUT_ID = "cut"  # name of the disk that is written until the end
CHECKED_ID = "checked"
HOST_ID = "host{}"
# A checker would take the device's earlier contents for data that was written. Constant text.
ZEROS = ("blkdiscard", "--zeroout")
ZERO_SECONDS = 600.0  # /proc does not show how far the device is with it
MOST_AT_ONCE = 8  # most guests that check at once
HOST_MEMORY = 2**30  # bytes of memory of a guest that loads ZFS and checks XFS
# All of the file system is written now, so that afterwards only the writers write.
MAKE_FILE_SYSTEM = ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Checking:
    """What is needed to check disks on the machine that runs vmtax: the host under test may be cut off."""

    session: Session
    spec: GuestSpec  # of the checking guest, without the disk that it checks
    tree: str  # the image's files on this machine
    directory: PurePosixPath  # on this machine, for copies of disks
    size: int  # bytes of the disk of each guest
    room: int  # bytes for the copies that one checking guest needs
    database_pack: DatabasePack | None = None  # on this machine; None if no database is written
    logged: LoggedDisks | None = None  # disks of the host under test; None: they are not examined

    @staticmethod
    def make(
        session: Session,
        spec: GuestSpec | None,
        directory: PurePosixPath,
        plan: Plan,
        logged: LoggedDisks | None = None,
        impossible: Container[str] = (),
    ) -> Checking:
        """`spec`: what boots guests on the host under test, if that is the machine that runs vmtax; else None.
        `impossible`: treatments that are left out

        Raises QemuError, CannotMeasure, and StorageError if `directory` has too little room.
        """
        local = session.local
        room = check_room(local, directory, plan, logged)
        placed = place(local, local, session.image, session.emit)
        assert placed.tree is not None
        if spec is None:
            spec = probe_spec(Qemu.of_image(local, placed.tree), placed)
            spec = replace(spec, accelerator=choose(local, spec, session.credentials, local, session.emit).name)
        pack = open_pack(session, local, plan)
        spec = replace(spec, name="checking", packs=(pack.file,) if pack else ())
        if logged is not None:
            tried = [one for one in plan.treatments()[0] if one.name not in impossible and logged.of(one)]
            layers = host_disk.zfs_layers(session.image, tried)
            spec = replace(spec, layers=layers, memory_bytes=HOST_MEMORY)
        return Checking(
            session, spec, placed.tree, directory, needs.cut_size(plan.build_workloads()), room, pack, logged
        )

    @contextlib.contextmanager
    def boot(self, copies: Copies, below: Sequence[Copies]) -> Iterator[Guest]:
        """Boot a guest with the disk `copies.disk` and the host's disks `below`; it sees later changes of the files."""
        # The file is changed between two states while the guest runs, so QEMU must read it through the same page cache.
        settings = DiskSettings(cache=CacheMode.WRITEBACK, aio="threads")
        files = {CHECKED_ID: copies.disk, **{HOST_ID.format(place): one.disk for place, one in enumerate(below, 1)}}
        spec = replace(self.spec, disks=tuple(Drive(str(path), settings, name=name) for name, path in files.items()))
        with boot(self.session.local, spec, self.session.credentials, self.session.local) as guest:
            if self.database_pack is not None:
                self.database_pack.mount(guest)
            yield guest

    def most_checkers(self) -> int:
        """For how many checking guests the machine that runs vmtax has CPUs, memory and disk space; at least 1."""
        local = self.session.local
        memory = available_memory(local) or 0
        # One is kept in reserve: another guest is booted if something was lost.
        by_memory = memory // (self.spec.memory_bytes + needs.QEMU_MEMORY_BYTES) - 1
        by_room = free_bytes(local, self.directory) // max(self.room, 1) - 1
        return max(1, min(MOST_AT_ONCE, len(os.sched_getaffinity(0)), by_memory, by_room))

    def qemu_img(self, directory: Path) -> tuple[str, ...]:
        local = self.session.local
        is_root = local.run("id", "-u").strip() == "0"
        return image_program(self.tree, "qemu-img", Reach(write=(str(directory),)), *alone(root=is_root))


def check_room(local: Machine, directory: PurePosixPath, plan: Plan, logged: LoggedDisks | None) -> int:
    """Bytes for the copies that one checking guest needs. Raises StorageError if `directory`, on the machine that runs
    vmtax, has less room.
    """
    size = needs.cut_size(plan.build_workloads())
    room = needs.cut_room(plan) + (logged.room(size) if logged else 0)
    check_free(local, directory, room)
    return room


@dataclass(frozen=True, slots=True)
class Prepared:
    """A disk that is ready for its guest."""

    drive: Drive
    disk: Backing
    copies: Copies
    host_disks: HostDisks | None = None


def prepare(
    session: Session, checking: Checking, made: Disks, treatment: Treatment, stack: contextlib.ExitStack
) -> Prepared:
    """Make a disk as the treatment asks, filled with zeros, whose writes are logged; `stack` removes it.

    Raises StorageError, MachineError.
    """
    fresh = made.new(treatment, checking.size)
    if fresh is not None:
        stack.callback(fresh.remove)
    disk = made.of(treatment) if fresh is None else fresh.disk
    if disk.is_device:
        made.machine.run(*ZEROS, str(disk.path), timeout=ZERO_SECONDS)
    drive = replace(disks.drive(treatment, disk), name=CUT_ID)
    if session.power is not None:
        copies = _copies(session, checking, disk, stack)
        copies.keep_before(made.machine, disk)
        return Prepared(drive, disk, copies)
    spares = checking.logged.of(treatment) if checking.logged is not None else ()
    if spares:
        copies = _copies(session, checking, disk, stack)
        copies.keep_before(made.machine, disk)
        backings = [Backing(PurePosixPath(spare.disk), size=spare.size) for spare in spares]
        each = [_copies(session, checking, backing, stack) for backing in backings]
        below = host_disk.keep(made.machine, spares, disk, each)
        return Prepared(drive, disk, copies, below)
    return _with_log(session, checking, made.machine, made.provisioner.ground.ours, drive, disk, stack)


def prepare_outer(
    session: Session, checking: Checking, host: Machine, ours: PurePosixPath, size: int, stack: contextlib.ExitStack
) -> Prepared:
    """Make the disk of an outer VM whose power will be cut; `stack` removes it. Raises StorageError, MachineError.

    `ours`: a directory of this run for disks
    """
    path = ours / f"outer{next(_numbers)}.raw"
    stack.callback(host.remove_later(path).undo)
    disk = Backing(RawFile.allocate(host, path, size).path, DiskSettings(), size)
    # Bypasses the host's page cache, so that the file holds what a physical drive would hold after a flush.
    drive = Drive(str(path), DiskSettings(aio="threads"), name=CUT_ID)
    return _with_log(session, checking, host, ours, drive, disk, stack)


def _with_log(
    session: Session,
    checking: Checking,
    machine: Machine,
    ours: PurePosixPath,
    drive: Drive,
    disk: Backing,
    stack: contextlib.ExitStack,
) -> Prepared:
    log = ours / f"log{next(_numbers)}"
    stack.callback(machine.remove_later(log).undo)
    machine.run("truncate", "--size=0", str(log))
    copies = _copies(session, checking, disk, stack)
    copies.keep_before(machine, disk)
    return Prepared(replace(drive, log=str(log)), disk, copies)


def _copies(session: Session, checking: Checking, disk: Backing, stack: contextlib.ExitStack) -> Copies:
    """An empty directory for copies of a disk; `stack` removes it."""
    local = session.local
    directory = Path(checking.directory) / local.fresh_name("cut")
    stack.callback(local.remove_later(PurePosixPath(directory)).undo)
    directory.mkdir(mode=0o700)
    return Copies(local, directory, checking.qemu_img(directory), disk.settings, disk.size)


def lay_out(outer: Machine, device: str, mount: str, disk: str, size: int) -> None:
    """Make an ext4 on the disk of an outer VM, and on it the file that will be a nested guest's disk."""
    outer.run(*MAKE_FILE_SYSTEM, device)
    outer.run("mount", "-t", "ext4", device, mount)
    outer.run("fallocate", "-l", str(size), disk)
    outer.run("sync")


def cut_of(checking: Checking, prepared: Prepared, device: str, ended: Guest, inside: str = "") -> Cut:
    """What is needed to end that guest, or the outer VM of the guest that writes."""
    log, host = PurePosixPath(prepared.drive.log), prepared.host_disks
    most, power = checking.most_checkers(), checking.session.power
    return Cut(device, ended, inside, prepared.disk, log, prepared.copies, checking.boot, most, host, power)
