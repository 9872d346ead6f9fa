"""The settings whose price a plan may ask for, their levels, and which of them go together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GUESTS = ("vm", "nested")
BACKED = ("host", "vm")  # a nested guest's disk is always a raw file on its carrier's disk

# The cache modes in which QEMU opens the image with O_DIRECT.
DIRECT = frozenset({"none", "directsync"})
# Where each kind of ZFS property has a meaning.
_ZVOLS = frozenset({"zvol", "raidz1-zvol"})
_DATASETS = frozenset({"dataset", "raidz1-dataset"})
_SWITCH = ("off", "on")


@dataclass(frozen=True, slots=True)
class Factor:
    """One setting whose price is asked for."""

    name: str  # dotted, as a plan writes it: "disk.cache"
    levels: tuple[str, ...]  # every legal level
    default: str  # the level of a plan that does not name the factor
    layers: tuple[str, ...]  # where it means anything
    describe: str  # one line for the docs


_BACKING = (
    Factor(
        "disk.volume",
        ("plain", "lvm", "lvm-thin", "zvol", "dataset", "raidz1-zvol", "raidz1-dataset"),
        "plain",
        BACKED,
        "what holds the guest's disk: the named directory or device itself (plain), an LVM volume, or ZFS,"
        " over one disk or over four (raidz1)",
    ),
    Factor(
        "disk.filesystem",
        ("as-is", "none", "ext4", "xfs", "btrfs"),
        "as-is",
        BACKED,
        "the file system around the disk's file, made for the run; as-is: that of the named directory, or the"
        " dataset; none: the guest gets the block device",
    ),
    Factor(
        "disk.format",
        ("raw", "qcow2"),
        "raw",
        BACKED,
        "the disk's file format; the host's own figures are always of raw",
    ),
    Factor(
        "disk.preallocation",
        ("falloc", "off", "metadata", "full"),
        "falloc",
        BACKED,
        "what of the file is there before it is first written (qemu-img's preallocation=)",
    ),
    Factor(
        "disk.cluster_size",
        ("64KiB", "4KiB", "16KiB", "32KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB"),
        "64KiB",
        BACKED,
        "of a qcow2 file",
    ),
    Factor(
        "disk.lazy_refcounts", _SWITCH, "off", BACKED, "of a qcow2 file: fewer metadata writes, repaired after a crash"
    ),
    Factor("disk.extended_l2", _SWITCH, "off", BACKED, "of a qcow2 file: parts of a cluster are allocated alone"),
    Factor(
        "zfs.volblocksize",
        ("16KiB", "4KiB", "8KiB", "32KiB", "64KiB", "128KiB"),
        "16KiB",
        BACKED,
        "block size of a ZFS volume",
    ),
    Factor(
        "zfs.recordsize",
        ("128KiB", "4KiB", "8KiB", "16KiB", "32KiB", "64KiB", "1MiB"),
        "128KiB",
        BACKED,
        "largest block of a file in a ZFS dataset",
    ),
    Factor("zfs.compression", ("lz4", "off", "zstd"), "lz4", BACKED, "of ZFS; what is written does not compress"),
    Factor("zfs.sync", ("standard", "disabled", "always"), "standard", BACKED, "whether ZFS keeps a flush's promise"),
    Factor("zfs.primarycache", ("all", "metadata", "none"), "all", BACKED, "what ZFS keeps in its own cache (ARC)"),
)
_ATTACHMENT = (
    Factor(
        "disk.cache",
        ("none", "writeback", "writethrough", "directsync", "unsafe"),
        "none",
        GUESTS,
        "QEMU's cache mode: whether the host's page cache is used, and whether a flush reaches the disk",
    ),
    Factor(
        "disk.aio",
        ("native", "threads", "io_uring"),
        "native",
        GUESTS,
        "how QEMU submits I/O to the host's kernel; native goes only with disk.cache none or directsync",
    ),
    Factor(
        "disk.bus",
        ("virtio", "virtio-scsi", "ide", "sata", "nvme"),
        "virtio",
        GUESTS,
        "the disk controller the guest sees",
    ),
    Factor(
        "disk.iothread", _SWITCH, "off", GUESTS, "a virtio disk has a thread of its own instead of QEMU's main loop"
    ),
    Factor(
        "disk.page_cache",
        ("unbounded", "bounded"),
        "unbounded",
        ("vm",),
        "of the host for this guest's disk: as much as there is, or room for a quarter of it (a memory cgroup)",
    ),
    Factor(
        "disk.queues",
        ("auto", "1", "2", "4", "8"),
        "auto",
        GUESTS,
        "of a virtio disk; auto: one for each vCPU",
    ),
    Factor("disk.discard", ("ignore", "unmap"), "ignore", GUESTS, "whether what the guest trims is freed on the host"),
)
_CPU = (
    Factor(
        "cpu.mitigations",
        ("auto", "off"),
        "auto",
        GUESTS,
        "the guest kernel's defences against speculation attacks (mitigations= on its command line)",
    ),
)
_GUEST = (
    Factor(
        "guest.count",
        ("1", "2", "3", "4", "6", "8", "12", "16"),
        "1",
        ("vm",),
        "how many guests of one kind do the same work at the same time, each with a disk and an address of its own;"
        " their rates are added up",
    ),
)
FACTORS: Mapping[str, Factor] = MappingProxyType(
    {factor.name: factor for factor in (*_BACKING, *_ATTACHMENT, *_CPU, *_GUEST)}
)
BACKING = tuple(factor.name for factor in _BACKING)  # what decides the file or device of a disk


# What `why_illegal` looks at.
LEGALITY = (
    *("disk.volume", "disk.filesystem", "disk.format", "disk.preallocation", "disk.cluster_size", "disk.extended_l2"),
    *("disk.cache", "disk.aio", "disk.page_cache"),
)


def why_illegal(levels: Mapping[str, str]) -> str | None:
    """Why these levels cannot go together; None when they can, or when too few are given to tell."""
    cache = levels.get("disk.cache", "none")
    if levels.get("disk.aio") == "native" and cache not in DIRECT:
        return f"disk.aio=native needs O_DIRECT, which disk.cache={cache} does not use"
    volume = levels.get("disk.volume", "plain")
    if levels.get("disk.page_cache") == "bounded" and volume in _ZVOLS | _DATASETS:
        return f"disk.page_cache=bounded bounds nothing on disk.volume={volume}: ZFS has a cache of its own (ARC)"
    return _why_no_such_backing(levels)


def _why_no_such_backing(levels: Mapping[str, str]) -> str | None:
    volume, system = levels.get("disk.volume", "plain"), levels.get("disk.filesystem")
    form, reserved = levels.get("disk.format", "raw"), levels.get("disk.preallocation")
    if volume in _DATASETS and system not in (None, "as-is"):
        return f"disk.volume={volume} is a file system already: it goes with disk.filesystem=as-is only"
    if volume != "plain" and volume not in _DATASETS and system == "as-is":
        return f"disk.volume={volume} is a block device: disk.filesystem must be none, ext4, xfs or btrfs"
    if system == "none" and form == "qcow2":
        return "disk.format=qcow2 is a file, and disk.filesystem=none has none"
    if form == "raw" and reserved == "metadata" and system != "none":
        return "disk.preallocation=metadata is about qcow2; a raw file has none"
    if levels.get("disk.extended_l2") == "on" and levels.get("disk.cluster_size") == "4KiB":
        return "disk.extended_l2=on takes clusters of 16 KiB or more"
    return None


def idle(levels: Mapping[str, str]) -> dict[str, str]:
    """Factors that mean nothing beside the other levels, each with the level that makes it so."""
    volume, bus = levels.get("disk.volume", "plain"), levels.get("disk.bus", "virtio")
    found: dict[str, str] = {}

    def without(names: tuple[str, ...], because: str) -> None:
        found.update(dict.fromkeys((name for name in names if name in levels), because))

    if levels.get("disk.format", "raw") == "raw":
        without(("disk.cluster_size", "disk.lazy_refcounts", "disk.extended_l2"), "disk.format=raw")
    if levels.get("disk.filesystem") == "none":
        without(("disk.preallocation",), "disk.filesystem=none")
    if volume not in _ZVOLS:
        without(("zfs.volblocksize",), f"disk.volume={volume}")
    if volume not in _DATASETS:
        without(("zfs.recordsize",), f"disk.volume={volume}")
    if volume not in _ZVOLS | _DATASETS:
        without(("zfs.compression", "zfs.sync", "zfs.primarycache"), f"disk.volume={volume}")
    if bus not in ("virtio", "virtio-scsi"):
        without(("disk.iothread", "disk.queues"), f"disk.bus={bus}")
    if levels.get("disk.cache") in DIRECT:
        without(("disk.page_cache",), f"disk.cache={levels['disk.cache']}")
    return found
