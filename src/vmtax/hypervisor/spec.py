"""The devices of a guest: its disks and its network cards. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vmtax.design import disk
from vmtax.design.disk import DiskSettings
from vmtax.design.net import NetSettings, Path

DATA_ID = "data"  # name of the disk under test
FRESH_ID = "fresh"  # and of one like it that was never written
# Where Linux finds a data disk that is no virtio disk: those share their letters with the root image and its layers.
DATA_DEVICES = {"virtio-scsi": "/dev/sda", "ide": "/dev/sda", "sata": "/dev/sda", "nvme": "/dev/nvme0n1"}
# Run in a guest: a line for each disk, the kernel's name and the serial number, which is the name of its drive.
BY_SERIAL = (
    *("sh", "-c"),
    "for file in /sys/block/sd?/device/vpd_pg80 /sys/block/nvme*/device/serial /sys/block/vd*/serial; do "
    'test -r "$file" && disk=${file#/sys/block/} && echo "${disk%%/*} $(tr -dc a-z0-9 < "$file")"; done; true',
)


@dataclass(frozen=True, slots=True)
class Drive:
    """A disk of a guest, as QEMU on the parent sees it."""

    path: str  # file or block device on the parent
    settings: DiskSettings = disk.DEFAULT
    is_device: bool = False
    iops_limit: int = 0  # reads and writes that QEMU lets through in a second; 0: no limit
    name: str = DATA_ID  # letters and digits; none of the guest's other disks has it
    serial: str = ""  # by which the guest knows it; empty: its name
    # Off: opened for writing from the start. QEMU that became another user could not open it anew when the guest's
    # state is loaded or was saved.
    auto_read_only: bool = True
    log: str = ""  # an empty file in which QEMU keeps every write and flush; empty: it keeps none


@dataclass(frozen=True, slots=True)
class Tap:
    """Behind a card: an interface of the parent that QEMU makes, which then belongs on a bridge."""

    interface: str
    device: str = ""  # the file of one that is there already, which QEMU is handed open; empty: QEMU makes it
    vhost: bool = False  # the card is served by the parent's kernel
    queues: int = 1


@dataclass(frozen=True, slots=True)
class UserNetwork:
    """Behind a card: a network that QEMU plays; of the guest's ports only `ports` are reached."""

    subnet: str  # "10.78.0.0/24"
    host: str  # the address that QEMU itself has there
    guest: str = ""  # that of the guest, where there are ports
    ports: tuple[int, ...] = ()  # TCP ports of the guest that the parent's loopback reaches, by `Guest.ports`
    restricted: bool = True  # the guest reaches nothing but `host`


@dataclass(frozen=True, slots=True)
class Passed:
    """A device of the parent that the guest has for itself."""

    address: str  # its PCI address; it is bound to vfio-pci


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card that QEMU plays, besides the one by which every guest is reached."""

    behind: Tap | UserNetwork
    mac: str = "52:54:00:76:74:01"  # guests of one segment have different ones
    name: str = "network"  # none of the guest's other cards has it
    model: str = "virtio-net-pci"  # "igb" has virtual functions
    offloads: bool = True  # of a virtio card: checksums and the division of segments
    own_port: bool = False  # behind a PCI Express port of its own, without which there are no virtual functions
    stands_by: bool = False  # for a device that takes its place in the guest, which must know how
    primary: Passed | None = None  # that device, where the guest has it from the start

    @property
    def has_port(self) -> bool:
        """Whether there is a PCI Express port for it: its own, or that into which its primary is plugged."""
        return self.own_port or self.stands_by


Card = Nic | Passed


def passes_device(cards: Iterable[Card]) -> bool:
    """Whether the guest has a device of the parent for itself, or may be given one."""
    return any(isinstance(card, Passed) or card.stands_by for card in cards)


def card_of(
    wanted: NetSettings, tap: str, mac: str, function: str | None, behind: Tap | UserNetwork | None = None
) -> Card:
    """What QEMU is given.

    `function`: the PCI address of one, for a path that takes it
    `behind`: what is behind the card; None: a tap of that name, which QEMU makes
    """
    path, passed = wanted.path, None
    if path.has_function:
        assert function is not None
        passed = Passed(function)
        if path is Path.SRIOV:
            return passed
    assert behind is not None or path not in (Path.USER, Path.MACVTAP)
    tapped = Tap(tap, vhost=path.has_vhost, queues=wanted.queues)
    return Nic(
        behind or tapped, mac, model=path.model, offloads=wanted.offloads, stands_by=passed is not None, primary=passed
    )
