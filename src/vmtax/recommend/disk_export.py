"""A disk as an administrator sets it up: commands for its backing, and settings for QEMU, libvirt and Proxmox. Pure.

Sources: libvirt's formatdomain, "Hard drives, floppy disks, CDROMs" and "IOThreads Allocation"; its schema domain.rng.
Proxmox VE's qm.conf(5) (ide[n], sata[n], scsi[n], virtio[n], scsihw) and pvesm(1) (preallocation, blocksize, sparse).
zfsprops(7), lvcreate(8), qemu-img(1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from xml.sax.saxutils import quoteattr

from vmtax.design import disk
from vmtax.design.disk import FILE_SYSTEMS, THREADED, DiskSettings, Volume, mount_options
from vmtax.hypervisor.qemu.drives import disk_arguments, machine_type
from vmtax.hypervisor.qemu.img import create_image
from vmtax.hypervisor.spec import Drive
from vmtax.recommend.forms import Argv, Form, broken

GIB = 2**30
# Placeholders that the administrator must replace, unless the caller gives names.
GROUP, THIN_POOL, POOL, DISKS, VMID, STORAGE = "VG", "THINPOOL", "POOL", "DISK1 DISK2 DISK3 DISK4", "VMID", "STORAGE"
# By id, because /dev/sdb may be another disk after a reboot.
NAME, DIRECTORY, DEVICE = "vm1", "/var/lib/libvirt/images", "/dev/disk/by-id/DEVICE"
# bus -> (libvirt's bus, the guest's disk); libvirt has no bus for QEMU's NVMe.
_TARGETS = {"virtio": ("virtio", "vda"), "virtio-scsi": ("scsi", "sda"), "ide": ("ide", "hda"), "sata": ("sata", "sda")}
_PROXMOX = {"virtio": "virtio0", "virtio-scsi": "scsi0", "ide": "ide0", "sata": "sata0"}
FEWEST_QUEUES = 2  # that Proxmox accepts
_BLOCKSIZE = "volblocksize"  # the only property of a ZFS volume that Proxmox sets on the storage


@dataclass(frozen=True, slots=True)
class DiskExport:
    """One choice in the form of each program; what a form cannot express is in its notes."""

    path: str  # path of the disk
    size: str  # size of the disk, as the commands write it; a volume that holds a file is a tenth larger
    backing: tuple[Argv, ...]  # commands that make the storage below the disk, in order; words in capitals must be
    # replaced
    qemu: Argv  # arguments that are added to QEMU's command line
    machine: str  # value of QEMU's -machine that has the disk's bus
    libvirt: str  # children of <domain>; empty if libvirt cannot express the choice
    libvirt_notes: tuple[str, ...]  # what these cannot express
    proxmox: tuple[Argv, ...]  # commands; empty if Proxmox VE cannot express the choice
    proxmox_notes: tuple[str, ...]  # what these cannot express

    def forms(self, width: int = 78) -> tuple[Form, ...]:
        """The commands that make it, and its forms for QEMU, libvirt and Proxmox; commands are broken at `width`."""
        made = tuple(broken(self.backing, width))
        bare = () if made else (f"nothing is to be made: the disk is {self.path} itself.",)
        return (
            Form("Create the disk", "sh", made, bare),
            Form(f"QEMU (with -machine {self.machine})", "sh", tuple(broken((self.qemu,), width)), ()),
            Form("libvirt", "xml", tuple(self.libvirt.splitlines()), self.libvirt_notes),
            Form("Proxmox VE", "sh", tuple(broken(self.proxmox, width)), self.proxmox_notes),
        )

    @property
    def put_in(self) -> str:
        """Which placeholders in the forms must be replaced, in sentences."""
        size = f"the size {self.size} (a volume that holds a file is a tenth larger), " if self.backing else ""
        return (
            "The disk that was measured was temporary and is gone. Replace these: the path"
            f" {self.path}, {size}and what is written in capital letters."
        )


def export_disk(levels: Mapping[str, str], path: str | None = None, size: int = 32 * GIB) -> DiskExport:
    """Export a treatment's levels for a disk of `size` bytes at `path`; by default a path with placeholders.

    Raises UnknownLevel.
    """
    settings = DiskSettings.of(levels)
    where = path or usual_path(settings)
    drive = Drive(where, settings)
    xml, xml_notes = _libvirt(drive)
    proxmox, proxmox_notes = _proxmox(drive, size)
    return DiskExport(
        path=where,
        size=_written(size),
        backing=tuple(_backing(settings, where, size)),
        qemu=disk_arguments([drive]),
        machine=machine_type([drive]),
        libvirt=xml,
        libvirt_notes=xml_notes,
        proxmox=proxmox,
        proxmox_notes=proxmox_notes,
    )


def usual_path(settings: DiskSettings) -> str:
    """The usual path of such a disk: a device with placeholders, or a file in libvirt's directory."""
    if not settings.is_file:
        return _device(settings.volume)
    own = settings.volume is not Volume.PLAIN or settings.filesystem != "as-is"
    # Mounting over a directory in use would hide its contents.
    directory = f"/{POOL}/{NAME}" if settings.volume.is_dataset else f"/srv/{NAME}" if own else DIRECTORY
    return f"{directory}/{NAME}.{settings.format}"


def _is_itself(settings: DiskSettings) -> bool:
    """Whether the disk is an existing device that is used unchanged."""
    return settings.volume is Volume.PLAIN and not settings.is_file


def _device(volume: Volume) -> str:
    """The block device below, with placeholders."""
    if volume.is_lvm:
        return f"/dev/{GROUP}/{NAME}"
    return f"/dev/zvol/{POOL}/{NAME}" if volume.is_zvol else DEVICE


def _backing(settings: DiskSettings, path: str, size: int) -> Iterator[Argv]:
    volume, system = settings.volume, settings.filesystem
    device = _device(volume) if settings.is_file else path
    if volume.is_raidz:
        # The same sectors as in the measured pool, whatever the disks claim.
        yield ("zpool", "create", "-o", "ashift=12", POOL, "raidz1", *DISKS.split())
    # A file needs additional space for its file system's metadata, and qcow2 for its tables.
    room = _written(_rounded(size * 1.1) if settings.is_file else size)
    properties = [word for name, value in settings.options("zfs") for word in ("-o", f"{name}={value}")]
    if volume.is_lvm:
        group, name = _group_and_name(device)
        if volume is Volume.LVM_THIN:
            thin = ("--type", "thin", "--name", name, "--virtualsize", room)
            yield ("lvcreate", *thin, f"{group}/{THIN_POOL}")
        else:
            yield ("lvcreate", "--name", name, "--size", room, group)
    elif volume.is_zvol:
        yield ("zfs", "create", *properties, "-V", room, device.removeprefix("/dev/zvol/"))
    elif volume.is_dataset:
        yield ("zfs", "create", *properties, f"{POOL}/{NAME}")
    if system in FILE_SYSTEMS:
        directory = path.rpartition("/")[0]
        yield (f"mkfs.{system}", device)
        yield ("mkdir", "-p", directory)
        yield ("mount", *mount_options(settings), device, directory)
    if settings.is_file or settings.format != "raw":
        yield tuple(create_image(settings, path, _written(size)))


def _rounded(size: float) -> int:
    """Rounded up to whole MiB."""
    return math.ceil(size / 2**20) * 2**20


def _written(size: int) -> str:
    """In the notation of all these tools: "32G" with factors of 1024; bytes if it is no whole number of MiB."""
    for factor, unit in ((GIB, "G"), (2**20, "M")):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _group_and_name(device: str) -> tuple[str, str]:
    """Group and name of "/dev/VG/LV"; the usual ones for another path."""
    words = device.removeprefix("/dev/").split("/")
    return (words[0], words[1]) if len(words) == 2 else (GROUP, NAME)


def _is_device(path: str) -> bool:
    return path.startswith("/dev/") and not path.startswith("/dev/shm/")


CONTROLLER = " type='scsi' index='0' model='virtio-scsi'"


def _element(name: str, attributes: str, inside: str) -> str:
    return f"<{name}{attributes}>{inside}</{name}>" if inside else f"<{name}{attributes}/>"


def _libvirt(drive: Drive) -> tuple[str, tuple[str, ...]]:
    settings = drive.settings
    if settings.bus not in _TARGETS:
        return "", (
            "libvirt 9.0 has no bus for QEMU's emulated NVMe disk (its <disk type='nvme'> passes on a real one), newer"
            " ones may; put the QEMU arguments into <qemu:commandline>.",
        )
    bus, target = _TARGETS[settings.bus]
    kind, source = ("block", "dev") if _is_device(drive.path) else ("file", "file")
    options = "".join(f" {name}='{value}'" for name, value in settings.options("libvirt"))
    words = f"name='qemu' type='{settings.format}'{options}"
    threads = settings.iothread if settings.bus in THREADED else 0
    own = (" iothread='1'" if threads == 1 else "") + (f" queues='{settings.queues}'" if settings.queues else "")
    dealt = "".join(f"<iothread id='{number}'/>" for number in range(1, threads + 1)) if threads > 1 else ""
    dealt = f"<iothreads>{dealt}</iothreads>" if dealt else ""
    if settings.bus == "virtio":
        words += own
    lines = [f"<iothreads>{threads}</iothreads>"] if threads else []
    lines.append("<devices>")
    if settings.bus == "virtio-scsi":
        inside = _element("driver", own, dealt) if own or dealt else ""
        lines.append(f"  {_element('controller', CONTROLLER, inside)}")
    lines += [
        f"  <disk type='{kind}' device='disk'>",
        f"    {_element('driver', f' {words}', dealt if settings.bus == 'virtio' else '')}",
        f"    <source {source}={quoteattr(drive.path)}/>",
        f"    <target dev='{target}' bus='{bus}'/>",
        "  </disk>",
        "</devices>",
    ]
    notes = []
    if dealt:
        notes.append("Several iothreads for a disk take libvirt 10.0 or newer.")
    if settings.bus == "ide":
        notes.append("IDE needs the machine type pc (i440fx): <os><type machine='pc'>hvm</type></os>.")
    return "\n".join(lines), tuple(notes)


def _proxmox(drive: Drive, size: int) -> tuple[tuple[Argv, ...], tuple[str, ...]]:
    settings = drive.settings
    if settings.bus not in _PROXMOX:
        return (), (
            "Proxmox VE has no bus for QEMU's emulated NVMe disk; put the QEMU arguments into `qm set VMID --args`,"
            " and know that it then neither backs up nor migrates that disk.",
        )
    itself = _is_itself(settings)
    # A size in GiB asks the storage for a new volume; an existing device is named by its path.
    what = drive.path if itself else f"{STORAGE}:{math.ceil(size / GIB)}"
    words = [what, *(f"{name}={value}" for name, value in settings.options("proxmox"))]
    if settings.is_file or (itself and settings.format != "raw"):
        words.append(f"format={settings.format}")
    if settings.iothread and settings.bus in THREADED:
        words.append("iothread=1")
    notes = []
    if settings.iothread > 1 and settings.bus in THREADED:
        notes.append(f"it cannot set disk.iothread={settings.iothread}: a disk has one thread there.")
    queues = settings.queues if settings.bus == "virtio-scsi" else 0
    if queues >= FEWEST_QUEUES:
        words.append(f"queues={queues}")
    elif queues:
        notes.append(
            f"it cannot set disk.queues={queues}: queues= begins with {FEWEST_QUEUES}, QEMU's default is used."
        )
    elif settings.queues:
        notes.append(f"it cannot set disk.queues={settings.queues} for this bus: only scsi disks take queues=.")
    argv: list[str] = ["qm", "set", VMID]
    if settings.bus == "virtio-scsi":
        # The kind that has one controller for each disk, with its own iothread and queues; the others ignore these
        # options.
        own = settings.iothread or queues >= FEWEST_QUEUES
        argv += ["--scsihw", "virtio-scsi-single" if own else "virtio-scsi-pci"]
    commands: list[Argv] = []
    if settings.is_file:
        commands.append(("pvesm", "set", STORAGE, "--preallocation", settings.preallocation))
        notes.append("preallocation is the storage's, for all disks that are made on it from then on.")
    notes += _unsaid(settings)
    if settings.bus == "ide":
        notes.append("IDE needs the machine type pc (i440fx), which is its default.")
    commands.append((*argv, f"--{_PROXMOX[settings.bus]}", ",".join(words)))
    return tuple(commands), (*notes, *_where(settings, drive.path))


def _where(settings: DiskSettings, path: str) -> Iterator[str]:
    """What the storage is based on, and which of the commands above Proxmox does not need, because it makes its disks
    itself.
    """
    volume = settings.volume
    if _is_itself(settings):
        yield (
            "the device is in none of its storages, and a guest that has it is not migrated to another node (unless"
            " that has the same device under this path, and shared=1 says so)."
        )
    elif settings.is_file:
        yield (
            f"{STORAGE} is a storage of type dir in the file system of {path.rpartition('/')[0]}: pvesm(1). Proxmox"
            " makes the image itself, under its own name: the `qemu-img create` above is not for it."
        )
    elif volume.is_lvm:
        group, _ = _group_and_name(path)
        is_thin = volume is Volume.LVM_THIN
        on = f"lvmthin on the thin pool {group}/{THIN_POOL}" if is_thin else f"lvm on the group {group}"
        yield (
            f"{STORAGE} is a storage of type {on}: pvesm(1). Proxmox makes the volume itself: the `lvcreate` above"
            " is not for it."
        )
    else:
        pool = path.removeprefix("/dev/zvol/").rpartition("/")[0] or POOL
        needed = ", but the `zpool create` is" if volume.is_raidz else ""
        yield (
            f"{STORAGE} is a storage of type zfspool on {pool}: pvesm(1). Proxmox makes the volume itself: the"
            f" `zfs create` above is not for it{needed}."
        )


def _unsaid(settings: DiskSettings) -> Iterator[str]:
    """Settings that neither `qm set` nor the storage supports."""
    if settings.format == "qcow2":
        unusual = replace(settings, preallocation=disk.DEFAULT.preallocation).unusual  # preallocation is the storage's
        of_images = {factor.name for factor in settings.factors().values() if "qemu-img" in factor.options}
        named = ", ".join(f"{name}={level}" for name, level in unusual.items() if name in of_images)
        if named:
            yield (
                f"it cannot set {named}: make the image with qemu-img as"
                " images/VMID/vm-VMID-disk-0.qcow2 of the storage, then `qm disk rescan` finds it."
            )
        if not settings.is_file and not _is_itself(settings):
            yield "it keeps qcow2 on a bare volume on LVM only, with snapshot-as-volume-chain (9.0); else it is raw."
    if settings.discard == "unmap" and settings.detect_zeroes == "on":
        yield "it cannot set disk.detect_zeroes=on: with discard=on it frees the blocks of zeros, as unmap does."
    # If the storage is ZFS itself, it makes the volume; files are in what was made above with its properties.
    if settings.volume.is_zvol and not settings.is_file:
        properties = dict(settings.options("zfs"))
        size = properties.pop(_BLOCKSIZE)
        named = ", ".join(f"{name}={value}" for name, value in properties.items())
        yield f"{named}: by `zfs set` on the storage's dataset, from which its volumes have it."
        yield f"volblocksize is the storage's: `pvesm set {STORAGE} --blocksize {size}`."
