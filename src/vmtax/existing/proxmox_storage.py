"""What a storage of Proxmox VE is, and what a disk on it has where its own line says nothing.

Sources: pvesm(1) for storage.cfg; for the defaults of cache and aio, PVE::QemuServer::Drive of qemu-server 9.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

FILE = "/etc/pve/storage.cfg"
HEADING = re.compile(r"(\S+):\s*(\S+)\s*$")
VOLUMES = {"lvm": "lvm", "lvmthin": "lvm-thin", "zfspool": "zvol"}  # kind -> disk.volume
BY_NAME = {"local": "dir", "local-lvm": "lvmthin", "local-zfs": "zfspool"}  # as Proxmox's installer names them
OTHER_DEFAULTS = {"cache": "Btrfs", "aio": "LVM, CIFS and krbd"}  # a disk's setting -> storages unlike most
ON = ("1", "on", "yes", "true")  # what Proxmox takes for a switch that is on
UNKNOWN = "unknown"
A_PATH = "path"


@dataclass(frozen=True, slots=True)
class ProxmoxStorage:
    """A storage: its kind as pvesm(1) names it, or UNKNOWN, or A_PATH of a disk that is on none; and its settings."""

    kind: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def volume(self) -> str:
        """The level of disk.volume; "" for a file."""
        return VOLUMES.get(self.kind, "")

    def cache(self) -> str:
        """The level of disk.cache that a disk has whose line names none."""
        return "writeback" if self.kind == "btrfs" and not self._is_on("nocow") else "none"

    def aio(self, cache: str) -> str:
        """The level of disk.aio that a disk with this cache has whose line names none."""
        is_direct = cache in ("none", "directsync")
        on_krbd = self.kind == "rbd" and self._is_on("krbd")
        if self.kind in ("lvm", "cifs") or (on_krbd and not is_direct):
            return "native" if is_direct else "threads"
        return "io_uring"

    def _is_on(self, switch: str) -> bool:
        return self.settings.get(switch, "").lower() in ON


def storages_of(text: str) -> dict[str, ProxmoxStorage]:
    """Name -> storage, of the text of storage.cfg."""
    storages: dict[str, ProxmoxStorage] = {}
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if not line[:1].isspace():
            settings = {}
            if (heading := HEADING.match(line)) and not line.startswith("#"):
                storages[heading[2]] = ProxmoxStorage(heading[1].lower(), settings)
        elif words := line.split(None, 1):
            settings[words[0]] = words[1].strip() if len(words) > 1 else "1"  # a switch may stand alone
    return {"local": ProxmoxStorage("dir"), **storages}  # which is there without being named


def storage_of(volume: str, storages: Mapping[str, ProxmoxStorage] | None) -> tuple[ProxmoxStorage, str]:
    """What the volume is on, and how it is measured if that is not as it is, or is a guess; else "".

    storages: those of its host, by name; None where only the configuration is known.
    """
    name = volume.partition(":")[0]
    if volume.startswith("/"):
        return ProxmoxStorage(A_PATH), ""
    if storages is None and name in BY_NAME:
        storage = ProxmoxStorage(BY_NAME[name])
        return storage, f"is taken for {storage.volume} by its name" if storage.volume else ""
    if storages is None or not name:
        return ProxmoxStorage(UNKNOWN), "nothing here says what that is: measured as a file"
    if name not in storages:
        return ProxmoxStorage(UNKNOWN), f"{FILE} has no such storage: measured as a file"
    storage = storages[name]
    if storage.kind == "btrfs":
        return storage, "is on Btrfs: measured as it is with a --disk-dir on Btrfs"
    if storage.kind == "dir" or storage.volume:
        return storage, ""
    return storage, f"is on a storage of kind {storage.kind}: measured as a file in --disk-dir"
