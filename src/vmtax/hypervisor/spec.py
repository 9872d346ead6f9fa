"""The devices of a guest: its disks and its network cards. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vmtax.design import disk
from vmtax.design.disk import DiskSettings, Share
from vmtax.design.net import NetSettings, Path

TAG = "share"  # by which a guest mounts a shared directory
DATA_ID = "data"  # name of the disk under test
FRESH_ID = "fresh"  # name of a disk like it that was never written
# Linux's name of a data disk that is no virtio disk; virtio disks share their letters with the root image and its
# layers.
DATA_DEVICES = {"virtio-scsi": "/dev/sda", "ide": "/dev/sda", "sata": "/dev/sda", "nvme": "/dev/nvme0n1"}
# Run in a guest: prints a line for each disk, with the kernel's name and the serial number, which is its drive's name.
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
    iops_limit: int = 0  # reads and writes per second that QEMU allows; 0: no limit
    name: str = DATA_ID  # letters and digits; unique among the guest's disks
    serial: str = ""  # serial number that the guest sees; empty: its name
    # Off: opened for writing from the start. After switching users, QEMU could not reopen the file when the guest's
    # state is loaded or saved.
    auto_read_only: bool = True
    log: str = ""  # an empty file to which QEMU logs all writes and flushes; empty: no log
    beneath: tuple[str, ...] = ()  # the images that it lies over, if it is one of a chain
    spare: str = ""  # a file that QEMU holds open for snapshots and backups of it; empty: none are made
    served: str = ""  # socket of the NBD server that has the disk open; empty: QEMU opens it itself


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """A directory of the parent that the guest can mount."""

    kind: Share  # virtiofs or 9p
    directory: str
    socket: str = ""  # of the virtiofsd that serves it


@dataclass(frozen=True, slots=True)
class Tap:
    """Back end of a card: an interface of the parent that QEMU creates, and that is then put on a bridge."""

    interface: str
    device: str = ""  # file of an existing tap, which QEMU inherits open; empty: QEMU creates one
    vhost: bool = False  # the parent's kernel serves the card
    queues: int = 1


@dataclass(frozen=True, slots=True)
class UserNetwork:
    """Back end of a card: QEMU's user networking; of the guest's ports only `ports` can be reached."""

    subnet: str  # "10.78.0.0/24"
    host: str  # QEMU's own address there
    guest: str = ""  # the guest's address, if there are ports
    ports: tuple[int, ...] = ()  # TCP ports of the guest that the parent's loopback reaches, by `Guest.ports`
    restricted: bool = True  # the guest reaches nothing but `host`


@dataclass(frozen=True, slots=True)
class Passed:
    """A device of the parent that is passed through to the guest."""

    address: str  # its PCI address; it is bound to vfio-pci


@dataclass(frozen=True, slots=True)
class Nic:
    """A virtual network card of QEMU, besides the one for management that every guest has."""

    behind: Tap | UserNetwork
    mac: str = "52:54:00:76:74:01"  # unique on its segment
    name: str = "network"  # unique among the guest's cards
    model: str = "virtio-net-pci"  # "igb" has virtual functions
    offloads: bool = True  # of a virtio card: checksums and segmentation
    own_port: bool = False  # behind a PCI Express port of its own, which virtual functions require
    stands_by: bool = False  # for a device that takes its place in the guest; the guest must support this
    primary: Passed | None = None  # that device, if the guest has it from the start

    @property
    def has_port(self) -> bool:
        """Whether there is a PCI Express port for it: its own, or the one for its primary."""
        return self.own_port or self.stands_by


Card = Nic | Passed


def passes_device(cards: Iterable[Card]) -> bool:
    """Whether a device of the parent is, or may be, passed through to the guest."""
    return any(isinstance(card, Passed) or card.stands_by for card in cards)


def card_of(
    wanted: NetSettings, tap: str, mac: str, function: str | None, behind: Tap | UserNetwork | None = None
) -> Card:
    """The card for QEMU.

    `function`: PCI address of a virtual function, for a path that uses it
    `behind`: back end of the card; None: a tap of that name, which QEMU creates
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
