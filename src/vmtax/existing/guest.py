"""What a configuration says of a guest, in the words of our factors, and what of it has no such words."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from vmtax.core.errors import BadInput
from vmtax.core.units import cpu_numbers

Kind = Literal["libvirt", "proxmox", "qemu"]
KINDS: Mapping[Kind, str] = {
    "libvirt": "libvirt's XML",
    "proxmox": "a configuration of Proxmox VE",
    "qemu": "a command line of QEMU",
}
# Names of settings whose values nobody is shown.
_WORDS = r"pass(?:w|phrase|\b)|secret|key|token|auth|credential|cookie|session|dhcert|\bosk\b"
_SECRET = re.compile(rf"{_WORDS}|(^|[_-])(data|string)$", re.IGNORECASE)
# The same within a text, such as "-object secret,id=a,data=x"; "data:vm-1-disk-0" is a volume.
_INNER = re.compile(
    rf"""((?:[\w.-]*(?:{_WORDS})[\w.-]*)["']?\s*[=:]\s*|(?<![\w-])(?:data|string)(?:=|["']\s*:\s*))"""
    r"""("[^"]*"|'[^']*'|[^\s,;"']+)""",
    re.IGNORECASE,
)
HIDDEN = "(hidden)"
LONGEST = 200  # characters of a setting that are shown on a line
MOST_LINES = 50  # of a single setting
MOST_VCPUS = 1024  # of a guest
BUSES = ("virtio", "virtio-scsi", "ide", "sata", "nvme")  # those of disk.bus


class NoGuest(BadInput):
    """The text describes no KVM guest that could be measured; the message says what it is instead."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A setting that is not measured as it stands there."""

    where: str  # as the configuration names it: "devices/disk[vda]/iotune", "scsi0: iops_rd", "-device usb-tablet"
    text: str  # what it says, without secrets
    why: str  # what happens with it instead


@dataclass(frozen=True, slots=True)
class ExistingDisk:
    """A disk, or a drive for CDs."""

    name: str  # "vda", "scsi0", "drive-virtio-disk0"
    levels: Mapping[str, str]  # factor -> level
    source: str = ""  # the file, device or volume; "" if it has none
    line: str = ""  # the setting that describes it, for a patch; "" if there is no single one
    is_cd: bool = False  # or a floppy disk
    is_boot: bool = False  # the system starts from it


@dataclass(frozen=True, slots=True)
class ExistingCard:
    """A network card."""

    name: str
    levels: Mapping[str, str]  # factor -> level
    line: str = ""


@dataclass(frozen=True, slots=True)
class CpuShape:
    """What its CPUs are to the guest."""

    sockets: int = 1
    most: int = 1  # CPUs, with those that can still be plugged in


@dataclass(frozen=True, slots=True)
class HostPlacement:
    """Where on its host a guest is to be."""

    cpus: frozenset[int] | None = frozenset()  # on which its CPUs may run; empty: any; None: not known
    node: int | None = None  # NUMA node that its memory is to be on; None: any, or several
    is_spread: bool = False  # it has several NUMA nodes of its own, or a daemon of the host places it


@dataclass(frozen=True, slots=True)
class ExistingGuest:
    """A guest as its configuration describes it."""

    kind: Kind
    name: str
    vcpus: int
    memory_bytes: int
    levels: Mapping[str, str] = field(default_factory=dict)  # of the guest itself: factor -> level
    disks: tuple[ExistingDisk, ...] = ()
    cards: tuple[ExistingCard, ...] = ()
    remarks: tuple[Remark, ...] = ()  # what was not translated, or not exactly
    shape: CpuShape = CpuShape()
    placement: HostPlacement = HostPlacement()

    @property
    def first_disk(self) -> ExistingDisk | None:
        """The disk that the system starts from, or else the first one."""
        disks = [disk for disk in self.disks if not disk.is_cd]
        return next((disk for disk in disks if disk.is_boot), disks[0] if disks else None)


class Remarks:
    """Collects what is not translated, in the order of the configuration."""

    def __init__(self) -> None:
        self._all: list[Remark] = []

    def add(self, where: str, text: str, why: str) -> None:
        """A long text takes several lines, for nothing of it may be lost."""
        lines = textwrap.wrap(without_secrets(where, text), LONGEST, break_on_hyphens=False)
        self._all += [Remark(where, line, why) for line in lines[:MOST_LINES] or [""]]
        if len(lines) > MOST_LINES:
            self._all.append(Remark(where, f"{len(lines) - MOST_LINES} lines more", why))

    def add_list(self, where: str, items: Iterable[str], why: str) -> None:
        """Settings of one kind, as few lines as they fit on; nothing if there are none."""
        line = ""
        for item in items:
            hidden = without_secrets("", item)
            if line and len(line) + len(hidden) + 2 > LONGEST:
                self.add(where, line, why)
                line = ""
            line += f", {hidden}" if line else hidden
        if line:
            self.add(where, line, why)

    def all(self) -> tuple[Remark, ...]:
        return tuple(dict.fromkeys(self._all))


def whole_of_text(text: str | None) -> int | None:
    """The whole number, of at most 18 digits; None if it is none."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def cpus_of(texts: Iterable[str]) -> frozenset[int] | None:
    """All CPUs of these lists, "0-3,8"; None where one is not understood."""
    lists = [cpu_numbers(text) for text in texts]
    return frozenset(cpu for each in lists for cpu in each) if all(lists) else None


def is_secret(name: str) -> bool:
    """Whether nobody is shown the value of a setting with that name."""
    return _SECRET.search(name.rpartition("/")[2]) is not None


def qm_set(where: str, line: str) -> str:
    """The command of Proxmox VE that gives a device this line; "" if a part of it is hidden, which would be lost."""
    return "" if HIDDEN in line else f"qm set VMID --{where} {shlex.quote(line)}"


def shown(name: str, value: str) -> str:
    """The value of a setting as it may be printed: on one line, not too long, and hidden if it may be a secret."""
    text = without_secrets(name, value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def without_secrets(name: str, value: str) -> str:
    """The whole value on one line, hidden if it may be a secret."""
    if value and is_secret(name):
        return HIDDEN
    # A setting may itself hold others: "password=x", "user:password@host".
    text = _INNER.sub(rf"\1{HIDDEN}", value)
    text = re.sub(r"(?<=://)[^/@\s]*@", f"{HIDDEN}@", text)
    return " ".join(text.split())


def topology_level(sockets: int, cores: int, threads: int) -> str | None:
    """The level of cpu.topology that is the same, for these numbers; None if none is."""
    if threads > 1:
        return "threads" if threads == 2 else None
    return "cores" if sockets <= 1 else "sockets" if cores <= 1 else None


def volume_levels(device: str) -> dict[str, str]:
    """The levels for a disk that is this block device of the host, as far as its name tells."""
    if device.startswith("/dev/zvol/") or re.match(r"/dev/zd\d", device):
        return {"disk.volume": "zvol", "disk.filesystem": "none"}
    if device.startswith("/dev/mapper/") or re.match(r"/dev/(?!disk/|mapper/)[^/]+/[^/]+$", device):
        return {"disk.volume": "lvm", "disk.filesystem": "none"}
    return {"disk.volume": "plain", "disk.filesystem": "none"}
