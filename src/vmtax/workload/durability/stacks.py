"""Assemble and disassemble the layers between a host's disks and a guest's: partition, volume, pool, file system,
image.

A state of a host's disks is read as the host would read it after a power cut: LVM's volume is activated, ZFS's pool is
imported, which replays its intent log, the file system is mounted, which replays its journal, and a qcow2 image is
checked. Nothing here uses udev, because the checking guest has none.

This file is part of the text that runs in the guest (source.py), so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Without the last one, `zpool import` waits three seconds for udev to name devices, and nothing here uses these names.
TOOLS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "ZFS_VDEV_DEVID_OPT_OUT": "YES"}
# No list of devices, no udev, no backup of metadata: each state is a different one.
LVM = (
    "--config",
    'devices { use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none" hints="none" } '
    "activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 } "
    'global { thin_check_executable="" }',
)
ZVOL_NAME = 0x8100127D  # BLKZNAME of ZFS: _IOR(0x12, 125, char[256])
ZVOL_BYTES = 256
APPEARS_SECONDS = 30.0  # for the kernel to make a zvol's device
APART_SECONDS = 20.0  # to wait for a device that is still in use
PAUSE_SECONDS = 0.1
LEAKED = 3  # exit code of qemu-img check: unused clusters, which waste space and lose no data
CHECKS = {"ext4": ("e2fsck", "-f", "-n"), "xfs": ("xfs_repair", "-n")}  # commands that change nothing
CONVERTED = "/tmp/converted.raw"
NO_FILE_SYSTEM = "none"  # the guest's disk is the volume itself


class Stack(NamedTuple):
    """How a guest's disk is laid out on its host's disks."""

    volume: str  # "partition", "lvm", "zvol" or "dataset"
    place: str  # the number of a partition, GROUP/NAME of LVM, POOL/NAME of ZFS
    filesystem: str  # around the image: "ext4", "xfs", "btrfs"; "zfs" for a dataset; NO_FILE_SYSTEM: none
    image: str = ""  # file of the guest's disk in the file system
    format: str = "raw"  # of that image
    repairs: bool = False  # whether QEMU repairs such an image when it opens it (lazy reference counts)

    @property
    def pool(self) -> str:
        """Name of the ZFS pool."""
        return self.place.partition("/")[0]

    @property
    def modules(self) -> list[str]:
        """Kernel modules to load, which would not be loaded automatically without udev."""
        of_volume = {"lvm": ["dm_mod", "dm_thin_pool"], "zvol": ["zfs"], "dataset": ["zfs"]}.get(self.volume, [])
        return of_volume + ([self.filesystem] if self.filesystem in ("xfs", "btrfs") else [])


class Assembled:
    """A guest's disk whose layers have been assembled."""

    def __init__(self, path: str, image: str = "") -> None:
        self.path = path  # a device or a raw file
        self.image = image  # qemu-img's complaint about the image; "" if there is none
        self.damage = ""  # result of a check of the host's file system, set after disassembly; "" if it is undamaged


class Broken(Exception):
    """The host would not find the guest's disk any more."""

    def __init__(self, words: str, *, is_image: bool = False) -> None:
        super().__init__(words)
        self.is_image = is_image  # the damage is in the image


def stack_of(text: str) -> Stack:
    """Parse a stack from JSON."""
    return Stack(**json.loads(text))


@contextlib.contextmanager
def assembled(stack: Stack, devices: Sequence[str], mountpoint: str) -> Iterator[Assembled]:
    """The guest's disk, until it is disassembled at exit.

    devices: the host's disks, more than one only for a pool; mountpoint: for the host's file system
    Raises Broken if it cannot be assembled, and RuntimeError if it cannot be disassembled.
    """
    with contextlib.ExitStack() as below:
        volume = _volume(stack, devices, below)
        if stack.filesystem == NO_FILE_SYSTEM:
            yield Assembled(volume)
            return
        with contextlib.ExitStack() as above:
            _mount(stack, volume, mountpoint, above)
            path = os.path.join(mountpoint, stack.image)
            if not os.path.isfile(path):
                raise Broken(f"the host's file system: {stack.image} is not there")
            if stack.format == "raw":
                found = Assembled(path)
            else:
                above.callback(_remove, CONVERTED)
                found = Assembled(CONVERTED, _converted(stack, path))
            yield found
        found.damage = _damage(stack, volume)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _damage(stack: Stack, volume: str) -> str:
    """The problem that a check of the host's file system finds without changing anything; "" if there is none."""
    check = CHECKS.get(stack.filesystem)
    if check is None:
        return ""
    done = _done(*check, volume)
    if not done.returncode:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    words = " ".join(lines[-1].split()) if lines else ""
    return f"the host's file system: {check[0]} ended with {done.returncode}: {words}"


def partitions_of(device: str) -> list[str]:
    """The partitions of the device."""
    return sorted(glob.glob(f"{device}[0-9]*"))


def _volume(stack: Stack, devices: Sequence[str], ends: contextlib.ExitStack) -> str:
    """The block device, or the dataset, that holds the guest's disk; `ends` gets its deactivation."""
    if stack.volume == "partition":
        return f"{devices[0]}{stack.place}"
    if stack.volume == "lvm":
        try:
            _need("LVM", "lvchange", *LVM, "-ay", stack.place)
        except Broken:
            _done("lvchange", *LVM, "-an", stack.place)  # whatever was activated of it
            raise
        ends.callback(_apart, "lvchange", *LVM, "-an", stack.place)
        return f"/dev/{stack.place}"
    where = [word for device in devices for part in partitions_of(device) for word in ("-d", part)]
    # Do not mount it, nor add it to a list of pools. Forced, because another machine used it last.
    _need("ZFS", "zpool", "import", "-N", "-f", "-o", "cachefile=none", *where, stack.pool)
    ends.callback(_apart, "zpool", "export", stack.pool)
    return stack.place if stack.volume == "dataset" else _zvol(stack.place)


def _zvol(name: str) -> str:
    """The device of a zvol; its intent log has been replayed by the time the kernel has made the device."""
    end = time.monotonic() + APPEARS_SECONDS
    while time.monotonic() < end:
        for device in glob.glob("/dev/zd*"):
            with contextlib.suppress(OSError):
                file = os.open(device, os.O_RDONLY)
                try:
                    answer = fcntl.ioctl(file, ZVOL_NAME, bytes(ZVOL_BYTES))
                finally:
                    os.close(file)
                if answer.rstrip(b"\0").decode() == name:
                    return device
        time.sleep(PAUSE_SECONDS)
    raise Broken(f"ZFS: {name} is not in the pool")


def _mount(stack: Stack, volume: str, mountpoint: str, ends: contextlib.ExitStack) -> None:
    os.makedirs(mountpoint, exist_ok=True)
    options = ("-o", "zfsutil") if stack.volume == "dataset" else ()
    _need("the host's file system", "mount", "-t", stack.filesystem, *options, volume, mountpoint)
    ends.callback(_apart, "umount", mountpoint)


def _converted(stack: Stack, path: str) -> str:
    """Convert the image to CONVERTED; returns qemu-img's complaint."""
    check = ("qemu-img", "check", "-q", "-f", stack.format)
    if stack.repairs and '"dirty-flag": true' in _done("qemu-img", "info", "--output=json", path).stdout:
        _done(*check, "-r", "all", path)
    checked = _done(*check, path)
    converted = _done("qemu-img", "convert", "-f", stack.format, "-O", "raw", path, CONVERTED)
    if converted.returncode and os.strerror(errno.ENOSPC) in converted.stdout:
        raise RuntimeError(f"no room to convert {os.path.basename(path)} in the guest that checks")
    if converted.returncode:
        raise Broken(_said(converted), is_image=True)
    return "" if checked.returncode in (0, LEAKED) else _said(checked)


def _done(*argv: str) -> subprocess.CompletedProcess[str]:
    """Raises RuntimeError if there is no such program, which is no fault of the disk."""
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=TOOLS, text=True
        )
    except OSError as error:
        raise RuntimeError(f"{argv[0]}: {os.strerror(error.errno or errno.EIO)}") from None


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """The first line of its output."""
    lines = (" ".join(line.split()) for line in done.stdout.splitlines())
    return next((line for line in lines if line), f"exit code {done.returncode}")


def _need(what: str, *argv: str) -> None:
    done = _done(*argv)
    if done.returncode:
        raise Broken(f"{what}: {_said(done)}")


def _apart(*argv: str) -> None:
    """Retried for some seconds, because a device that was just closed may be busy for a moment."""
    end = time.monotonic() + APART_SECONDS
    while (done := _done(*argv)).returncode:
        if time.monotonic() > end:
            raise RuntimeError(f"the host's disk does not come apart: {_said(done)}")
        time.sleep(PAUSE_SECONDS)
