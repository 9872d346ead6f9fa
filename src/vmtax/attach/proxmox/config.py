"""What a VM's configuration says of its disks, as `qm config` prints it. Pure; source: man 5 qm.conf."""

from __future__ import annotations

import re
from collections.abc import Mapping

DRIVE = re.compile(r"(scsi|virtio|ide|sata)\d+$")
LINE = re.compile(r"^([a-z][a-z0-9_.-]*):\s?(.*)$")
SINGLE = "virtio-scsi-single"  # the controller that gives each disk one of its own, and so can give it an iothread
LIMITS = re.compile(r"(mbps|iops|bps)(_|$)")  # settings that limit I/O
AIO = re.compile(r"aio[\"']?[=:][\"']?(native|threads|io_uring)")


def config_lines(text: str) -> dict[str, str]:
    """Key -> value of `qm config`."""
    matches = filter(None, map(LINE.match, text.splitlines()))
    return {match[1]: match[2].strip() for match in matches}


def has_windows(lines: Mapping[str, str]) -> bool:
    """Whether its type says so: "win11", "w2k8"."""
    return lines.get("ostype", "").startswith("w")


def drive_settings(value: str, first: str) -> dict[str, str]:
    """The settings of a line: "local-lvm:vm-100-disk-0,cache=none" has `first` and cache."""
    found: dict[str, str] = {}
    for part in value.split(","):
        name, is_named, setting = part.partition("=")
        if is_named:
            found[name.strip()] = setting.strip()
        elif part.strip():
            found.setdefault(first, part.strip())
    return found


def boot_order(lines: Mapping[str, str]) -> list[str]:
    """Names of the devices that it boots from, in that order."""
    settings = drive_settings(lines.get("boot", ""), "legacy")
    order = [name.strip() for name in settings.get("order", "").split(";") if name.strip()]
    return order or ([lines["bootdisk"]] if "bootdisk" in lines else [])


def is_cd(line: str) -> bool:
    """Whether a drive's line is one for media."""
    settings = drive_settings(line, "file")
    return settings.get("media") == "cdrom" or settings.get("file") in ("none", "cdrom")


def first_disk(lines: Mapping[str, str]) -> str:
    """Name of the disk that it boots from, or of its first one; "" if it has none."""
    disks = [name for name, line in lines.items() if DRIVE.match(name) and not is_cd(line)]
    return next((name for name in boot_order(lines) if name in disks), disks[0] if disks else "")


def has_iothread(lines: Mapping[str, str], disk: str) -> bool:
    """Whether that disk is served by an iothread of its own."""
    if drive_settings(lines.get(disk, ""), "file").get("iothread") != "1":
        return False
    return disk.startswith("virtio") or (disk.startswith("scsi") and lines.get("scsihw") == SINGLE)


def bus_of(lines: Mapping[str, str], disk: str) -> str:
    """The bus of a disk; "lsi" and the like for one of the old SCSI controllers."""
    bus = disk.rstrip("0123456789")
    controller = lines.get("scsihw", "lsi")
    return controller if bus == "scsi" and not controller.startswith("virtio-scsi") else bus


def disk_settings(lines: Mapping[str, str], disk: str, running: str) -> dict[str, str]:
    """Settings of a disk, as libvirt names them, with Proxmox's defaults.

    running: the command line of its QEMU, which has the aio that Proxmox chose for the disk's storage
    """
    line = drive_settings(lines.get(disk, ""), "file")
    unmaps = line.get("discard") == "on"
    own = next((word for word in running.split("\0") if f"drive-{disk}" in word and "aio" in word), "")
    aio = AIO.search(own)
    return {
        "cache": line.get("cache", "none"),
        "io": line.get("aio") or (aio[1] if aio else "io_uring"),
        "discard": "unmap" if unmaps else "ignore",
        "detect_zeroes": "off" if line.get("detect_zeroes") == "0" else "unmap" if unmaps else "on",
    }


def unlike(lines: Mapping[str, str], disk: str) -> list[str]:
    """What that disk has and a plugged one has not, in words."""
    line = drive_settings(lines.get(disk, ""), "file")
    volume, form = line.get("file", line.get("volume", "")), line.get("format", "")
    found = ["the format qcow2"] if "qcow2" in (form, volume.rpartition(".")[2]) else []
    if any(LIMITS.match(name) for name in line):
        found.append("limits of I/O")
    return found
