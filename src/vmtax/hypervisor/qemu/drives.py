"""QEMU's options for a guest's disks, on the command line and over QMP. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vmtax.design.disk import THREADED
from vmtax.hypervisor.spec import DATA_ID, Drive

THREAD_ID = "thread"
CONTROLLER_ID = "scsi"
LOGGED = "blklogwrites"  # driver that logs writes, in the format of the kernel's dm-log-writes
# The log is written through the page cache, and so survives QEMU. Otherwise QEMU would write whole blocks of the file
# system, and the log's size would not show which entries it contained.
LOG_CACHE = {"direct": False, "no-flush": True}
LOG_AIO = "threads"  # native Linux AIO requires direct=on
MOST_DISKS = {"ide": 2, "sata": 6}  # the machine's controller has this many channels, with one disk each
MODULES = {  # of the guest's kernel, by bus
    "virtio": (),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "ide": ("ata_piix", "sd_mod"),
    "sata": ("ahci", "sd_mod"),
    "nvme": ("nvme",),
}
# The older PC's IDE controller and the newer one's AHCI controller take the same disks; machine_type chooses one.
DRIVERS = {
    "virtio": "virtio-blk-pci",
    "virtio-scsi": "scsi-hd",
    "ide": "ide-hd",
    "sata": "ide-hd",
    "nvme": "nvme",
}


def machine_type(disks: Sequence[Drive]) -> str:
    """Only the older PC has an IDE controller; q35 has AHCI instead."""
    return "pc" if any(disk.settings.bus == "ide" for disk in disks) else "q35"


def disk_arguments(disks: Sequence[Drive]) -> tuple[str, ...]:
    """Arguments for the disks only, with their iothreads and SCSI controllers."""
    words: list[str] = []
    if any(disk.settings.iothread and disk.settings.bus in THREADED for disk in disks):
        words += ["-object", f"iothread,id={THREAD_ID}"]
    seen: list[str] = []  # buses of the disks so far
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
    # The options of the format and of the file below it are the same, except for those about submitting I/O.
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
    """The disk's cache mode and similar options apply to its parts, too, except to the log."""
    if not disk.log:
        return f"file={escaped(disk.path)}"
    below = f"file.file.driver={_driver(disk)},file.file.filename={escaped(disk.path)}"
    cache = ",".join(f"file.log.cache.{name}={'on' if value else 'off'}" for name, value in LOG_CACHE.items())
    log = f"file.log.driver=file,{cache},file.log.aio={LOG_AIO},file.log.filename={escaped(disk.log)}"
    return f"file.driver={LOGGED},{below},{log}"


def _driver(disk: Drive) -> str:
    return "host_device" if disk.is_device else "file"


def _device(disk: Drive, number: int) -> str:
    """`number`: how many disks of its bus precede it."""
    # An NVMe device must have a serial number; for the others it is optional.
    device = f"{DRIVERS[disk.settings.bus]},drive={disk.name},serial={disk.serial or disk.name}"
    if disk.settings.bus == "virtio-scsi":
        return f"{device},bus={CONTROLLER_ID}.0"
    if disk.settings.bus in MOST_DISKS:
        return f"{device},bus=ide.{number}" if number else device  # a channel or port of its own
    return f"{device}{_thread_and_queues(disk, 'num-queues')}"


def _thread_and_queues(disk: Drive, queues: str) -> str:
    """Options of the device that has the queues; `queues`: its option for their number."""
    if disk.settings.bus not in THREADED:
        return ""
    thread = f",iothread={THREAD_ID}" if disk.settings.iothread else ""
    return thread + (f",{queues}={disk.settings.queues}" if disk.settings.queues else "")


def _throttling(disk: Drive) -> str:
    """QEMU's limit; a request of any size counts as one operation.

    The largest burst is one second's worth: requests that a delayed guest could not make, it may make afterwards. With
    QEMU's default, a tenth of that, a busy host would reduce the rate.
    """
    limit = disk.iops_limit
    return f"throttling.iops-total={limit},throttling.iops-total-max={limit}," if limit else ""


def escaped(path: str) -> str:
    """A path for use in an option: QEMU splits options at commas, and a doubled comma stands for a single one."""
    return path.replace(",", ",,")
