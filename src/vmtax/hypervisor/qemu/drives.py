"""QEMU's options for a guest's disks, on the command line and over QMP. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from vmtax.design.disk import THREADED
from vmtax.hypervisor.spec import DATA_ID, Drive

THREAD_ID = "thread"
CONTROLLER_ID = "scsi"
MAPPING = "iothread-vq-mapping"  # option of a device: its iothreads, to which its queues are dealt out in turn
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


# The device that has a disk's queues, and its iothreads.
THREADED_DEVICES = {"virtio": DRIVERS["virtio"], "virtio-scsi": "virtio-scsi-pci"}


def machine_type(disks: Sequence[Drive]) -> str:
    """Only the older PC has an IDE controller; q35 has AHCI instead."""
    return "pc" if any(disk.settings.bus == "ide" for disk in disks) else "q35"


def disk_arguments(disks: Sequence[Drive]) -> tuple[str, ...]:
    """Arguments for the disks only, with their iothreads and SCSI controllers."""
    words: list[str] = []
    most = max((disk.settings.iothread for disk in disks if disk.settings.bus in THREADED), default=0)
    for name in thread_ids(most):
        words += ["-object", f"iothread,id={name}"]
    seen: list[str] = []  # buses of the disks so far
    for disk in disks:
        words += ["-drive", _drive(disk)]
        if disk.spare:
            words += ["-blockdev", json.dumps(spare_node(disk), separators=(",", ":"))]
        if disk.settings.bus == "virtio-scsi" and disk.settings.bus not in seen:
            options = {"id": CONTROLLER_ID, **_threads_and_queues(disk, "num_queues")}
            words += ["-device", _written(THREADED_DEVICES["virtio-scsi"], options)]
        words += ["-device", _device(disk, seen.count(disk.settings.bus))]
        seen.append(disk.settings.bus)
    return tuple(words)


def block_node(disk: Drive) -> dict[str, Any]:
    """The arguments of QMP's blockdev-add that open `disk` as the command line does."""
    options = {name: value for name, value in disk.settings.options("drive") if name not in ("cache", "aio")}
    # The options of the format and of the file below it are the same, except for those about submitting I/O.
    node = {**options, "cache": caching(disk)}
    file = {"driver": _driver(disk), "filename": disk.path, "aio": disk.settings.aio, **node}
    if disk.log:
        log = {**file, "driver": "file", "filename": disk.log, "aio": LOG_AIO, "cache": LOG_CACHE}
        file = {"driver": LOGGED, "file": file, "log": log, **node}
    return {"node-name": DATA_ID, "driver": disk.settings.format, **node, "file": file}


def caching(disk: Drive) -> dict[str, bool]:
    """The cache options of the disk's mode for the nodes around it."""
    mode = disk.settings.cache
    return {"direct": mode.is_direct, "no-flush": mode.ignores_flushes}


def reached(disk: Drive) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(files and directories, devices) of the parent that QEMU must reach to open it; of a server its socket alone."""
    if disk.served:
        return (str(PurePosixPath(disk.served).parent),), ()
    return ((), (disk.path,)) if disk.is_device else ((disk.path,), ())


def spare_node(disk: Drive) -> dict[str, Any]:
    """The node of its spare file, as `-blockdev` and blockdev-add take it."""
    how = {"aio": disk.settings.aio, "cache": caching(disk)}
    return {"driver": "file", "node-name": f"{disk.name}-spare", "filename": disk.spare, **how}


def image_argument(name: str, path: str) -> str:
    """A read-only image: the root, or a layer over it."""
    return f"if=none,id={name},format=raw,readonly=on,file={escaped(path)}"


def _drive(disk: Drive) -> str:
    # A server submits its own I/O, and gives out what its format contains.
    its_own = ("aio",) if disk.served else ()
    how = ",".join(f"{name}={value}" for name, value in disk.settings.options("drive") if name not in its_own)
    how += "" if disk.auto_read_only else ",auto-read-only=off"
    kind = "raw" if disk.served else disk.settings.format
    return f"if=none,id={disk.name},format={kind},{how},{_throttling(disk)}{_file(disk)}"


def _file(disk: Drive) -> str:
    """The disk's cache mode and similar options apply to its parts, too, except to the log."""
    if disk.served:
        return f"file.driver=nbd,file.server.type=unix,file.server.path={escaped(disk.served)}"
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
    options: dict[str, Any] = {"drive": disk.name, "serial": disk.serial or disk.name}
    if disk.settings.bus == "virtio-scsi":
        options["bus"] = f"{CONTROLLER_ID}.0"
    if disk.settings.bus in MOST_DISKS and number:
        options["bus"] = f"ide.{number}"  # a channel or port of its own
    if disk.settings.bus == "virtio":
        options |= _threads_and_queues(disk, "num-queues")
    # QEMU makes the devices that are written as JSON last, so what hangs on one must be among them.
    on_json = disk.settings.bus == "virtio-scsi" and disk.settings.iothread > 1
    return _written(DRIVERS[disk.settings.bus], options, as_json=on_json)


def thread_ids(count: int) -> list[str]:
    """The names of that many iothreads."""
    return [THREAD_ID, *(f"{THREAD_ID}{number}" for number in range(1, count))][:count]


def _threads_and_queues(disk: Drive, queues: str) -> dict[str, Any]:
    """Options of the device that has the queues; `queues`: its option for their number."""
    names = thread_ids(disk.settings.iothread)
    threads: dict[str, Any] = {"iothread": names[0]} if len(names) == 1 else {}
    if len(names) > 1:
        threads = {MAPPING: [{"iothread": name} for name in names]}
    return threads | ({queues: disk.settings.queues} if disk.settings.queues else {})


def _written(driver: str, options: dict[str, Any], *, as_json: bool = False) -> str:
    """A device for -device; as JSON if an option is a list, which the older form cannot write."""
    if as_json or any(isinstance(value, list) for value in options.values()):
        return json.dumps({"driver": driver, **options}, separators=(",", ":"))
    return ",".join([driver, *(f"{name}={value}" for name, value in options.items())])


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
