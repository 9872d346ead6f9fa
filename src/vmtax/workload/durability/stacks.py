"""What lies between a host's disks and a guest's: partition, volume, pool, file system, image. Put together, apart.

A state of a host's disks is read as the host would read it once its power is back: LVM's volume is activated, ZFS's
pool imported, which replays its intent log, the file system mounted, which replays its journal, and a qcow2 image
checked. Nothing here uses udev, which the guest that checks has not.

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

TOOLS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
# No list of devices, no udev, no backup of what is read: each state is another one.
LVM = (
    "--config",
    'devices { use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none" hints="none" } '
    "activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 } "
    'global { thin_check_executable="" }',
)
ZVOL_NAME = 0x8100127D  # BLKZNAME of ZFS: _IOR(0x12, 125, char[256])
ZVOL_BYTES = 256
APPEARS_SECONDS = 30.0  # until the kernel has made a zvol's device
APART_SECONDS = 20.0  # for what is still in use
PAUSE_SECONDS = 0.1
LEAKED = 3  # exit code of qemu-img check: clusters that nobody uses, which loses room and no data
CHECKS = {"ext4": ("e2fsck", "-f", "-n"), "xfs": ("xfs_repair", "-n")}  # that change nothing
CONVERTED = "/tmp/converted.raw"
NO_FILE_SYSTEM = "none"  # the guest's disk is the volume itself


class Stack(NamedTuple):
    """Where a guest's disk is on those of its host."""

    volume: str  # "partition", "lvm", "zvol" or "dataset"
    place: str  # the number of a partition, GROUP/NAME of LVM, POOL/NAME of ZFS
    filesystem: str  # around the image: "ext4", "xfs", "btrfs", of a dataset "zfs"; NO_FILE_SYSTEM: none
    image: str = ""  # the guest's disk in the file system
    format: str = "raw"  # of that image
    repairs: bool = False  # QEMU repairs such an image when it opens it (lazy reference counts)

    @property
    def pool(self) -> str:
        """Of ZFS."""
        return self.place.partition("/")[0]

    @property
    def modules(self) -> list[str]:
        """Of the kernel, which it would not load by itself without udev."""
        of_volume = {"lvm": ["dm_mod", "dm_thin_pool"], "zvol": ["zfs"], "dataset": ["zfs"]}.get(self.volume, [])
        return of_volume + ([self.filesystem] if self.filesystem in ("xfs", "btrfs") else [])


class Assembled:
    """A guest's disk that was put together."""

    def __init__(self, path: str, image: str = "") -> None:
        self.path = path  # a device or a raw file
        self.image = image  # what qemu-img finds wrong with the image; "" if that is nothing
        self.damage = ""  # and a check of the host's file system, known once it is apart again


class Broken(Exception):
    """The host would not find the guest's disk again."""

    def __init__(self, words: str, *, is_image: bool = False) -> None:
        super().__init__(words)
        self.is_image = is_image  # the image is what is damaged


def stack_of(text: str) -> Stack:
    """Of its JSON."""
    return Stack(**json.loads(text))


@contextlib.contextmanager
def assembled(stack: Stack, devices: Sequence[str], mountpoint: str) -> Iterator[Assembled]:
    """The guest's disk, until it is taken apart again.

    devices: the host's disks, several of a pool alone; mountpoint: for the file system of the host
    Raises Broken if it cannot be put together, and RuntimeError if it does not come apart.
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
    """What a check of the host's file system finds, which changes nothing; "" if that is nothing."""
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
    """The block device, or the dataset, in which the guest's disk is; `ends` gets its end."""
    if stack.volume == "partition":
        return f"{devices[0]}{stack.place}"
    if stack.volume == "lvm":
        try:
            _need("LVM", "lvchange", *LVM, "-ay", stack.place)
        except Broken:
            _done("lvchange", *LVM, "-an", stack.place)  # what came up of it
            raise
        ends.callback(_apart, "lvchange", *LVM, "-an", stack.place)
        return f"/dev/{stack.place}"
    where = [word for device in devices for part in partitions_of(device) for word in ("-d", part)]
    # Not mounted by itself, nor kept in a list of pools: it was another machine's, hence the force.
    _need("ZFS", "zpool", "import", "-N", "-f", "-o", "cachefile=none", *where, stack.pool)
    ends.callback(_apart, "zpool", "export", stack.pool)
    return stack.place if stack.volume == "dataset" else _zvol(stack.place)


def _zvol(name: str) -> str:
    """The device of a zvol, whose intent log has been replayed when the kernel has made it."""
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
    """Have CONVERTED be what the image is for its guest; what qemu-img finds wrong with it."""
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
    """Raises RuntimeError if there is no such program: that says nothing about the disk."""
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=TOOLS, text=True
        )
    except OSError as error:
        raise RuntimeError(f"{argv[0]}: {os.strerror(error.errno or errno.EIO)}") from None


def _said(done: subprocess.CompletedProcess[str]) -> str:
    """Its first line."""
    lines = (" ".join(line.split()) for line in done.stdout.splitlines())
    return next((line for line in lines if line), f"exit code {done.returncode}")


def _need(what: str, *argv: str) -> None:
    done = _done(*argv)
    if done.returncode:
        raise Broken(f"{what}: {_said(done)}")


def _apart(*argv: str) -> None:
    """Tried for some seconds, for what was closed is busy for a moment."""
    end = time.monotonic() + APART_SECONDS
    while (done := _done(*argv)).returncode:
        if time.monotonic() > end:
            raise RuntimeError(f"the host's disk does not come apart: {_said(done)}")
        time.sleep(PAUSE_SECONDS)
