"""Where the disks under test lie: what the user named, and the block devices cut from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.machine import Machine
from vmtax.result import Json
from vmtax.storage.file import RawFile, StorageError
from vmtax.storage.undo import DETACH, NO_PARTITIONS, WAIT_FOR

DISK_DIRECTORY = PurePosixPath("/var/tmp")  # for large files that are not for ever (Filesystem Hierarchy Standard)
MIB = 2**20
RAIDZ_DISKS = 4
# The first MiB of a device that holds nothing, by od: one line of zeros, and where it ends.
FIRST_MIB = ("od", "-A", "n", "-N", str(MIB), "-v", "-t", "x8")
TABLE_BYTES = 2 * MIB  # of a partition table, at both ends


@dataclass(frozen=True, slots=True)
class Target:
    """What the user named for the disks under test."""

    directory: PurePosixPath = DISK_DIRECTORY
    devices: tuple[str, ...] = ()  # block devices, used up by the run
    group: str | None = None  # an LVM volume group, in whose free space volumes are made
    pool: str | None = None  # a ZFS pool, under which volumes and datasets are made
    erase: frozenset[str] = frozenset()  # devices whose contents may be lost


@dataclass(frozen=True, slots=True)
class Area:
    """Room that is wanted as block devices of its own."""

    name: str  # "lvm": letters only
    size: int  # bytes of each device
    devices: int = 1


@dataclass
class Ground:
    """The room itself, on one machine. Everything made is on the guard's undo list."""

    machine: Machine
    target: Target
    ours: PurePosixPath  # a directory of this run in target.directory, or elsewhere where only devices are used
    mark: str  # names what is ours: "vmtax-1a2b3c4d"
    cut: dict[str, tuple[str, ...]] = field(default_factory=dict)  # name of an area -> its devices

    def lay_out(self, areas: Sequence[Area]) -> None:
        """Cut the areas from the devices, or where none are named, from files behind loop devices.

        Raises StorageError where there is too little room, or a device is in use or holds something.
        """
        if not areas:
            return
        if not self.target.devices:
            for area in areas:
                self.cut[area.name] = tuple(self._loop(f"{area.name}{n}", area.size) for n in range(area.devices))
            return
        most = max(area.devices for area in areas)
        if len(self.target.devices) < most:
            raise StorageError(
                f"{self.machine.path}: raidz1 takes {most} devices, and {len(self.target.devices)} are named: "
                "name more with --disk-device"
            )
        found: dict[str, list[str]] = {area.name: [] for area in areas}
        for number, device in enumerate(self.target.devices):
            here = [area for area in areas if number < area.devices]
            if here:
                for area, part in zip(here, self._partitions(device, here), strict=True):
                    found[area.name].append(part)
        self.cut |= {name: tuple(devices) for name, devices in found.items()}

    def _loop(self, name: str, size: int) -> str:
        path = self.ours / f"{name}.area"
        self.machine.undo_later(*DETACH, str(path))
        RawFile.allocate(self.machine, path, size)
        # Past the page cache, like a disk: what the host caches is cached above.
        return self.machine.run("losetup", "--find", "--show", "--direct-io=on", str(path)).strip()

    def _partitions(self, device: str, areas: Sequence[Area]) -> list[str]:
        refuse_used(self.machine, device, erase=device in self.target.erase)
        size = int(self.machine.run("blockdev", "--getsize64", device))
        wanted = sum(area.size for area in areas) + 2 * TABLE_BYTES
        if size < wanted:
            raise StorageError(
                f"{self.machine.path}: {device} has {size / 2**30:.1f} GiB, {wanted / 2**30:.1f} GiB are needed; name "
                "a larger one, or a smaller workloads.disk.size in the plan"
            )
        self.machine.undo_later(*NO_PARTITIONS, device, self.mark)
        lines = ["label: gpt", *(f'size={area.size // MIB}MiB, name="{self.mark}-{area.name}"' for area in areas)]
        self.machine.run(
            "sfdisk", "-q", "--wipe=always", "--wipe-partitions=always", device, input="\n".join(lines) + "\n"
        )
        table = json.loads(self.machine.run("sfdisk", "-J", device))["partitiontable"]
        nodes = [str(entry["node"]) for entry in table["partitions"]]
        for node in nodes:
            self.machine.run(*WAIT_FOR, node)
        return nodes


def refuse_used(machine: Machine, device: str, *, erase: bool) -> None:
    """Raises StorageError where a device is no whole device, is in use, or holds something and `erase` is false."""
    rows = _lsblk(machine, device)
    if not rows:
        raise StorageError(f"{machine.path}: {device} is no block device; `lsblk` shows what there is")
    busy = [str(row["name"]) for row in rows if any(point for point in row.get("mountpoints") or ())]
    if busy:
        raise StorageError(f"{machine.path}: {device} is in use: {', '.join(busy)} is mounted, or swap; name another")
    above = [row for row in rows[1:] if row.get("type") != "part"]
    if above:
        raise StorageError(
            f"{machine.path}: {device} is in use by {above[0]['name']} ({above[0]['type']}); name another"
        )
    if erase:
        return
    signatures = machine.run("wipefs", "--noheadings", "--output", "TYPE", device).split()
    if signatures or len(rows) > 1:
        what = ", ".join(dict.fromkeys(signatures)) or "partitions"
        raise StorageError(f"{machine.path}: {device} holds something ({what}); --erase {device} lets it be lost")
    if set(machine.run(*FIRST_MIB, device).split()) - {"0" * 16}:
        raise StorageError(f"{machine.path}: {device} holds data of an unknown kind; --erase {device} lets it be lost")


def _lsblk(machine: Machine, device: str) -> list[Json]:
    """The device and, behind it, everything that stands on it; [] where it is none."""
    found = machine.try_run("lsblk", "--json", "--list", "--paths", "--output", "NAME,TYPE,MOUNTPOINTS", device)
    if not found.ok:
        return []
    rows: list[Json] = json.loads(found.stdout)["blockdevices"]
    return rows
