"""What a guest's disk is: a file or block device of one kind, made as a plan's levels say."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.machine import Machine, Undoing
from vmtax.storage.file import StorageError
from vmtax.storage.ground import MIB, RAIDZ_DISKS, Area, Ground
from vmtax.storage.image import create_image
from vmtax.storage.undo import ANY_DEVICE, NO_DATASET, NO_GROUP, NO_POOL, NO_VOLUME, UNMOUNT, WAIT_FOR
from vmtax.units import parse_bytes

Levels = Mapping[str, str]  # of the factors that decide a backing (treatment.backing)
SYSTEM_BYTES = (
    320 * MIB
)  # of a file system made for the run beyond the disk's file: its journal; XFS takes 300 MiB at least
SYSTEM_SPARE = 1.1
POOL_BYTES = 512 * MIB  # of a pool beyond what is in it: slop, intent log
POOL_SPARE = 1.2
PARITY_SPARE = 1.7  # raidz1 on four disks: a third of parity, and blocks of 16 KiB are padded to half as much again
GROUP_BYTES = 64 * MIB  # metadata of a volume group, and of a thin pool
MKFS = {
    # Everything is written now: a file system that goes on initializing itself would be measured.
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
ZFS_PROPERTIES = {"zfs.compression": "compression", "zfs.sync": "sync", "zfs.primarycache": "primarycache"}


@dataclass(frozen=True, slots=True)
class Backing:
    """One disk as QEMU on its machine sees it."""

    path: PurePosixPath  # image file or block device on the machine
    levels: Levels  # of the factors of disks; what is not named has its default
    size: int = 0  # bytes that the guest sees
    is_device: bool = False

    @property
    def format(self) -> str:
        """raw or qcow2"""
        return self.levels.get("disk.format", "raw")

    @property
    def volume(self) -> str:
        """What holds it."""
        return self.levels.get("disk.volume", "plain")

    @property
    def kind(self) -> str:
        """What it is, for people."""
        return describe(self.levels)


@dataclass(frozen=True, slots=True)
class Fresh:
    """A disk for one boot."""

    disk: Backing
    undoing: Undoing

    def remove(self) -> None:
        """Away with it, now that its guest has gone."""
        self.undoing.undo()


def describe(levels: Levels) -> str:
    """What a backing is, for people: "qcow2 file (falloc) on ext4 on lvm"."""
    volume, system = levels.get("disk.volume", "plain"), levels.get("disk.filesystem", "as-is")
    below = [] if volume == "plain" else [volume]
    if system == "none":
        return f"block device on {volume}" if below else "block device"
    form = f"{levels.get('disk.format', 'raw')} file ({levels.get('disk.preallocation', 'falloc')})"
    more = [
        f"{name.partition('.')[2]}={level}" for name, level in levels.items() if name in _TOLD and level != _TOLD[name]
    ]
    stack = [" ".join([form, *more]), *([] if system == "as-is" else [system]), *below]
    return " on ".join(stack)


_TOLD = {
    "disk.cluster_size": "64KiB",
    "disk.lazy_refcounts": "off",
    "disk.extended_l2": "off",
    "zfs.volblocksize": "16KiB",
    "zfs.recordsize": "128KiB",
    "zfs.compression": "lz4",
    "zfs.sync": "standard",
    "zfs.primarycache": "all",
}


@dataclass
class Provisioner:
    """Makes backings on one machine; what it makes is on the guard's undo list."""

    ground: Ground
    qemu_img: tuple[str, ...]  # what starts qemu-img there
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _group: str | None = None  # of ours, or the user's
    _thin: bool = False
    _pools: dict[str, str] = field(default_factory=dict)  # "zfs" or "raidz" -> the dataset above ours

    @property
    def machine(self) -> Machine:
        return self.ground.machine

    def prepare(self, wanted: Sequence[Levels], size: int, spare: int) -> None:
        """Volume group and pools for all of `wanted`, each of `size` bytes and with `spare` bytes more at times."""
        self._check_tools(wanted)
        areas: list[Area] = []
        plain = [
            levels for levels in wanted if levels["disk.volume"] == "plain" and levels["disk.filesystem"] != "as-is"
        ]
        for number, levels in enumerate(plain):
            areas.append(Area(f"plain{number}", _rounded(room(levels, size, spare))))
        self._plain = {_key(levels): f"plain{number}" for number, levels in enumerate(plain)}
        volumes = sum(room(levels, size, spare) for levels in wanted if levels["disk.volume"].startswith("lvm"))
        if volumes and self.ground.target.group is None:
            areas.append(Area("lvm", _rounded(volumes * 1.02 + GROUP_BYTES)))
        for name, kinds, devices in (
            ("zfs", ("zvol", "dataset"), 1),
            ("raidz", ("raidz1-zvol", "raidz1-dataset"), RAIDZ_DISKS),
        ):
            rooms = [room(levels, size, spare) for levels in wanted if levels["disk.volume"] in kinds]
            if rooms and (name == "raidz" or self.ground.target.pool is None):
                each = sum(rooms) * POOL_SPARE if devices == 1 else sum(rooms) * PARITY_SPARE / (devices - 1)
                areas.append(Area(name, _rounded(each + POOL_BYTES), devices))
        self.ground.lay_out(areas)
        if volumes:
            thin = sum(room(levels, size, spare) for levels in wanted if levels["disk.volume"] == "lvm-thin")
            self._make_group(volumes, thin)
        for name in ("zfs", "raidz"):
            if any(_pool_of(levels["disk.volume"]) == name for levels in wanted):
                self._make_pool(name)

    def make(self, levels: Levels, size: int, spare: int = 0) -> Backing:
        """One backing of `size` bytes. Raises StorageError and CommandFailed."""
        name = f"disk{next(self._numbers)}"
        volume, system = levels["disk.volume"], levels["disk.filesystem"]
        if volume == "plain" and system == "as-is":
            return self._file(self.ground.ours, name, levels, size)
        whole = size if system == "none" else room(levels, size, spare)
        if _pool_of(volume) and volume.endswith("dataset"):
            return self._file(self._dataset(name, levels), name, levels, size)
        device = self._device(name, levels, whole)
        if system == "none":
            return Backing(PurePosixPath(device), levels, size, True)
        mount = self.ground.ours / f"mount-{name}"
        self.machine.run(*MKFS[system], device, timeout=600)
        self.machine.run("mkdir", str(mount))
        self.machine.undo_later(*UNMOUNT, str(mount))
        self.machine.run("mount", "-t", system, device, str(mount))
        return self._file(mount, name, levels, size)

    def make_fresh(self, levels: Levels, beside: Backing, size: int) -> Fresh | None:
        """One more of `size` bytes, like `beside` and never written; None where that is a bare device."""
        name, volume = f"fresh{next(self._numbers)}", levels["disk.volume"]
        if not beside.is_device:
            path = beside.path.with_name(f"{name}.{beside.format}")
            undoing = self.machine.remove_later(path)
            self.create_file(path, levels, size)
            return Fresh(dataclasses.replace(beside, path=path, size=size), undoing)
        if volume == "plain":
            return None
        device, undoing = self._volume_of(name, levels, _rounded(size))
        return Fresh(dataclasses.replace(beside, path=PurePosixPath(device), size=size), undoing)

    def _check_tools(self, wanted: Sequence[Levels]) -> None:
        needed: dict[str, str] = {}
        for levels in wanted:
            volume, system = levels["disk.volume"], levels["disk.filesystem"]
            if volume.startswith("lvm"):
                needed |= {"lvcreate": "lvm2"}
            if _pool_of(volume):
                needed |= {"zpool": "zfsutils-linux", "zfs": "zfsutils-linux"}
            if system in MKFS:
                needed |= {MKFS[system][0]: {"ext4": "e2fsprogs", "xfs": "xfsprogs", "btrfs": "btrfs-progs"}[system]}
        for tool, package in needed.items():
            if not self.machine.succeeds("sh", "-c", 'command -v "$1"', "sh", tool):
                raise StorageError(f"{self.machine.path}: {tool} is missing there (Debian: apt-get install {package})")

    def _device(self, name: str, levels: Levels, size: int) -> str:
        volume = levels["disk.volume"]
        if volume == "plain":
            return self.ground.cut[self._plain[_key(levels)]][0]
        return self._volume_of(name, levels, _rounded(size))[0]

    def _volume_of(self, name: str, levels: Levels, size: int) -> tuple[str, Undoing]:
        """The device of a new volume, and how it goes again."""
        volume = levels["disk.volume"]
        if volume in ("lvm", "lvm-thin"):
            return self._logical_volume(name, size, thin=volume == "lvm-thin")
        return self._zvol(name, levels, size)

    def _make_group(self, size: int, thin: int) -> None:
        """`size`: bytes of all its volumes; `thin`: of those in a thin pool."""
        machine = self.machine
        self._group = self.ground.target.group
        if self._group is None:
            self._group = self.ground.mark
            machine.undo_later(*NO_GROUP, self._group, *ANY_DEVICE)
            machine.run("vgcreate", "-q", *ANY_DEVICE, self._group, *self.ground.cut["lvm"])
        else:
            free = machine.try_run(*("vgs", "--noheadings", "--units", "b", "--nosuffix", "-o", "vg_free", self._group))
            if not free.ok:
                raise StorageError(f"{machine.path}: no volume group {self._group}; `vgs` lists those that are there")
            if int(float(free.stdout)) < size:
                raise StorageError(
                    f"{machine.path}: volume group {self._group} has {float(free.stdout) / 2**30:.1f} GiB free, "
                    f"{size / 2**30:.1f} GiB are needed; a smaller workloads.disk.size in the plan needs less"
                )
        if thin:
            self._volume(f"{self.ground.mark}-thin", "--type", "thin-pool", "-L", f"{_rounded(thin)}b")

    def _volume(self, name: str, *how: str) -> tuple[str, Undoing]:
        """A logical volume: its device, and how it goes again."""
        assert self._group is not None
        undoing = self.machine.undo_later(*NO_VOLUME, f"{self._group}/{name}", *ANY_DEVICE)
        # No question about old signatures: whatever stood there was erased with permission.
        self.machine.run("lvcreate", "-q", *ANY_DEVICE, "-y", "-W", "y", *how, "-n", name, self._group)
        return f"/dev/{self._group}/{name}", undoing

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
            if not machine.succeeds("zpool", "list", self.ground.target.pool):
                raise StorageError(
                    f"{machine.path}: no pool {self.ground.target.pool}; `zpool list` lists those that are there"
                )
            machine.undo_later(*NO_DATASET, parent)
            machine.run("zfs", "create", "-o", "mountpoint=none", parent)
        else:
            parent = f"{mark}-{name}"
            machine.undo_later(*NO_POOL, parent)
            layout = ("raidz1",) if name == "raidz" else ()
            # No mount point of its own, nothing in the host's list of pools; 4 KiB sectors whatever the disks claim.
            options = ("-o", "cachefile=none", "-o", "ashift=12", "-O", "mountpoint=none")
            machine.run("zpool", "create", "-f", *options, parent, *layout, *self.ground.cut[name])
        self._pools[name] = parent

    def _properties(self, levels: Levels) -> list[str]:
        return [
            word for name, key in ZFS_PROPERTIES.items() if name in levels for word in ("-o", f"{key}={levels[name]}")
        ]

    def _zvol(self, name: str, levels: Levels, size: int) -> tuple[str, Undoing]:
        volume = f"{self._pools[_pool_of(levels['disk.volume']) or '']}/{name}"
        undoing = self.machine.undo_later(*NO_DATASET, volume)
        block = f"volblocksize={parse_bytes(levels['zfs.volblocksize'])}"
        self.machine.run("zfs", "create", "-V", str(size), "-o", block, *self._properties(levels), volume)
        self.machine.run(*WAIT_FOR, f"/dev/zvol/{volume}", remedy="the device did not appear: is udev running there?")
        return f"/dev/zvol/{volume}", undoing

    def _dataset(self, name: str, levels: Levels) -> PurePosixPath:
        dataset = f"{self._pools[_pool_of(levels['disk.volume']) or '']}/{name}"
        mount = self.ground.ours / f"mount-{name}"
        self.machine.undo_later(*NO_DATASET, dataset)
        record = f"recordsize={parse_bytes(levels['zfs.recordsize'])}"
        self.machine.run("zfs", "create", "-o", f"mountpoint={mount}", "-o", record, *self._properties(levels), dataset)
        return mount

    def _file(self, directory: PurePosixPath, name: str, levels: Levels, size: int) -> Backing:
        path = directory / f"{name}.{levels['disk.format']}"
        self.create_file(path, levels, size)
        return Backing(path, levels, size)

    def create_file(self, path: PurePosixPath, levels: Levels, size: int) -> None:
        """An image file as the levels say. Raises StorageError where there is no room for it."""
        self.machine.run(
            *create_image(levels, str(path), size, self.qemu_img),
            timeout=60 + size / 4e6,
            remedy="name another place with --disk-dir or --disk-device, or a smaller workloads.disk.size in the plan",
        )


def room(levels: Levels, size: int, spare: int) -> int:
    """Bytes that a backing of `size` takes of its volume, with `spare` bytes of files beside it at times."""
    system = levels["disk.filesystem"]
    if system == "none":
        return size + spare
    return int((size + spare) * SYSTEM_SPARE) + SYSTEM_BYTES


def _pool_of(volume: str) -> str | None:
    if volume in ("zvol", "dataset"):
        return "zfs"
    return "raidz" if volume.startswith("raidz1") else None


def _key(levels: Levels) -> tuple[tuple[str, str], ...]:
    return tuple(levels.items())


def _rounded(size: float) -> int:
    """Whole extents of 4 MiB: QEMU opens no disk with O_DIRECT that ends within a block."""
    extent = 4 * MIB
    return -int(-size // extent) * extent
