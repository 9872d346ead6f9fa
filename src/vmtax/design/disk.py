"""A disk under test: how it is stored on its host, and how QEMU opens it. Each field is a factor of plans. Pure.

QEMU's manual, -drive cache=: `none` and `directsync` set cache.direct=on, which opens the image with O_DIRECT; `unsafe`
is the only mode with cache.no-flush=on, "Ignore any flush requests for the device"; `writethrough` and `directsync` set
cache.writeback=off, which flushes every write before it is completed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from vmtax.core.units import parse_bytes
from vmtax.design.settings import (
    BACKED,
    CLONED,
    PLUGGED,
    SWITCH,
    Conflict,
    OtherLevels,
    ProgramOption,
    Settings,
    Where,
    in_bytes,
    is_on,
    setting,
)


class CacheMode(StrEnum):
    """QEMU's option cache=."""

    NONE = "none"
    WRITEBACK = "writeback"
    WRITETHROUGH = "writethrough"
    DIRECTSYNC = "directsync"
    UNSAFE = "unsafe"

    @property
    def is_direct(self) -> bool:
        """Whether QEMU opens the image with O_DIRECT, so that the host's page cache is not used."""
        return self in (CacheMode.NONE, CacheMode.DIRECTSYNC)

    @property
    def ignores_flushes(self) -> bool:
        """Whether data that the guest flushed may be lost in a power cut of the host."""
        return self is CacheMode.UNSAFE

    @property
    def is_writethrough(self) -> bool:
        """Whether every write is flushed before it is completed."""
        return self in (CacheMode.WRITETHROUGH, CacheMode.DIRECTSYNC)


class Volume(StrEnum):
    """What contains the disk."""

    PLAIN = "plain"
    LVM = "lvm"
    LVM_THIN = "lvm-thin"
    ZVOL = "zvol"
    DATASET = "dataset"
    RAIDZ1_ZVOL = "raidz1-zvol"
    RAIDZ1_DATASET = "raidz1-dataset"

    @property
    def is_lvm(self) -> bool:
        return self in (Volume.LVM, Volume.LVM_THIN)

    @property
    def is_zvol(self) -> bool:
        """Whether it is a block device in a ZFS pool."""
        return self in (Volume.ZVOL, Volume.RAIDZ1_ZVOL)

    @property
    def is_dataset(self) -> bool:
        """Whether it is a file system in a ZFS pool."""
        return self in (Volume.DATASET, Volume.RAIDZ1_DATASET)

    @property
    def is_raidz(self) -> bool:
        """Whether it spans several disks."""
        return self in (Volume.RAIDZ1_ZVOL, Volume.RAIDZ1_DATASET)

    @property
    def is_zfs(self) -> bool:
        return self.is_zvol or self.is_dataset


class DiskServer(StrEnum):
    """Who opens the disk's file or device."""

    NONE = "none"
    NBD = "nbd"


class Share(StrEnum):
    """How a guest reaches the disk's file: as a disk, or in a directory of the host that is shared with it. The word
    after the protocol says what the guest keeps in its page cache; without one, it is the protocol's default.
    """

    NONE = "none"
    VIRTIOFS = "virtiofs"
    VIRTIOFS_NEVER = "virtiofs-never"
    VIRTIOFS_ALWAYS = "virtiofs-always"
    NINE_P = "9p"
    NINE_P_LOOSE = "9p-loose"

    @property
    def is_virtiofs(self) -> bool:
        return self.value.startswith("virtiofs")

    @property
    def protocol(self) -> str:
        """The type of file system in the guest."""
        return self.value.partition("-")[0]

    @property
    def cache(self) -> str:
        """virtiofsd's option --cache, or 9p's mount option cache=."""
        return self.value.partition("-")[2] or ("auto" if self.is_virtiofs else "none")


class During(StrEnum):
    """What QEMU does to the disk while the guest works."""

    NONE = "none"
    SNAPSHOT = "snapshot"
    BACKUP = "backup"


FILE_SYSTEMS = ("ext4", "xfs", "btrfs")
QCOW2 = {"disk.format": ("qcow2",)}
ZVOLS = {"disk.volume": tuple(volume for volume in Volume if volume.is_zvol)}
DATASETS = {"disk.volume": tuple(volume for volume in Volume if volume.is_dataset)}
ON_ZFS = {"disk.volume": tuple(volume for volume in Volume if volume.is_zfs)}
CACHED = tuple(mode for mode in CacheMode if not mode.is_direct)
SHARED = tuple(share for share in Share if share is not Share.NONE)
MAPPED = tuple(share for share in SHARED if share.is_virtiofs)
# Of which a guest maps no file to write to it, because it caches nothing -> the level beside it that caches
UNMAPPED = {Share.NINE_P: Share.NINE_P_LOOSE, Share.VIRTIOFS_NEVER: Share.VIRTIOFS}
A_DISK = {"disk.share": (Share.NONE,)}  # the guest has a disk, with QEMU's settings for it
THREADED = ("virtio", "virtio-scsi")  # buses that support an iothread and several queues
QUEUED = {"disk.bus": THREADED, **A_DISK}
THREADS = {"off": 0, "on": 1, "2": 2, "4": 4, "8": 8}  # levels of disk.iothread
CLUSTERS = ("64KiB", "4KiB", "16KiB", "32KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB")
ZVOL_BLOCKS = ("16KiB", "4KiB", "8KiB", "32KiB", "64KiB", "128KiB")
RECORDS = ("128KiB", "4KiB", "8KiB", "16KiB", "32KiB", "64KiB", "1MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings(Settings):
    """The settings of one disk. The fields whose `layers` is BACKED determine its file or device; the others how QEMU
    opens it.
    """

    volume: Volume = setting(
        "disk.volume",
        tuple(Volume),
        Volume,
        "what holds the guest's disk: the named directory or device itself (plain), an LVM volume, or ZFS,"
        " over one disk or over four (raidz1)",
        layers=BACKED,
    )
    filesystem: str = setting(
        "disk.filesystem",
        ("as-is", "none", *FILE_SYSTEMS),
        str,
        "the file system that holds the disk's file, made for the run; as-is: that of the named directory, or the"
        " dataset; none: there is no file, and the guest gets the block device",
        layers=BACKED,
        conflicts=(
            Conflict(
                {**DATASETS, "disk.filesystem": ("none", *FILE_SYSTEMS)},
                "disk.volume={volume} is a file system already: it goes with disk.filesystem=as-is only",
            ),
            Conflict(
                {
                    "disk.volume": [v for v in Volume if v is not Volume.PLAIN and not v.is_dataset],
                    "disk.filesystem": ("as-is",),
                },
                "disk.volume={volume} is a block device: disk.filesystem must be none, ext4, xfs or btrfs",
            ),
        ),
    )
    format: str = setting(
        "disk.format",
        ("raw", "qcow2"),
        str,
        "the format of the disk's file; the host layer always uses raw",
        layers=BACKED,
        conflicts=(
            Conflict(
                {**QCOW2, "disk.filesystem": ("none",)},
                "disk.format=qcow2 is a file, and disk.filesystem=none has none",
            ),
        ),
    )
    preallocation: str = setting(
        "disk.preallocation",
        ("falloc", "off", "metadata", "full"),
        str,
        "how much of the file is allocated before it is first written (qemu-img's preallocation=)",
        layers=BACKED,
        options={"qemu-img": ProgramOption("preallocation")},
        only_with={"disk.filesystem": ("as-is", *FILE_SYSTEMS)},
        conflicts=(
            Conflict(
                {
                    "disk.format": ("raw",),
                    "disk.preallocation": ("metadata",),
                    "disk.filesystem": ("as-is", *FILE_SYSTEMS),
                },
                "disk.preallocation=metadata is about qcow2; a raw file has none",
                assumed=("disk.format", "disk.filesystem"),
            ),
        ),
    )
    barriers: bool = setting(
        "disk.barriers",
        ("on", "off"),
        is_on,
        "whether the host's ext4 makes its disk write flushed data at once; off (barrier=0): a power cut loses the data"
        " that a disk with a volatile cache has not written yet",
        layers=BACKED,
        options={"mount": ProgramOption("", {"off": "barrier=0"})},
        only_with={"disk.filesystem": ("ext4",)},
    )
    cluster_size: int = setting(
        "disk.cluster_size",
        CLUSTERS,
        parse_bytes,
        "cluster size of a qcow2 file",
        layers=BACKED,
        options={"qemu-img": ProgramOption("cluster_size", in_bytes(CLUSTERS))},
        only_with=QCOW2,
    )
    lazy_refcounts: bool = setting(
        "disk.lazy_refcounts",
        SWITCH,
        is_on,
        "whether QEMU delays updates of a qcow2 file's reference counts; this saves writes of metadata, and the file"
        " must be repaired after a crash",
        layers=BACKED,
        options={"qemu-img": ProgramOption("lazy_refcounts")},
        only_with=QCOW2,
    )
    extended_l2: bool = setting(
        "disk.extended_l2",
        SWITCH,
        is_on,
        "whether parts of a cluster of a qcow2 file can be allocated separately",
        layers=BACKED,
        options={"qemu-img": ProgramOption("extended_l2")},
        only_with=QCOW2,
        conflicts=(
            Conflict(
                {"disk.extended_l2": ("on",), "disk.cluster_size": ("4KiB",)},
                "disk.extended_l2=on takes clusters of 16 KiB or more",
            ),
        ),
    )
    volblocksize: int = setting(
        "zfs.volblocksize",
        ZVOL_BLOCKS,
        parse_bytes,
        "block size of a ZFS volume",
        layers=BACKED,
        options={"zfs": ProgramOption("volblocksize", in_bytes(ZVOL_BLOCKS))},
        only_with=ZVOLS,
    )
    recordsize: int = setting(
        "zfs.recordsize",
        RECORDS,
        parse_bytes,
        "size of the largest block of a file in a ZFS dataset",
        layers=BACKED,
        options={"zfs": ProgramOption("recordsize", in_bytes(RECORDS))},
        only_with=DATASETS,
    )
    compression: str = setting(
        "zfs.compression",
        ("lz4", "off", "zstd"),
        str,
        "how ZFS compresses data; the data under test cannot be compressed",
        layers=BACKED,
        options={"zfs": ProgramOption("compression")},
        only_with=ON_ZFS,
    )
    sync: str = setting(
        "zfs.sync",
        ("standard", "disabled", "always"),
        str,
        "whether ZFS writes flushed data to the disk before it reports the flush as complete",
        layers=BACKED,
        options={"zfs": ProgramOption("sync")},
        only_with=ON_ZFS,
    )
    primarycache: str = setting(
        "zfs.primarycache",
        ("all", "metadata", "none"),
        str,
        "what ZFS keeps in its own cache (ARC)",
        layers=BACKED,
        options={"zfs": ProgramOption("primarycache")},
        only_with=ON_ZFS,
    )
    snapshots: int = setting(
        "disk.snapshots",
        ("0", "1", "2", "4", "8", "16", "30"),
        int,
        "how many external snapshots were taken of the full disk, with nothing written between them: as many qcow2"
        " images over its file, of which the last gets what the guest writes; the others are empty, so each read of old"
        " data looks through all of them. They are made anew for each boot",
        layers=("vm",),
        scope="host",
        others=OtherLevels(r"[1-9]\d{0,2}", ends=("1", "200")),
        only_with={"disk.filesystem": ("as-is", *FILE_SYSTEMS), **A_DISK},
    )
    during: During = setting(
        "disk.snapshot_during",
        tuple(During),
        During,
        "what QEMU does to the disk once the guest works: nothing; an external snapshot, whose image is merged again"
        " after each measurement; or a backup of the whole disk to a file beside it, just so fast that it lasts as long"
        " as the measurement; one that takes clearly longer is void",
        layers=("vm",),
        scope="host",
        only_with={"disk.filesystem": ("as-is", *FILE_SYSTEMS), **A_DISK},
    )
    share: Share = setting(
        "disk.share",
        tuple(Share),
        Share,
        "how the guest reaches the disk's file: as a disk (none), or by mounting its directory, which virtiofsd or QEMU"
        " (9p) shares with it; never, always, loose: what the guest caches, if not auto (virtiofs) or nothing (9p)."
        " DAX has no level: no release of QEMU has it for virtiofs",
        layers=("vm",),
        conflicts=(
            Conflict(
                {"disk.share": SHARED, **QCOW2},
                "disk.share={share} shares a directory, and a guest reads no qcow2 in it: disk.format must be raw",
            ),
            Conflict(
                {"disk.share": SHARED, "disk.filesystem": ("none",)},
                "disk.share={share} shares a directory, and disk.filesystem=none has none",
            ),
            Conflict(
                {"disk.share": MAPPED, "memory.backing": ("thp", "4k")},
                "disk.share={share} needs memory that virtiofsd can map too: memory.backing must be memfd, 2MiB or"
                " 1GiB, and not {backing}",
            ),
        ),
    )
    server: DiskServer = setting(
        "disk.server",
        tuple(DiskServer),
        DiskServer,
        "who opens the disk's file or device: QEMU itself (none), or a server of NBD on the same host, with the disk's"
        " cache and aio, to which QEMU connects over a socket: what storage behind a protocol costs, without a network",
        layers=("vm",),
        scope="host",
        only_with=A_DISK,
        conflicts=(
            Conflict(
                {"disk.server": (DiskServer.NBD,), "disk.snapshots": Where(lambda number: number > 0)},
                "disk.server={server} has no images over its disk: disk.snapshots must be 0",
            ),
            Conflict(
                {"disk.server": (DiskServer.NBD,), "disk.snapshot_during": (During.SNAPSHOT, During.BACKUP)},
                "disk.server={server} opens the disk, of which QEMU makes no snapshot or backup then:"
                " disk.snapshot_during must be none",
            ),
            Conflict(
                {"disk.server": (DiskServer.NBD,), "disk.page_cache": ("bounded",)},
                "disk.server={server} fills the page cache outside of QEMU: disk.page_cache must be unbounded",
            ),
        ),
    )
    cache: CacheMode = setting(
        "disk.cache",
        tuple(CacheMode),
        CacheMode,
        "QEMU's cache mode: whether the host's page cache is used, and whether a flush reaches the disk",
        layers=PLUGGED,
        only_with=A_DISK,
        options={"drive": ProgramOption("cache"), "libvirt": ProgramOption("cache"), "proxmox": ProgramOption("cache")},
    )
    aio: str = setting(
        "disk.aio",
        ("native", "threads", "io_uring"),
        str,
        "how QEMU submits I/O to the host's kernel; native works only with disk.cache none or directsync",
        layers=PLUGGED,
        only_with=A_DISK,
        options={"drive": ProgramOption("aio"), "libvirt": ProgramOption("io"), "proxmox": ProgramOption("aio")},
        conflicts=(
            Conflict(
                {"disk.aio": ("native",), "disk.cache": CACHED},
                "disk.aio=native needs O_DIRECT, which disk.cache={cache} does not use",
            ),
        ),
    )
    bus: str = setting(
        "disk.bus",
        ("virtio", "virtio-scsi", "ide", "sata", "nvme"),
        str,
        "the disk controller in the guest",
        layers=CLONED,
        only_with=A_DISK,
    )
    iothread: int = setting(
        "disk.iothread",
        tuple(THREADS),
        THREADS.__getitem__,
        "whether a virtio disk has a thread of its own; otherwise QEMU's main loop serves it. Numbers: that many"
        " threads, to which its queues are dealt out (iothread-vq-mapping, since QEMU 9.0; for virtio-scsi since 10.0)",
        layers=CLONED,
        only_with=QUEUED,
    )
    bounded: bool = setting(
        "disk.page_cache",
        ("unbounded", "bounded"),
        lambda level: level == "bounded",
        "how large the host's page cache for the guest's disk may be: as large as memory allows, or a quarter of the"
        " disk (limited by a memory cgroup)",
        layers=("vm",),
        scope="host",
        only_with={"disk.cache": CACHED, **A_DISK},
        conflicts=(
            Conflict(
                {"disk.page_cache": ("bounded",), **ON_ZFS},
                "disk.page_cache=bounded bounds nothing on disk.volume={volume}: ZFS has a cache of its own (ARC)",
            ),
        ),
    )
    queues: int = setting(
        "disk.queues",
        ("auto", "1", "2", "4", "8"),
        lambda level: 0 if level == "auto" else int(level),
        "number of queues of a virtio disk; auto: one for each vCPU",
        layers=CLONED,
        only_with=QUEUED,
    )
    discard: str = setting(
        "disk.discard",
        ("ignore", "unmap"),
        str,
        "whether blocks that the guest trims are freed on the host",
        layers=PLUGGED,
        only_with=A_DISK,
        options={
            "drive": ProgramOption("discard", {"unmap": "unmap"}),
            "libvirt": ProgramOption("discard", {"unmap": "unmap"}),
            "proxmox": ProgramOption("discard", {"unmap": "on"}),
        },
    )
    detect_zeroes: str = setting(
        "disk.detect_zeroes",
        ("off", "on", "unmap"),
        str,
        "whether QEMU detects blocks of zeros, and writes them without data; unmap: it frees these blocks instead",
        layers=PLUGGED,
        only_with=A_DISK,
        options={
            "drive": ProgramOption("detect-zeroes", {"on": "on", "unmap": "unmap"}),
            "libvirt": ProgramOption("detect_zeroes", {"on": "on", "unmap": "unmap"}),
            # Proxmox detects zeros by default, so off must be set explicitly.
            "proxmox": ProgramOption("detect_zeroes", {"off": "0", "on": "1", "unmap": "1"}),
        },
        conflicts=(
            Conflict(
                {"disk.detect_zeroes": ("unmap",), "disk.discard": ("ignore",)},
                "disk.detect_zeroes=unmap needs disk.discard=unmap: QEMU refuses it otherwise",
            ),
        ),
    )

    @property
    def is_shared(self) -> bool:
        """Whether the guest has no disk, but a directory of the host."""
        return self.share is not Share.NONE

    @property
    def copied(self) -> During:
        """What is done to the disk while its guest works: nothing where the guest has no disk, or no file of one."""
        return self.during if self.is_file and not self.is_shared else During.NONE

    @property
    def is_file(self) -> bool:
        """Whether it is an image in a file system, not a block device."""
        return self.filesystem != "none"

    @property
    def lies_in_directory(self) -> bool:
        """Whether it is an image directly in the directory named for disks, without a file system or volume in
        between.
        """
        return self.volume is Volume.PLAIN and self.filesystem == "as-is"

    @property
    def is_mounted(self) -> bool:
        """Whether it lies in a file system made for it."""
        return self.volume.is_dataset or self.filesystem not in ("as-is", "none")


DEFAULT = DiskSettings()  # every factor at its default


def mount_options(settings: DiskSettings) -> tuple[str, ...]:
    """The options with which the file system around the disk's file is mounted, for mount(8)."""
    options = ",".join(value for _, value in settings.options("mount"))
    return ("-o", options) if options else ()
