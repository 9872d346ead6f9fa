"""The disks of a command line of QEMU: -drive, -blockdev, and the devices that show them to the guest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vmtax.existing.guest import ExistingDisk, Remarks, volume_levels
from vmtax.existing.qemu_words import QemuOptions, settings_of

DRIVE_KEYS = frozenset(
    (
        *("file", "format", "if", "id", "cache", "aio", "discard", "detect-zeroes", "media", "index", "serial", "unit"),
        *("readonly", "read-only", "werror", "rerror", "bus", "node-name", "addr", "boot", "driver", "size"),
        *("cache.direct", "cache.no-flush"),
    )
)
NODE_KEYS = frozenset(
    (
        *("driver", "node-name", "read-only", "auto-read-only", "discard", "detect-zeroes", "aio", "file", "backing"),
        *("cache.direct", "cache.no-flush", "throttle-group"),
    )
)
# Where an image is; that it is no file is said by its driver.
PLACE = re.compile(
    r"(filename|server|export|pool|image|conf|host|port|path|portal|target|lun|url|user|volume|socket|transport"
    r"|initiator-name|key-secret|password-secret|tls-creds|auth-client-required|reconnect-delay|namespace)(\.|$)"
)
DISK_KEYS = frozenset(
    (
        *(
            "driver",
            "id",
            "drive",
            "bus",
            "addr",
            "unit",
            "bootindex",
            "iothread",
            "num-queues",
            "num_queues",
            "channel",
        ),
        *("scsi-id", "lun", "device_id", "write-cache", "serial", "werror", "rerror", "ver", "model", "wwn", "romfile"),
        *(
            "multifunction",
            "rotation_rate",
            "disable-modern",
            "disable-legacy",
            "chardev",
            "vendor",
            "product",
            "port_wwn",
            "port",
            "removable",
        ),
    )
)
BLOCK_DEVICES = {
    "virtio-blk": "virtio",
    "scsi-hd": "virtio-scsi",
    "scsi-disk": "virtio-scsi",
    "scsi-block": "virtio-scsi",
    "scsi-generic": "virtio-scsi",
    "ide-hd": "sata",
    "ide-drive": "sata",
    "nvme": "nvme",
    "usb-storage": "sata",
}
INTERFACES = {"virtio": "virtio", "scsi": "virtio-scsi", "ide": "ide", "sd": "sata", "none": "", "floppy": "cd"}
FORMATS = ("raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc", "qed", "luks", "qcow", "parallels", "cloop", "dmg", "bochs")
UNMAP = ("unmap", "on")
FILES = "is measured as a file in --disk-dir"
_SHORT: Mapping[str, dict[str, str]] = {
    **{name: {"if": "ide"} for name in ("hda", "hdb", "hdc", "hdd")},
    "cdrom": {"if": "ide", "media": "cdrom"},
    **{name: {"if": "floppy"} for name in ("fda", "fdb")},
}


@dataclass
class _Node:
    """A block device of the host's side: a format, or a file below one."""

    driver: str
    settings: dict[str, Any]


def device_of(value: str) -> dict[str, str]:
    return settings_of(value, "driver")


def bus_of(device: str) -> str:
    """The level of disk.bus for a device that is a disk; "" if it is none."""
    for name, bus in BLOCK_DEVICES.items():
        if device == name or device.startswith(f"{name}-"):
            return bus
    return ""


def list_unknown(where: str, settings: Mapping[str, str], known: Collection[str], remarks: Remarks) -> None:
    """A remark for each setting that is none of the known ones."""
    for key, value in settings.items():
        if key not in known:
            remarks.add(f"{where} {key}", value, "is not translated")


def disks(line: QemuOptions, remarks: Remarks) -> Iterator[ExistingDisk]:
    """Every disk once, also drives for CDs: by its device if it has one."""
    nodes = {
        settings.get("node-name", ""): _Node(settings.get("driver", ""), dict(settings))
        for value in line.all("blockdev")
        for settings in [settings_of(value, "driver")]
    }
    devices = [device_of(value) for value in line.all("device")]
    named = {device.get("drive", "") for device in devices}
    drives: dict[str, dict[str, str]] = {}
    for number, (option, value) in enumerate(each for each in line.options if each[0] in ("drive", *_SHORT)):
        settings = settings_of(value, "file") if option == "drive" else {**settings_of(value, "file"), **_SHORT[option]}
        name = settings.get("id") or f"-{option} {number + 1}"
        if settings.get("if") in ("pflash", "mtd"):
            continue
        drives[name] = settings
        if name in named:
            continue
        bus = INTERFACES.get(settings.get("if", "ide"), "ide")
        if settings.get("media") == "cdrom" or bus == "cd":
            yield ExistingDisk(name, {}, settings.get("file", ""), is_cd=True)
        elif bus:
            bus = "sata" if bus == "ide" and _has_ahci(line) else bus
            yield ExistingDisk(name, dict(_drive_levels(name, settings, bus, {}, remarks)), settings.get("file", ""))
        else:
            remarks.add(f"-drive {name}", value, "no -device has it, so the guest does not see it")
    orders = [_order(each) for each in devices if bus_of(each.get("driver", ""))]
    first = min((each for each in orders if each is not None), default=None)
    for device in devices:
        kind, drive = device.get("driver", ""), device.get("drive", "")
        bus = bus_of(kind)
        if kind.startswith("vhost-user-blk"):
            remarks.add(f"-device {kind}", device.get("id", ""), "is measured as virtio")
            bus = "virtio"
        name = device.get("id") or drive or kind
        if kind in ("ide-cd", "scsi-cd") or (bus and drives.get(drive, {}).get("media") == "cdrom"):
            yield ExistingDisk(name, {}, drives.get(drive, {}).get("file", ""), is_cd=True)
        elif bus:
            if bus == "sata" and device.get("bus", "").startswith("ide.") and not _has_ahci(line):
                bus = "ide"
            if kind == "usb-storage":
                remarks.add(f"{name} {kind}", "", "is measured as sata")
            if kind in ("scsi-block", "scsi-generic"):
                remarks.add(f"{name} {kind}", "", "the guest's commands go to the device: measured as a disk of QEMU's")
            yield _of_device(name, bus, device, drives, nodes, first, _controller(device, devices), remarks)


def _order(device: Mapping[str, str]) -> int | None:
    index = device.get("bootindex", "")
    return int(index) if index.isascii() and index.isdigit() and len(index) < 10 else None


def _of_device(
    name: str,
    bus: str,
    device: Mapping[str, str],
    drives: Mapping[str, Mapping[str, str]],
    nodes: Mapping[str, _Node],
    first: int | None,
    controller: Mapping[str, str],
    remarks: Remarks,
) -> ExistingDisk:
    """The disk that a device is. `first`: the least number in the boot order."""
    drive = device.get("drive", "")
    is_boot = first is not None and _order(device) == first
    if controller.get("iothread"):
        device = {**device, "iothread": controller["iothread"]}
    if drive in drives:
        levels, source = dict(_drive_levels(name, drives[drive], bus, device, remarks)), drives[drive].get("file", "")
    elif drive in nodes:
        levels, source = _node_levels(name, nodes, drive, bus, device, remarks)
    else:
        if drive:
            why = "no -drive or -blockdev has that name: its defaults are measured"
            remarks.add(f"-device {device.get('driver', '')}", f"drive={drive}", why)
        levels, source = dict(_device_levels(name, bus, device, remarks)), ""
    return ExistingDisk(name, levels, source, is_boot=is_boot)


def _controller(disk: Mapping[str, str], devices: Collection[Mapping[str, str]]) -> Mapping[str, str]:
    """The SCSI controller that a disk is on: the one of its bus, or else the only kind of them."""
    controllers = [each for each in devices if each.get("driver", "").startswith("virtio-scsi")]
    if not disk.get("driver", "").startswith("scsi-") or not controllers:
        return {}
    wanted = disk.get("bus", "").rpartition(".")[0]
    return next((each for each in controllers if each.get("id") == wanted), controllers[0] if not wanted else {})


def _has_ahci(line: QemuOptions) -> bool:
    machine = settings_of(line.last("machine", "M") or "", "type").get("type", "")
    return "q35" in machine or any(device_of(value).get("driver", "").endswith("ahci") for value in line.all("device"))


def _device_levels(name: str, bus: str, device: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[str, str]]:
    yield "disk.bus", bus
    if device.get("iothread"):
        yield "disk.iothread", "on"
    queues = device.get("num-queues") or device.get("num_queues")
    if queues and bus == "virtio":
        yield "disk.queues", queues
    others = {key: value for key, value in device.items() if (key, value) != ("scsi", "off")}
    list_unknown(name, others, DISK_KEYS, remarks)


def _drive_levels(
    name: str, drive: Mapping[str, str], bus: str, device: Mapping[str, str], remarks: Remarks
) -> Iterator[tuple[str, str]]:
    yield from _device_levels(name, bus, device, remarks)
    file = drive.get("file", "")
    if file.startswith("/dev/"):
        yield from volume_levels(file).items()
    elif drive.get("format") in ("raw", "qcow2"):
        yield "disk.format", drive["format"]
    elif drive.get("format"):
        remarks.add(f"{name} format", drive["format"], "is measured as raw")
    elif file.endswith(".qcow2"):
        yield "disk.format", "qcow2"
    if re.match(r"[a-z][a-z0-9+.-]+:(?!$)", file) and not file.startswith("json:"):
        remarks.add(f"{name} file", file, FILES)
    cache = drive.get("cache")
    if cache:
        yield "disk.cache", "none" if cache == "off" else cache
    else:
        yield "disk.cache", _cache(drive, device)
    yield "disk.aio", drive.get("aio", "threads")
    if drive.get("discard") in UNMAP:
        yield "disk.discard", "unmap"
    zeroes = drive.get("detect-zeroes", "off")
    if zeroes != "off":
        yield "disk.detect_zeroes", zeroes
    list_unknown(name, drive, DRIVE_KEYS, remarks)


def _node_levels(
    name: str, nodes: Mapping[str, _Node], drive: str, bus: str, device: Mapping[str, str], remarks: Remarks
) -> tuple[dict[str, str], str]:
    levels = dict(_device_levels(name, bus, device, remarks))
    chain: list[_Node] = []
    while drive in nodes and nodes[drive] not in chain:
        chain.append(nodes[drive])
        drive = chain[-1].settings.get("file", "")
    # A node may hold the one below it: "file.file.aio".
    said = {re.sub(r"^(file\.)+", "", key): value for node in reversed(chain) for key, value in node.settings.items()}
    drivers = [value for node in chain for key, value in node.settings.items() if re.fullmatch(r"(file\.)*driver", key)]
    form = next((driver for driver in drivers if driver in FORMATS), "raw")
    storage = next((driver for driver in reversed(drivers) if driver not in FORMATS), "file")
    source = said.get("filename", "")
    if source.startswith("/dev/") or storage == "host_device":
        levels.update(volume_levels(source))
    elif form in ("raw", "qcow2"):
        levels["disk.format"] = form
    else:
        remarks.add(f"{name} format", form, "is measured as raw")
    if storage not in ("file", "host_device", "throttle"):
        remarks.add(f"{name} driver", storage, FILES)
    if "throttle" in drivers:
        remarks.add(f"{name} driver", "throttle", "is measured without a limit")
    for driver in drivers:  # filters between the format and the file
        if driver not in (*FORMATS, storage, "host_device", "throttle"):
            remarks.add(f"{name} driver", driver, "is not translated")
    levels["disk.cache"] = _cache(said, device)
    levels["disk.aio"] = said.get("aio", "threads")
    # What the guest discards goes through the uppermost node; libvirt lets every file below it discard.
    if chain[0].settings.get("discard") in UNMAP:
        levels["disk.discard"] = "unmap"
    if said.get("detect-zeroes", "off") != "off":
        levels["disk.detect_zeroes"] = said["detect-zeroes"]
    if "backing" in said or any(node.settings.get("backing") for node in chain):
        remarks.add(f"{name} backing", "a chain of files", "is measured as a single file")
    others = {key: value for key, value in said.items() if not (PLACE.match(key) or key.startswith("backing."))}
    list_unknown(name, others, NODE_KEYS, remarks)
    return levels, source


def _cache(said: Mapping[str, str], device: Mapping[str, str]) -> str:
    """The level of disk.cache for flags of a node and of its device."""
    is_through = device.get("write-cache") == "off"
    if said.get("cache.no-flush") == "on":
        return "unsafe"
    if said.get("cache.direct") == "on":
        return "directsync" if is_through else "none"
    return "writethrough" if is_through else "writeback"
