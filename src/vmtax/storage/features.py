"""Find out what a disk can do besides being fast: each answer comes from a check on this host.

Only the statement on durability comes from documentation, see `design/features.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line, last_words
from vmtax.design.disk import CacheMode, Volume
from vmtax.design.features import DOCUMENTED, FEATURES, Feature, documented_durability
from vmtax.hypervisor import DATA_ID, Drive, Qemu
from vmtax.hypervisor.confine import Reach
from vmtax.hypervisor.qemu.drives import disk_arguments, machine_type
from vmtax.hypervisor.qemu.img import create_image
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.machine import CommandFailed, Machine, MachineError
from vmtax.meter.mounts import mount_of
from vmtax.storage.backing import Backing
from vmtax.storage.file import block_bytes
from vmtax.storage.undo import ANY_DEVICE

SCRATCH_BYTES = 64 * 2**20  # more than qcow2 needs for its metadata with its largest clusters
THIN = 0.5  # a fresh image that takes at most this share of its size is thin
OVERWRITING = ("ext4", "xfs")  # file systems that overwrite an allocated block in place
ZVOLS = "/dev/zvol/"
QEMU_SECONDS = 30.0
# Flushed first, because some file systems allocate blocks late. One command: each costs 0.3 s on an emulated host.
BLOCKS = ("sh", "-c", 'sync "$1" && exec stat -c "%b %B" "$1"', "sh")
SNAPSHOT = "vmtax"
_numbers = itertools.count(1)


def features(
    machine: Machine,
    qemu: Qemu,
    backing: Backing,
    attachment: Drive,
    scratch: PurePosixPath,
    *,
    qemu_img: Sequence[str] = ("qemu-img",),
    when_full: Callable[[], Feature] | None = None,
) -> tuple[Feature, ...]:
    """All of FEATURES, in their order.

    The disk itself is only read: tests use a fresh image made the same way, beside the disk if it is a file, otherwise
    in `scratch`. `when_full` returns the result of `stops_when_full` for this bus and format, on ext4; it is called
    only if its answer is used. A check that cannot be made is "not tried", with the reason; only MachineLost is raised.
    """
    kind = machine.try_run("stat", "-L", "-c", "%F", str(backing.path)).stdout.strip()
    is_file = kind.startswith("regular")
    below = _below(machine, backing, is_file=is_file)
    features = {"durable": durable(machine, backing, attachment.settings.cache, below), "file": _file(kind)}
    directory = backing.path.parent if is_file else scratch
    try:
        with _scratch_image(machine, backing, directory, qemu_img) as image:
            features["thin"] = _thin(machine, backing, image, is_file=is_file)
            features |= {feature.name: feature for feature in _asked(machine, qemu, attachment, image)}
    except (CannotDo, MachineError) as error:
        words = _one_line(str(error))
        for name in ("savevm", "snapshots", "migration", "thin"):
            features.setdefault(name, Feature(name, "not tried", "a scratch image and a paused QEMU", words))
    system = (below.system or "an unknown file system") if is_file else ""
    features["pause-on-full"] = _when_full(when_full, backing, attachment, system, features["thin"])
    return tuple(features[name] for name in FEATURES)


@dataclass(frozen=True, slots=True)
class _Below:
    """What is below a disk on this machine."""

    system: str  # file system that holds the file; "zfs" for a zvol, "" for another device
    options: str  # mount options
    source: str  # the device or dataset
    how: str  # the command or check that showed this


def _below(machine: Machine, backing: Backing, *, is_file: bool) -> _Below:
    path = str(backing.path)
    if not is_file:
        zvol = path.startswith(ZVOLS)
        return _Below("zfs" if zvol else "", "", path.removeprefix(ZVOLS), "zfs get" if zvol else "")
    mount = mount_of(machine, path)
    if mount is None:
        return _Below("", "", "", "mountinfo")
    how = "mountinfo, zfs get" if mount.system == "zfs" else "mountinfo"
    return _Below(mount.system, mount.options, mount.source, how)


def durable(machine: Machine, backing: Backing, cache: CacheMode, below: _Below) -> Feature:
    """What documentation says about these settings, corrected by what is below the disk on this machine."""
    claimed = documented_durability(replace(backing.settings, cache=cache))
    if claimed.state == "no":
        return claimed
    how = "; ".join(filter(None, (DOCUMENTED, below.how)))
    if below.system in ("tmpfs", "ramfs"):
        return Feature("durable", "no", how, f"{backing.path.parent} is a {below.system}, kept in memory")
    if {"nobarrier", "barrier=0"} & set(below.options.split(",")):
        return Feature("durable", "no", how, f"{below.source} is mounted without write barriers")
    if below.system == "zfs":
        sync = machine.try_run("zfs", "get", "-H", "-o", "value", "sync", below.source).stdout.strip()
        if sync == "disabled":
            return Feature("durable", "no", how, f"{below.source} has sync=disabled")
    return claimed


def _file(kind: str) -> Feature:
    if not kind:
        return Feature("file", "not tried", "stat", "the disk is not there")
    return Feature("file", "yes" if kind.startswith("regular") else "no", "stat", f"a {kind}")


@contextlib.contextmanager
def _scratch_image(
    machine: Machine, backing: Backing, directory: PurePosixPath, qemu_img: Sequence[str]
) -> Iterator[PurePosixPath]:
    """A fresh image made like the disk; removed at exit, or by the guard."""
    image = (
        directory
        / f"vmtax-feature-{machine.scratch.name.rpartition('-')[2]}-{next(_numbers)}.{backing.settings.format}"
    )
    entry = machine.remove_later(image)
    machine.run(*create_image(backing.settings, str(image), SCRATCH_BYTES, qemu_img))
    try:
        yield image
    finally:
        entry.undo()


def _thin(machine: Machine, backing: Backing, image: PurePosixPath, *, is_file: bool) -> Feature:
    try:
        return _thin_file(machine, image) if is_file else _thin_device(machine, backing)
    except CommandFailed as error:
        return Feature("thin", "not tried", "", _one_line(str(error)))


def _thin_file(machine: Machine, image: PurePosixPath) -> Feature:
    share = block_bytes(machine, f"blocks of {image}", machine.run(*BLOCKS, str(image))) / SCRATCH_BYTES
    words = f"a fresh image takes {share:.0%} of its size".replace("%", " %")
    return Feature("thin", "yes" if share < THIN else "no", "qemu-img create, sync, stat", words)


def _thin_device(machine: Machine, backing: Backing) -> Feature:
    path = str(backing.path)
    if path.startswith(ZVOLS):
        asked = ("zfs", "get", "-H", "-p", "-o", "value", "refreservation", path.removeprefix(ZVOLS))
        reserved = machine.run(*asked).strip()
        thin = reserved in ("none", "0")
        return Feature("thin", "yes" if thin else "no", "zfs get refreservation", f"refreservation={reserved}")
    if backing.settings.volume.is_lvm:
        pool = machine.run("lvs", *ANY_DEVICE, "--noheadings", "-o", "pool_lv", path).strip()
        words = f"from the thin pool {pool}" if pool else "a volume with all its blocks"
        return Feature("thin", "yes" if pool else "no", "lvs", words)
    return Feature("thin", "no", "stat", "a whole device")


def _when_full(
    trial: Callable[[], Feature] | None, backing: Backing, attachment: Drive, system: str, thin: Feature
) -> Feature:
    """What the test of a file on ext4 shows about this disk. `system`: the file system that holds it; "": a device"""
    name, volume = "pause-on-full", backing.settings.volume
    on_thin = volume is Volume.LVM_THIN
    # A file loses blocks if the disk passes the guest's discards on to it; a volume keeps its blocks.
    keeps = not system or (system in OVERWRITING and not on_thin and attachment.settings.discard != "unmap")
    if thin.state == "no" and backing.settings.format == "raw" and keeps:
        return Feature(name, "yes", thin.how, "all its blocks are its own: it cannot fill up")
    if system not in OVERWRITING or on_thin:
        where = volume if on_thin or not system else system
        return Feature(name, "not tried", "", f"it is tried with a file on ext4, not on {where}")
    return trial() if trial else Feature(name, "not tried", "", "needs root, and a guest of the image")


def _asked(machine: Machine, qemu: Qemu, attachment: Drive, image: PurePosixPath) -> tuple[Feature, ...]:
    """Answers of a paused QEMU with that image. Raises MachineError if QEMU does not start."""
    drive = replace(attachment, path=str(image), iops_limit=0)
    plain = ("-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-m", "64", "-S", "-qmp", "stdio")
    reach = Reach(write=(str(image.parent),))
    process = machine.start(
        *qemu.without_guest(reach), "-machine", machine_type([drive]), *plain, *disk_arguments([drive])
    )
    try:
        qmp = Qmp(process, QEMU_SECONDS)
        tried = (_snapshots(qmp), _savevm(qmp), _migration(qmp))
        with contextlib.suppress(QmpError, TimeoutError):
            qmp.execute("quit")
            process.wait(QEMU_SECONDS)
        return tried
    except QmpError as error:
        raise MachineError(last_words(process) or str(error)) from error
    finally:
        process.stop()


def _snapshots(qmp: Qmp) -> Feature:
    how = "blockdev-snapshot-internal-sync"
    try:
        qmp.execute(how, QEMU_SECONDS, device=DATA_ID, name=SNAPSHOT)
    except QmpError as error:
        return _refused("snapshots", how, error)
    return Feature("snapshots", "yes", how)


def _savevm(qmp: Qmp) -> Feature:
    # Through the human monitor: its output is the error; no output means that the state was saved.
    answer = qmp.execute("human-monitor-command", QEMU_SECONDS, command_line="savevm vmtax-state").strip()
    return Feature("savevm", "no" if answer else "yes", "savevm", _one_line(answer).removeprefix("Error: "))


def _migration(qmp: Qmp) -> Feature:
    """Migration to nowhere: whether it is possible depends on the states of the guest's devices, which QEMU knows."""
    how = "migrate to exec:cat"
    try:
        qmp.execute("migrate", QEMU_SECONDS, uri="exec:cat > /dev/null")
        deadline = time.monotonic() + QEMU_SECONDS
        while time.monotonic() < deadline:
            status = qmp.execute("query-migrate")
            if status.get("status") == "completed":
                words = "the guest's own state; a disk that only this host reaches is copied as well"
                return Feature("migration", "yes", how, words)
            if status.get("status") in ("failed", "cancelled"):
                return Feature("migration", "no", how, status.get("error-desc", "QEMU gives no reason"))
            time.sleep(0.05)
    except QmpError as error:
        return _refused("migration", how, error)
    return Feature("migration", "not tried", how, f"no end within {QEMU_SECONDS:.0f} s")


def _refused(name: str, how: str, error: QmpError) -> Feature:
    """A refusal in QEMU's own words; raises the error if QEMU is gone."""
    refusal, _, words = str(error).partition(": ")
    if not refusal.startswith("QEMU refused"):
        raise error
    return Feature(name, "no", how, _one_line(words))


def _one_line(text: str) -> str:
    return first_line(text) if text.strip() else ""
