"""Provide the space for the disks under test: what the user named, and the block devices cut from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from vmtax.core.machines import first_line
from vmtax.core.records import Json
from vmtax.core.units import format_room
from vmtax.machine import CommandFailed, Machine, Reader
from vmtax.machine.answer import json_of, number_of
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.meter.disk import disk_facts
from vmtax.storage.empty import MIB, refuse_data
from vmtax.storage.file import NoSuchPlace, RawFile, StorageError
from vmtax.storage.undo import DETACH, NO_PARTITIONS, WAIT_FOR

# For large temporary files that survive a reboot (Filesystem Hierarchy Standard)
DISK_DIRECTORY = PurePosixPath("/var/tmp")
RAIDZ_DISKS = 4
TABLE_BYTES = 2 * MIB  # of a partition table, at both ends
WHOLE = ("disk", "loop", "raid")  # prefixes of lsblk's types of devices on which the kernel supports partitions
# The kernel's answer whether somebody has claimed the device or a part of it: lsblk does not know about an imported
# pool, or the second disk of a btrfs. The guard uses the same Python.
CLAIM = (
    *(PYTHON, *ISOLATED),
    """import os, sys
try:
    os.close(os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL))
except OSError as error:
    sys.exit(error.strerror)""",
)
# Processes that have it open without claiming it: QEMU does not claim its guests' disks. Retried, because udev opens a
# device for a moment.
HOLDERS = (
    *(PYTHON, *ISOLATED),
    """import glob, os, stat, sys, time
wanted = {os.stat(name).st_rdev for name in sys.argv[1:]}
def held(path):
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISBLK(found.st_mode) and found.st_rdev in wanted
paths = glob.glob("/proc/[0-9]*/fd/*")
for attempt in range(10):
    paths = [path for path in paths if held(path)]
    if not paths:
        break
    time.sleep(0.2)
for link in sorted({path.rpartition("/fd/")[0] + "/exe" for path in paths}):
    print(os.path.basename(os.path.realpath(link)), link.split("/")[2])""",
)

# Signatures of members of something larger, which may be inactive, and how to remove a device from it. Neither the
# kernel's claim nor lsblk shows a group without active volumes or an array that is not assembled.
MEMBERS = {
    "LVM2_member": "vgreduce, then pvremove, take it out of its volume group",
    "linux_raid_member": "mdadm --zero-superblock takes it out of its array",
    "zfs_member": "zpool labelclear takes it out of its pool",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The storage that the user named for the disks under test."""

    directory: PurePosixPath = DISK_DIRECTORY
    devices: tuple[str, ...] = ()  # block devices, which the run uses completely
    group: str | None = None  # an LVM volume group; volumes are made in its free space
    pool: str | None = None  # a ZFS pool; volumes and datasets are made in it
    erase: frozenset[str] = frozenset()  # devices whose contents may be destroyed

    def facts(self, machine: Reader) -> Json:
        """Of what is there, as in `disk_facts`."""
        return disk_facts(machine, self.directory, self.devices, self.group, self.pool)


@dataclass(frozen=True, slots=True)
class Area:
    """Block devices that are needed."""

    name: str  # such as "lvm" or "plain0": letters and digits
    size: int  # bytes of each device
    devices: int = 1


@dataclass
class Ground:
    """The space on one machine. Everything made there is on the guard's undo list."""

    machine: Machine
    target: Target
    ours: PurePosixPath  # a directory of this run in target.directory
    mark: str  # identifies what is ours: "vmtax-1a2b3c4d"
    cut: dict[str, tuple[str, ...]] = field(default_factory=dict)  # name of an area -> its devices

    def lay_out(self, areas: Sequence[Area]) -> None:
        """Cut the areas from the devices or, if no devices are named, make files with loop devices for them.

        Raises StorageError if a device is too small, is in use or holds data.
        """
        if not areas:
            return
        if not self.target.devices:
            for area in areas:
                self.cut[area.name] = tuple(self._loop(f"{area.name}{n}", area.size) for n in range(area.devices))
            return
        here = refuse_devices(self.machine, self.target, areas)
        cut: dict[str, tuple[str, ...]] = {}
        for device, found in here:
            for area, part in zip(found, self._partitions(device, found), strict=True):
                cut[area.name] = (*cut.get(area.name, ()), part)
        parts = [part for found in cut.values() for part in found]
        self.machine.run(*WAIT_FOR, *parts, remedy="a partition did not appear: does that device take any?")
        self.cut |= cut

    def _loop(self, name: str, size: int) -> str:
        path = self.ours / f"{name}.area"
        self.machine.undo_later(*DETACH, str(path))
        RawFile.allocate(self.machine, path, size)
        # Bypasses the page cache, as a disk would: caching happens above the device.
        how = ("losetup", "--find", "--show", "--direct-io=on", str(path))
        return self.machine.run(*how, remedy="name a directory on a disk with --disk-dir, or --disk-device").strip()

    def _partitions(self, device: str, areas: Sequence[Area]) -> list[str]:
        """Make a partition for each area; returns the kernel's names of them."""
        # Uses the name that the user gave: /dev/disk/by-id/... is the same disk after a reboot, /dev/sdb may not be.
        self.machine.undo_later(*NO_PARTITIONS, device, self.mark, lasting=True)
        # Locked, so that udev does not open the device before we are done.
        how = ("sfdisk", "-q", "--lock", "--wipe=always", "--wipe-partitions=always")
        self.machine.run(*how, device, input=table(self.mark, areas))
        real = self.machine.run("realpath", "-e", device).strip()
        said = self.machine.run("sfdisk", "-J", real)
        # Needed if the kernel has not scanned for them: a loop device, or a kernel without support for this kind of
        # table.
        self.machine.try_run("partx", "-u", real)
        found = json_of(self.machine, f"sfdisk -J {real}", said, _Sfdisk)
        return [row["node"] for row in found["partitiontable"]["partitions"]]


class _Partition(TypedDict):
    node: str


class _Table(TypedDict):
    partitions: list[_Partition]


class _Sfdisk(TypedDict):
    partitiontable: _Table


def refuse_devices(
    machine: Machine, target: Target, areas: Sequence[Area], emit: Callable[[str], None] = lambda device: None
) -> list[tuple[str, list[Area]]]:
    """The devices of a target, each with the areas that it will carry; devices that carry none are left out. Only
    reads.

    `emit`: called with a device before it is read, which takes seconds
    Raises StorageError if there are too few, one is too small, is in use or holds data.
    """
    if not target.devices:
        return []
    shared = shares(areas, len(target.devices))
    if shared is None:
        raise StorageError(
            f"{machine.path}: raidz1 takes {RAIDZ_DISKS} devices, and {len(target.devices)} are named: "
            "name more with --disk-device"
        )
    here = [(device, found) for device, found in zip(target.devices, shared, strict=True) if found]
    known: dict[str, str] = {}  # one device may have several names
    for device, found in here:
        if device not in target.erase:
            emit(device)
        refuse_used(machine, device, erase=device in target.erase)
        real = machine.run("realpath", "-e", device).strip()
        if real in known:
            raise StorageError(f"{machine.path}: {device} and {known[real]} are the same device; name another")
        known[real] = device
        said = machine.run("blockdev", "--getsize64", device)
        size, wanted = number_of(machine, f"bytes of {device}", said), table_bytes(found)
        if size < wanted:
            raise StorageError(
                f"{machine.path}: {device} has {format_room(size)}, {format_room(wanted)} are needed; "
                "name a larger one, or a smaller workloads.disk.size in the plan"
            )
    return here


def shares(areas: Sequence[Area], devices: int) -> list[list[Area]] | None:
    """The areas that each of the first devices carries; None if there are too few devices."""
    if any(area.devices > devices for area in areas):
        return None
    return [[area for area in areas if number < area.devices] for number in range(devices)]


def table(mark: str, areas: Sequence[Area]) -> str:
    """A partition table in sfdisk's input format."""
    lines = ["label: gpt", *(f'size={-(-area.size // MIB)}MiB, name="{mark}-{area.name}"' for area in areas)]
    return "\n".join(lines) + "\n"


def table_bytes(areas: Sequence[Area]) -> int:
    """Bytes that a device must have for that table."""
    return sum(-(-area.size // MIB) * MIB for area in areas) + 2 * TABLE_BYTES


def refuse_used(machine: Machine, device: str, *, erase: bool) -> None:
    """Raises StorageError if a device is no whole device, is in use, is read-only, or holds data and `erase` is
    false.
    """
    rows = _lsblk(machine, device)
    kind = rows[0].type
    if not kind.startswith(WHOLE):
        raise NoSuchPlace(f"{machine.path}: {device} is no whole device ({kind}) that takes partitions; name another")
    if rows[0].ro in (True, "1"):
        raise StorageError(f"{machine.path}: {device} is read-only; name another, or see `blockdev --setrw` there")
    busy = [row.name for row in rows if row.mountpoint]
    if busy:
        raise StorageError(f"{machine.path}: {device} is in use: {', '.join(busy)} is mounted, or swap; name another")
    above = [row for row in rows[1:] if row.type != "part"]
    if above:
        raise StorageError(f"{machine.path}: {device} is in use by {above[0].name} ({above[0].type}); name another")
    claimed = machine.try_run(*CLAIM, device)
    if not claimed.ok:
        words = (claimed.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise StorageError(f"{machine.path}: {device} cannot be had alone ({words}); name another")
    # Including its partitions: usually a partition is the member, not the whole disk.
    names = (device, *(row.name for row in rows[1:]))
    holders = machine.run(*HOLDERS, *names).splitlines()
    if holders:
        raise StorageError(
            f"{machine.path}: {device} is in use: open in {', '.join(holders)} (process id), maybe a guest's disk; "
            "name another"
        )
    signatures = machine.run("wipefs", "--noheadings", "--output", "TYPE", *names).split()
    for kind in filter(_is_member, signatures):
        cure = MEMBERS.get(kind, "take it out of that")
        raise StorageError(
            f"{machine.path}: {device} is a part of something ({kind}), active or not; {cure}, or name another"
        )
    if erase:
        return
    if signatures or len(rows) > 1:
        what = ", ".join(dict.fromkeys(signatures)) or "partitions"
        raise StorageError(f"{machine.path}: {device} holds something ({what}); --erase {device} lets it be lost")
    refuse_data(machine, device)


def _is_member(signature: str) -> bool:
    """Whether libblkid's name of a signature is that of a member; the names of firmware RAIDs have the same ending."""
    return signature.endswith("_member") or signature in ("bcache", "drbd", "stratis", "ceph_bluestore")


def _lsblk(machine: Machine, device: str) -> list[_Block]:
    """The device followed by everything that is built on it. Raises NoSuchPlace if it is no block device."""
    # As a tree: in a list, a device may come after what is built on it.
    # MOUNTPOINTS, with all of them, is missing from lsblk before 2.37.
    listing = machine.try_run("lsblk", "--json", "--paths", "--output", "NAME,TYPE,RO,MOUNTPOINT", device)
    if not listing.ok:
        if machine.succeeds("test", "-b", device):
            raise CommandFailed(listing, f"what stands on {device} is not known")
        words = first_line(listing.stderr)
        raise NoSuchPlace(f"{machine.path}: {device} is no block device ({words}); `lsblk` shows what there is")
    said = json_of(machine, f"what stands on {device}: lsblk", listing.stdout, _Lsblk)
    return list(_with_children(said.blockdevices))


@dataclass(frozen=True, slots=True)
class _Block:
    """A row of lsblk."""

    name: str
    type: str
    ro: bool | str | None = None  # "0" or "1" before util-linux 2.33
    mountpoint: str | None = None
    children: tuple[_Block, ...] = ()


@dataclass(frozen=True, slots=True)
class _Lsblk:
    blockdevices: Annotated[tuple[_Block, ...], Field(min_length=1)]


def _with_children(rows: Sequence[_Block]) -> Iterator[_Block]:
    for row in rows:
        yield row
        yield from _with_children(row.children)
