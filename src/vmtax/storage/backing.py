"""Make the disk of a guest: a file or block device of the kind that a plan's levels describe."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.core.machines import first_line
from vmtax.core.units import format_room
from vmtax.design import disk
from vmtax.design.disk import DiskSettings, Volume, mount_options
from vmtax.design.settings import BACKED
from vmtax.hypervisor.qemu.img import create_image
from vmtax.machine import Machine, Undoing, tools
from vmtax.machine.answer import number_of
from vmtax.machine.rights import why_not
from vmtax.machine.tools import Tool
from vmtax.storage.empty import MIB
from vmtax.storage.file import NoSuchPlace, StorageError, check_free
from vmtax.storage.ground import RAIDZ_DISKS, Area, Ground, Target
from vmtax.storage.mounts import share_mounts
from vmtax.storage.undo import (
    ANY_DEVICE,
    ITS_DEVICES,
    NO_DATASET,
    NO_DATASET_OF_YOURS,
    NO_GROUP,
    NO_POOL,
    NO_VOLUME,
    NO_VOLUME_OF_YOURS,
    UNMOUNT,
    WAIT_FOR,
)

SYSTEM_BYTES = 320 * MIB  # of a file system beyond the disk's file: its journal; XFS takes 300 MiB at least
SYSTEM_SPARE = 1.1
# btrfs copies on write: the space of a file's first extents is free only when all blocks of each extent are
# overwritten, and freed space stays pinned until the next commit, for half a minute of writes.
COPYING_SPARE = 3.0
POOL_BYTES = 512 * MIB  # of a pool beyond its contents: slop space, intent log
POOL_SPARE = 1.2
PARITY_SPARE = 1.7  # raidz1 on four disks: a third more for parity, half as much again for padded 16 KiB blocks
GROUP_BYTES = 64 * MIB  # metadata of a volume group, and of a thin pool
MKFS = {
    # All metadata is written now: a file system that initializes itself in the background would be measured.
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
# What contains volumes -> the kinds of volume in it.
KINDS: Mapping[str, tuple[Volume, ...]] = {
    "lvm": tuple(volume for volume in Volume if volume.is_lvm),
    "zfs": tuple(volume for volume in Volume if volume.is_zfs and not volume.is_raidz),
    "raidz": tuple(volume for volume in Volume if volume.is_raidz),
}


@dataclass(frozen=True, slots=True)
class Backing:
    """One disk as QEMU on its machine sees it."""

    path: PurePosixPath  # image file or block device on the machine
    settings: DiskSettings = disk.DEFAULT
    size: int = 0  # bytes that the guest sees
    is_device: bool = False
    lies_on: str = ""  # the block device, or the dataset POOL/NAME, made for the disk; "": it is in a directory

    @property
    def kind(self) -> str:
        """Its kind, for people."""
        return describe(self.settings)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A disk for one boot."""

    disk: Backing
    undoing: Undoing

    def remove(self) -> None:
        """Remove it once its guest has ended."""
        self.undoing.undo()


def describe(settings: DiskSettings) -> str:
    """The kind of a backing, for people: "qcow2 file (falloc) on ext4 on lvm"."""
    volume, system = settings.volume, settings.filesystem
    below = [] if volume is Volume.PLAIN else [str(volume)]
    if not settings.is_file:
        return f"block device on {volume}" if below else "block device"
    more = [
        f"{factor.name.partition('.')[2]}={settings.unusual[factor.name]}"
        for place, factor in settings.factors().items()
        if factor.layers == BACKED and factor.name in settings.unusual and place not in _NAMED
    ]
    form = " ".join([f"{settings.format} file ({settings.preallocation})", *more])
    return " on ".join([form, *([] if system == "as-is" else [system]), *below])


_NAMED = ("volume", "filesystem", "format", "preallocation")  # parts of every description


@dataclass
class Provisioner:
    """Makes backings on one machine; everything it makes is on the guard's undo list."""

    ground: Ground
    qemu_img: tuple[str, ...]  # command that starts qemu-img there
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    # Backings with areas of their own -> the names of the areas that are not used yet.
    _plain: dict[DiskSettings, list[str]] = field(default_factory=dict)
    _pools: dict[str, str] = field(default_factory=dict)  # "zfs" or "raidz" -> parent dataset of ours

    @property
    def machine(self) -> Machine:
        return self.ground.machine

    def prepare(self, wanted: Sequence[DiskSettings], size: int, spare: int, beside: int = 0) -> None:
        """Make the volume group and pools for all of `wanted`, each of `size` bytes, and at times `spare` bytes more.

        `beside`: bytes that other files will take of the directory once the disks are filled Raises StorageError,
        before anything is made, if something is missing, too small or in use, or was named for nothing.
        """
        target = self.ground.target
        refuse(self.machine, wanted, target, size, spare)
        if taken := directory_bytes(wanted, target, size, spare, beside):
            check_free(self.machine, self.ground.ours, taken)
        for number, settings in enumerate(_cut_plain(wanted)):
            self._plain.setdefault(settings, []).append(f"plain{number}")
        volumes = {name: volume_bytes(wanted, kinds, size, spare) for name, kinds in KINDS.items()}
        if any(settings.is_mounted for settings in wanted):
            share_mounts(self.machine, self.ground.ours)
        self.ground.lay_out(areas(wanted, target, size, spare))
        if volumes["lvm"]:
            self._make_group(volume_bytes(wanted, (Volume.LVM_THIN,), size, spare))
        for name in ("zfs", "raidz"):
            if volumes[name]:
                self._make_pool(name)

    def make(self, settings: DiskSettings, size: int, spare: int = 0) -> Backing:
        """One backing of `size` bytes. Raises StorageError and CommandFailed."""
        name = f"disk{next(self._numbers)}"
        volume, system = settings.volume, settings.filesystem
        if settings.lies_in_directory:
            return self._file(self.ground.ours, name, settings, size)
        whole = _rounded(size) if system == "none" else room(settings, size, spare)
        if volume.is_dataset:
            dataset, mount = self._dataset(name, settings)
            return self._file(mount, name, settings, size, dataset)
        device = self._device(name, settings, whole)
        if system == "none":
            return Backing(PurePosixPath(device), settings, size, True, device)
        mount = self.ground.ours / f"mount-{name}"
        self.machine.run(*MKFS[system], device)
        self.machine.run("mkdir", str(mount))
        self.machine.undo_later(*UNMOUNT, str(mount))
        self.machine.run("mount", "-t", system, *mount_options(settings), device, str(mount))
        return self._file(mount, name, settings, size, device)

    def make_fresh(self, settings: DiskSettings, beside: Backing, size: int) -> Fresh | None:
        """One more backing of `size` bytes, like `beside` and never written; None if `beside` is a bare device."""
        name = f"fresh{next(self._numbers)}"
        if not beside.is_device:
            path = beside.path.with_name(f"{name}.{beside.settings.format}")
            undoing = self.machine.remove_later(path)
            self.create_file(path, settings, size)
            return Fresh(dataclasses.replace(beside, path=path, size=size), undoing)
        if settings.volume is Volume.PLAIN:
            return None
        device, undoing = self._volume_of(name, settings, _rounded(size))
        return Fresh(dataclasses.replace(beside, path=PurePosixPath(device), size=size, lies_on=device), undoing)

    def _device(self, name: str, settings: DiskSettings, size: int) -> str:
        if settings.volume is Volume.PLAIN:
            return self.ground.cut[self._plain[settings].pop(0)][0]
        return self._volume_of(name, settings, size)[0]

    def _volume_of(self, name: str, settings: DiskSettings, size: int) -> tuple[str, Undoing]:
        """The device of a new volume, and its removal. `size`: whole extents."""
        if settings.volume.is_lvm:
            device, undoing = self._logical_volume(name, size, thin=settings.volume is Volume.LVM_THIN)
        else:
            device, undoing = self._zvol(name, settings, size)
        self.machine.run(*WAIT_FOR, device, remedy=f"{device} did not appear: is udev running there?")
        return device, undoing

    def _make_group(self, thin: int) -> None:
        """`thin`: bytes of the volumes in a thin pool."""
        group, lvm = self._group
        if self.ground.target.group is None:
            self.machine.undo_later(*NO_GROUP, group, *lvm, lasting=True)
            self.machine.run("vgcreate", "-q", *lvm, group, *self.ground.cut["lvm"])
        if thin:
            self._volume(f"{self.ground.mark}-thin", "--type", "thin-pool", "-L", f"{thin}b")

    @property
    def _group(self) -> tuple[str, tuple[str, ...]]:
        """The volume group, ours or the user's, and additional arguments for LVM."""
        named = self.ground.target.group
        return (self.ground.mark, ANY_DEVICE) if named is None else (named, ITS_DEVICES)

    def _volume(self, name: str, *how: str) -> tuple[str, Undoing]:
        """A logical volume: its device, and its removal."""
        group, lvm = self._group
        gone = NO_VOLUME if self.ground.target.group is None else NO_VOLUME_OF_YOURS
        undoing = self.machine.undo_later(*gone, f"{group}/{name}", *lvm, lasting=True)
        # Do not ask about old signatures: permission to erase the device was given.
        self.machine.run("lvcreate", "-q", *lvm, "-y", *how, "-n", name, group)
        return f"/dev/{group}/{name}", undoing

    def _logical_volume(self, name: str, size: int, *, thin: bool) -> tuple[str, Undoing]:
        name = f"{self.ground.mark}-{name}"
        if thin:
            pool = f"{self.ground.mark}-thin"
            return self._volume(name, "--type", "thin", "-V", f"{size}b", "--thinpool", pool)
        return self._volume(name, "-L", f"{size}b")

    def _make_pool(self, name: str) -> None:
        machine, mark = self.machine, self.ground.mark
        if name == "zfs" and self.ground.target.pool is not None:
            parent = f"{self.ground.target.pool}/{mark}"
            machine.undo_later(*NO_DATASET_OF_YOURS, parent, lasting=True)
            machine.run("zfs", "create", "-o", "mountpoint=none", parent)
        else:
            parent = f"{mark}-{name}"
            machine.undo_later(*NO_POOL, parent, lasting=True)
            layout = ("raidz1",) if name == "raidz" else ()
            # No mount point of its own, not in the host's list of pools; 4 KiB sectors, whatever the disks claim.
            options = ("-o", "cachefile=none", "-o", "ashift=12", "-O", "mountpoint=none")
            machine.run("zpool", "create", "-f", *options, parent, *layout, *self.ground.cut[name])
        self._pools[name] = parent

    def _zvol(self, name: str, settings: DiskSettings, size: int) -> tuple[str, Undoing]:
        volume = f"{self._pools[_pool_of(settings.volume)]}/{name}"
        undoing = self.machine.undo_later(*NO_DATASET, volume, lasting=True)
        self.machine.run("zfs", "create", "-V", str(size), *zfs_properties(settings), volume)
        return f"/dev/zvol/{volume}", undoing

    def _dataset(self, name: str, settings: DiskSettings) -> tuple[str, PurePosixPath]:
        """Its name, and its mount point."""
        dataset = f"{self._pools[_pool_of(settings.volume)]}/{name}"
        mount = self.ground.ours / f"mount-{name}"
        self.machine.undo_later(*NO_DATASET, dataset, lasting=True)
        self.machine.run("zfs", "create", "-o", f"mountpoint={mount}", *zfs_properties(settings), dataset)
        return dataset, mount

    def _file(
        self, directory: PurePosixPath, name: str, settings: DiskSettings, size: int, lies_on: str = ""
    ) -> Backing:
        path = directory / f"{name}.{settings.format}"
        self.create_file(path, settings, size)
        return Backing(path, settings, size, lies_on=lies_on)

    def create_file(self, path: PurePosixPath, settings: DiskSettings, size: int) -> None:
        """Make an image file as the settings say. Raises StorageError if there is no room for it."""
        self.machine.run(
            *create_image(settings, str(path), size, self.qemu_img),
            remedy="name another place with --disk-dir or --disk-device, or a smaller workloads.disk.size in the plan",
        )


def refuse(machine: Machine, wanted: Sequence[DiskSettings], target: Target, size: int, spare: int) -> None:
    """Only reads. Raises StorageError if a tool, a group, a pool or room in it is missing, or one was named for
    nothing.

    `size`, `spare`: bytes of each disk, and of one more that exists at times
    """
    refuse_unused(machine.path, wanted, target)
    needed = programs(wanted, cuts=bool(target.devices))
    if (needed or _cut_plain(wanted)) and machine.run("id", "-u").strip() != "0":
        raise StorageError(
            f"{machine.path}: file systems, volumes and block devices take root there; without, "
            "disk.volume=plain with disk.filesystem=as-is, a file in a directory, is all that can be measured"
        )
    if (needed or _cut_plain(wanted)) and (
        refused := why_not(machine, "mount", *(() if target.devices else ("loop",)))
    ):
        raise StorageError(f"{machine.path}: file systems, volumes and block devices: {refused}")
    if why := tools.why_not(machine, needed):
        raise StorageError(f"{machine.path}: {why}")
    volumes = {name: volume_bytes(wanted, kinds, size, spare) for name, kinds in KINDS.items()}
    if volumes["lvm"] and target.group is not None:
        asked: tuple[str, ...] = ("vgs", "--noheadings", "--units", "b", "--nosuffix", "-o", "vg_free", target.group)
        _check_room(machine, f"volume group {target.group}", "`vgs` lists those", asked, group_bytes(volumes["lvm"]))
    if volumes["zfs"] and target.pool is not None:
        asked = ("zfs", "list", "-Hp", "-o", "available", target.pool)
        _check_room(machine, f"pool {target.pool}", "`zpool list` lists those", asked, int(volumes["zfs"] * POOL_SPARE))


def _check_room(machine: Machine, what: str, lists: str, asked: tuple[str, ...], needed: int) -> None:
    """`asked`: a command that prints the free bytes of a volume group or pool, or fails if it does not exist."""
    answer = machine.try_run(*asked)
    if not answer.ok:
        raise NoSuchPlace(f"{machine.path}: no {what} ({first_line(answer.stderr)}); {lists} that are there")
    free = number_of(machine, f"bytes free in {asked[-1]}", answer.stdout)
    if free < needed:
        raise StorageError(
            f"{machine.path}: {what} has {format_room(free)} free, {format_room(needed)} are needed; "
            "a smaller workloads.disk.size in the plan needs less"
        )


def room(settings: DiskSettings, size: int, spare: int) -> int:
    """Bytes that a backing of `size` takes of its volume, and at times one more of `spare` bytes."""
    if settings.filesystem in MKFS:
        factor = COPYING_SPARE if settings.filesystem == "btrfs" else SYSTEM_SPARE
        return _rounded((size + spare) * factor + SYSTEM_BYTES)
    return _rounded(size) + _rounded(spare)


def volume_bytes(wanted: Sequence[DiskSettings], kinds: Sequence[Volume], size: int, spare: int) -> int:
    """Bytes of all volumes of these kinds."""
    return sum(room(settings, size, spare) for settings in wanted if settings.volume in kinds)


def group_bytes(volumes: int) -> int:
    """Size in bytes of a volume group whose volumes have `volumes` bytes in all."""
    return _rounded(volumes * 1.02 + GROUP_BYTES)


def areas(wanted: Sequence[DiskSettings], target: Target, size: int, spare: int) -> list[Area]:
    """Block devices to be cut for `wanted`; none for disks in a group or pool of the user's."""
    areas = [Area(f"plain{number}", room(settings, size, spare)) for number, settings in enumerate(_cut_plain(wanted))]
    volumes = {name: volume_bytes(wanted, kinds, size, spare) for name, kinds in KINDS.items()}
    if volumes["lvm"] and target.group is None:
        areas.append(Area("lvm", group_bytes(volumes["lvm"])))
    if volumes["zfs"] and target.pool is None:
        areas.append(Area("zfs", _rounded(volumes["zfs"] * POOL_SPARE + POOL_BYTES)))
    if volumes["raidz"]:
        each = volumes["raidz"] * PARITY_SPARE / (RAIDZ_DISKS - 1)
        areas.append(Area("raidz", _rounded(each + POOL_BYTES), RAIDZ_DISKS))
    return areas


def directory_bytes(wanted: Sequence[DiskSettings], target: Target, size: int, spare: int, beside: int = 0) -> int:
    """The most bytes taken of the directory: by areas in files and by disks that are files; additionally, at first by
    the file from which images are filled, later by new disks for a boot and by what takes `beside`.

    `spare`: bytes of the new disks beside one disk; guests that run at once, with equal settings, have them all at once
    """
    cut = 0 if target.devices else sum(area.size * area.devices for area in areas(wanted, target, size, spare))
    files = [each for each in wanted if each.volume is Volume.PLAIN and each.filesystem == "as-is"]
    at_once = max(Counter(files).values(), default=0)
    return cut + size * len(files) + max(source_bytes(wanted, size), spare * at_once + beside)


def source_bytes(wanted: Sequence[DiskSettings], size: int) -> int:
    """Bytes of the file of random data from which images are filled; 0 if there are no images."""
    return size if any(each.format != "raw" for each in wanted) else 0


def programs(wanted: Sequence[DiskSettings], *, cuts: bool) -> tuple[Tool, ...]:
    """Programs needed to make `wanted`; `cuts`: also to cut devices into partitions."""
    volumes = {settings.volume for settings in wanted}
    names = ["lvcreate"] if volumes & set(KINDS["lvm"]) else []
    names += ["zpool", "zfs"] if volumes & {*KINDS["zfs"], *KINDS["raidz"]} else []
    names += [MKFS[system][0] for system in sorted({each.filesystem for each in wanted} & MKFS.keys())]
    return (*(tools.of(tools.DEVICES) if cuts else ()), *tools.named(names))


def refuse_unused(path: str, wanted: Sequence[DiskSettings], target: Target) -> None:
    """Raises StorageError if the user named storage that no disk uses: the figures would be about something else."""
    volumes = {settings.volume for settings in wanted}
    used = max((area.devices for area in areas(wanted, target, 1, 0)), default=0)
    named = [("--disk-device", device) for device in target.devices[used:]]
    named += [("--disk-group", target.group)] if target.group and not volumes & set(KINDS["lvm"]) else []
    named += [("--disk-pool", target.pool)] if target.pool and not volumes & set(KINDS["zfs"]) else []
    cures = {
        "--disk-device": "disk.filesystem (none, ext4, xfs, btrfs) or disk.volume",
        "--disk-group": "disk.volume (lvm, lvm-thin)",
        "--disk-pool": "disk.volume (zvol, dataset)",
    }
    if used:
        # The first device carries everything that needs only one.
        cures["--disk-device"] = f"disk.volume (raidz1-zvol, raidz1-dataset: {RAIDZ_DISKS} devices)"
    for option, name in named:
        raise NoSuchPlace(
            f"{path}: {option} {name}: no disk of this plan would be on it; name {cures[option]} among the plan's "
            "factors, or leave the option out"
        )


def _cut_plain(wanted: Sequence[DiskSettings]) -> list[DiskSettings]:
    """The settings that take a block device of their own."""
    return [each for each in wanted if each.volume is Volume.PLAIN and each.filesystem != "as-is"]


def _pool_of(volume: Volume) -> str:
    """The key of KINDS; "" for a plain volume."""
    return next((name for name, kinds in KINDS.items() if volume in kinds), "")


def zfs_properties(settings: DiskSettings) -> list[str]:
    """The options of `zfs create` for a volume or dataset."""
    return [word for name, value in settings.options("zfs") for word in ("-o", f"{name}={value}")]


def _rounded(size: float) -> int:
    """Rounded up to extents of 4 MiB: QEMU does not open a disk with O_DIRECT whose size is no multiple of the block
    size.
    """
    extent = 4 * MIB
    return -int(-size // extent) * extent
