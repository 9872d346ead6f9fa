"""What is under a directory: file system, mount options, and the disks at the bottom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from vmtax.core.records import Json
from vmtax.machine import Reader
from vmtax.machine.answer import object_or_none
from vmtax.meter.mounts import Mount, mount_of
from vmtax.meter.text import GREP, Files, parse_files, switch, whole

# --inverse: from the given device down to the disks; what a device is built on is in "children".
LSBLK = ("lsblk", "--json", "--bytes", "--inverse", "--output", "KNAME,TYPE,MODEL,ROTA,SCHED,SIZE,LOG-SEC,PHY-SEC,TRAN")
# The devices of the btrfs that a device is a part of, by the kernel's names. Constant text, the device is an argument.
BTRFS = (
    *("sh", "-c"),
    'name=$(basename "$(readlink -f "$1")"); cd /sys/fs/btrfs && for each in */devices; do test ! -e "$each/$name" ||'
    ' ls "$each"; done',
    "sh",
)
# --nodeps: only the device itself, with properties that survive a change of its name.
ITSELF = ("lsblk", "--json", "--bytes", "--nodeps", "--output", "TYPE,MODEL,SERIAL,WWN,SIZE,ROTA,TRAN")


def disk_facts(
    machine: Reader,
    directory: PurePosixPath | str,
    devices: Sequence[str] = (),
    group: str | None = None,
    pool: str | None = None,
) -> Json:
    """Facts of the disk under a directory, by at most four commands, and of named ones. None: it cannot be read here.

    directory: as given
    mount_point, device (or "tmpfs", "pool/dataset"), file_system, mount_options: text      mounts.py
    free_bytes: for us, without what is reserved for root                                 mounts.py
    stack: list of kinds from the device down, ["lvm", "crypt", "part", "disk"]; [] if it is no block device
    disks: list of the lowest devices of all that the file system is on, each with
      name (kernel's), model, transport ("nvme", "sata", ...), scheduler: text              lsblk
      rotational: bool, as the device reports, which is often wrong for virtual ones          lsblk
      size_bytes, logical_sector_bytes, physical_sector_bytes                               lsblk
      write_cache: "write back" or "write through"        /sys/class/block/NAME/queue/write_cache
    A run adds `first_write`: layer -> how its disk under test was first written, a storage.FirstWrite; if its plan asks
    for it, `features`: treatment -> list of its disk's features, a storage.features.Feature each.

    devices, group, pool: that the user named, if not all disks under test are in the directory; then with `named`: see
    `named_disks`
    """
    mount = mount_of(machine, directory)
    below = members(machine, mount) if mount else []
    rows = parse_lsblk(machine.try_run(*LSBLK, *below).stdout) if below else []
    disks = [row for row in rows if not row["on"] and row["name"]]
    caches: Files = {}
    if disks:
        caches = parse_files(machine.try_run(*GREP, "", *(_write_cache(row["name"]) for row in disks)).stdout)
    named = named_disks(machine, devices, group, pool)
    return {
        "directory": str(directory),
        "mount_point": mount.point if mount else None,
        "device": mount.source if mount else None,
        "file_system": mount.system if mount else None,
        "mount_options": mount.options if mount else None,
        "free_bytes": mount.free_bytes if mount else None,
        "stack": list(dict.fromkeys(row["type"] for row in rows if row["type"])),
        "disks": [_disk(row) | {"write_cache": caches.get(_write_cache(row["name"]))} for row in disks],
        **({"named": named} if named else {}),
    }


def members(machine: Reader, mount: Mount) -> list[str]:
    """The block devices that a file system is on; [] if there are none, or if they cannot be read."""
    if mount.system == "btrfs":
        names = machine.try_run(*BTRFS, mount.source).stdout.split()
        return [f"/dev/{name}" for name in names] or [mount.source]
    if mount.system == "zfs":
        return _of_pool(machine, mount.source)
    # bcachefs names all of its devices in one word.
    return [device for device in mount.source.split(":") if device.startswith("/dev/")]


def _of_pool(machine: Reader, dataset: str) -> list[str]:
    listed = machine.try_run("zpool", "list", "-vHPL", "-o", "name", dataset.partition("/")[0]).stdout.split()
    return [word for word in listed if word.startswith("/dev/")]


def named_disks(machine: Reader, devices: Sequence[str], group: str | None, pool: str | None) -> Json:
    """The devices that the user named for the disks under test, with properties that survive a change of their names.

    type, model, serial, wwn, transport: text; size_bytes; rotational: bool                 lsblk
    """
    found = {device: [device] for device in devices}
    if group is not None:
        found[group] = machine.try_run("vgs", "--noheadings", "--options", "pv_name", group).stdout.split()
    if pool is not None:
        found[pool] = _of_pool(machine, pool)
    return {name: [_itself(machine, path) for path in sorted(paths)] for name, paths in found.items()}


def _itself(machine: Reader, device: str) -> Json:
    rows = _rows(machine.try_run(*ITSELF, device).stdout, "blockdevices")
    row = rows[0] if rows else {}
    return {
        "type": _text(row.get("type")),
        "model": _text(row.get("model")),
        "serial": _text(row.get("serial")),
        "wwn": _text(row.get("wwn")),
        "transport": _text(row.get("tran")),
        "size_bytes": whole(row.get("size")),
        "rotational": switch(row.get("rota")),
    }


def parse_lsblk(text: str) -> list[Json]:
    """Parse the output of LSBLK: every device once, the given one first; "on" says whether it is built on others."""
    found: dict[str | None, Json] = {}
    for row in _walk(_rows(text, "blockdevices")):
        name = _text(row.get("kname"))
        found.setdefault(
            name,
            {
                "name": name,
                "type": _text(row.get("type")),
                "model": _text(row.get("model")),
                "transport": _text(row.get("tran")),
                "scheduler": _text(row.get("sched")),
                "rotational": switch(row.get("rota")),  # "0" or "1" in util-linux before 2.33
                "size_bytes": whole(row.get("size")),
                "logical_sector_bytes": whole(row.get("log-sec")),
                "physical_sector_bytes": whole(row.get("phy-sec")),
                "on": bool(row.get("children")),
            },
        )
    return list(found.values())


def _disk(row: Json) -> Json:
    return {key: value for key, value in row.items() if key not in ("type", "on")}


def _write_cache(name: str) -> str:
    return f"/sys/class/block/{name}/queue/write_cache"


def _rows(text: str, key: str) -> list[Json]:
    return _objects((object_or_none(text) or {}).get(key))


def _objects(value: Any) -> list[Json]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _walk(rows: list[Json]) -> Iterator[Json]:
    for row in rows:
        yield row
        yield from _walk(_objects(row.get("children")))


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
