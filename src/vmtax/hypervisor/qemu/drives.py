"""A guest's disks as QEMU takes them: as arguments, and over QMP. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmtax.design.disk import THREADED
from vmtax.hypervisor.spec import DATA_ID, Drive

THREAD_ID = "thread"
CONTROLLER_ID = "scsi"
LOGGED = "blklogwrites"  # the driver that keeps a log of writes, in the format of the kernel's dm-log-writes
# How its log is written: into the page cache, where it outlives QEMU. Past it QEMU writes whole blocks of the file
# system, and the log's size would not say which entries were in it then.
LOG_CACHE = {"direct": False, "no-flush": True}
LOG_AIO = "threads"  # Linux's native AIO takes direct=on
MOST_DISKS = {"ide": 2, "sata": 6}  # channels of the controller that the machine has, a disk each
MODULES = {  # of the guest's kernel, by the bus
    "virtio": (),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "ide": ("ata_piix", "sd_mod"),
    "sata": ("ahci", "sd_mod"),
    "nvme": ("nvme",),
}
# The older PC's IDE and the newer one's AHCI controller take the same disks; machine_type chooses between them.
DRIVERS = {
    "virtio": "virtio-blk-pci",
    "virtio-scsi": "scsi-hd",
    "ide": "ide-hd",
    "sata": "ide-hd",
    "nvme": "nvme",
}


def machine_type(disks: Sequence[Drive]) -> str:
    """Only the older PC has an IDE controller; q35 has AHCI in its place."""
    return "pc" if any(disk.settings.bus == "ide" for disk in disks) else "q35"


def disk_arguments(disks: Sequence[Drive]) -> tuple[str, ...]:
    """The disks alone, with what they take beside them: an iothread, a SCSI controller."""
    words: list[str] = []
    if any(disk.settings.iothread and disk.settings.bus in THREADED for disk in disks):
        words += ["-object", f"iothread,id={THREAD_ID}"]
    seen: list[str] = []  # their buses
    for disk in disks:
        words += ["-drive", _drive(disk)]
        if disk.settings.bus == "virtio-scsi" and disk.settings.bus not in seen:
            words += ["-device", f"virtio-scsi-pci,id={CONTROLLER_ID}{_thread_and_queues(disk, 'num_queues')}"]
        words += ["-device", _device(disk, seen.count(disk.settings.bus))]
        seen.append(disk.settings.bus)
    return tuple(words)


def block_node(disk: Drive) -> dict[str, Any]:
    """The arguments of QMP's blockdev-add that open `disk` as the command line does."""
    mode = disk.settings.cache
    options = {name: value for name, value in disk.settings.options("drive") if name not in ("cache", "aio")}
    # Those of the format and of the file below it are alike, but for what submits the I/O.
    node = {**options, "cache": {"direct": mode.is_direct, "no-flush": mode.ignores_flushes}}
    file = {"driver": _driver(disk), "filename": disk.path, "aio": disk.settings.aio, **node}
    if disk.log:
        log = {**file, "driver": "file", "filename": disk.log, "aio": LOG_AIO, "cache": LOG_CACHE}
        file = {"driver": LOGGED, "file": file, "log": log, **node}
    return {"node-name": DATA_ID, "driver": disk.settings.format, **node, "file": file}


def image_argument(name: str, path: str) -> str:
    """A read-only image: the root, or a layer over it."""
    return f"if=none,id={name},format=raw,readonly=on,file={escaped(path)}"


def _drive(disk: Drive) -> str:
    how = ",".join(f"{name}={value}" for name, value in disk.settings.options("drive"))
    how += "" if disk.auto_read_only else ",auto-read-only=off"
    return f"if=none,id={disk.name},format={disk.settings.format},{how},{_throttling(disk)}{_file(disk)}"


def _file(disk: Drive) -> str:
    """The cache mode and the like of the disk are those of its parts, too, but for the log."""
    if not disk.log:
        return f"file={escaped(disk.path)}"
    below = f"file.file.driver={_driver(disk)},file.file.filename={escaped(disk.path)}"
    cache = ",".join(f"file.log.cache.{name}={'on' if value else 'off'}" for name, value in LOG_CACHE.items())
    log = f"file.log.driver=file,{cache},file.log.aio={LOG_AIO},file.log.filename={escaped(disk.log)}"
    return f"file.driver={LOGGED},{below},{log}"


def _driver(disk: Drive) -> str:
    return "host_device" if disk.is_device else "file"


def _device(disk: Drive, number: int) -> str:
    """`number`: how many disks of its bus there are before it."""
    # An NVMe device must have a serial number; the others may.
    device = f"{DRIVERS[disk.settings.bus]},drive={disk.name},serial={disk.serial or disk.name}"
    if disk.settings.bus == "virtio-scsi":
        return f"{device},bus={CONTROLLER_ID}.0"
    if disk.settings.bus in MOST_DISKS:
        return f"{device},bus=ide.{number}" if number else device  # a channel, or port, of its own
    return f"{device}{_thread_and_queues(disk, 'num-queues')}"


def _thread_and_queues(disk: Drive, queues: str) -> str:
    """Options of the device that has the queues; `queues` is what it calls their number."""
    if disk.settings.bus not in THREADED:
        return ""
    thread = f",iothread={THREAD_ID}" if disk.settings.iothread else ""
    return thread + (f",{queues}={disk.settings.queues}" if disk.settings.queues else "")


def _throttling(disk: Drive) -> str:
    """QEMU's limit; any size is one operation.

    The largest burst is a second's worth: what a guest that was kept waiting could not ask for, it gets afterwards.
    With QEMU's default, a tenth of that, a busy host would take from the rate.
    """
    limit = disk.iops_limit
    return f"throttling.iops-total={limit},throttling.iops-total-max={limit}," if limit else ""


def escaped(path: str) -> str:
    """A path as part of an option: QEMU splits options at commas; a doubled comma is one that is meant."""
    return path.replace(",", ",,")
