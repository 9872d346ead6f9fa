"""The disks under test of one run on one host: made once, filled once, shared by all treatments of one backing."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from vmtax.core.events import Event, Step
from vmtax.core.records import Json, Treatment
from vmtax.design.disk import DiskSettings
from vmtax.design.features import Feature
from vmtax.design.topology import topology
from vmtax.design.treatments import backing
from vmtax.hypervisor import DATA_ID, Credentials, Drive, GuestSpec, Qemu, QemuError
from vmtax.hypervisor.confine import Reach
from vmtax.hypervisor.qemu.drives import block_node
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.machine import Machine
from vmtax.machine.local import LocalMachine
from vmtax.storage import (
    Backing,
    FirstWrite,
    Fresh,
    Ground,
    Provisioner,
    RawFile,
    Target,
    fill,
    fill_image,
    page_cache,
)
from vmtax.storage.absent import Absent
from vmtax.storage.backing import describe, source_bytes
from vmtax.storage.features import features
from vmtax.storage.full import stops_when_full

DATA_MOUNT = "/mnt"  # where the host's userland sees the directory of the disk under test
DATA_DEVICE = "/dev/vmtax-disk"  # or the device
WHEN = "before the first round"
PROBE_SECONDS = 30.0

Key = tuple[DiskSettings, int]  # what decides a disk: its settings, and the number of the guest that has it


@dataclass
class Disks:
    """What is there for the host and for the guests on it."""

    machine: Machine
    provisioner: Provisioner
    fresh_size: int = 0  # bytes of a disk that is made anew for each boot of a VM; 0: none is asked for
    made: dict[Key, Backing] = field(default_factory=dict)

    def of(self, treatment: Treatment, number: int = 1) -> Backing:
        """The disk of a treatment of layer host or vm. `number`: of the guest among those that run at once."""
        return self.made[backing_of(treatment), number]

    def fresh(self, treatment: Treatment, number: int = 1) -> Fresh | None:
        """A disk like that of a treatment, never written; None if none is asked for, and of a bare device."""
        return self.new(treatment, self.fresh_size, number) if self.fresh_size else None

    def new(self, treatment: Treatment, size: int, number: int = 1) -> Fresh | None:
        """One more disk like that of a treatment, of `size` bytes; None of a bare device."""
        return self.provisioner.make_fresh(backing_of(treatment), self.of(treatment, number), size)


def backing_of(treatment: Treatment) -> DiskSettings:
    """What decides the file or device of a treatment's disk; all else is at its default. Equal ones share a disk."""
    return DiskSettings.of(backing(treatment.levels))


def wanted(treatments: Sequence[Treatment]) -> dict[Key, list[Treatment]]:
    """The disks of a plan, each with the treatments that use it; guests that run at once have one each."""
    found: dict[Key, list[Treatment]] = {}
    for treatment in treatments:
        if treatment.layer != "nested":
            for subject in topology(treatment).subjects:
                found.setdefault((backing_of(treatment), subject.number), []).append(treatment)
    return found


def written_bytes(treatments: Sequence[Treatment], size: int) -> int:
    """What is written before the first round: every disk, and what images are filled from."""
    found = [settings for settings, _ in wanted(treatments)]
    return size * len(found) + source_bytes(found, size)


def drive(treatment: Treatment, disk: Backing) -> Drive:
    """How QEMU opens the disk of a guest's treatment."""
    settings = replace(DiskSettings.of(treatment.levels), format=disk.settings.format)
    # No factor of a plan: tools/prove_live.py plants a known cost with it.
    limit = int(treatment.levels.get("disk.iops_limit", "0"))
    return Drive(str(disk.path), settings, disk.is_device, limit)


def not_here(machine: Machine, target: Target, treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments, the host's too, for whose disk the machine lacks something, each with what and its cure."""
    asked = Absent(machine, target)
    found: dict[str, str] = {}
    bounded = [treatment.name for treatment in treatments if DiskSettings.of(treatment.levels).bounded]
    if bounded and (reason := page_cache.why_not(machine)) is not None:
        found |= dict.fromkeys(bounded, reason)
    for (settings, _), users in wanted(treatments).items():
        reason = asked.why(settings)
        if reason is not None:
            found |= dict.fromkeys((treatment.name for treatment in users), reason)
    return found


@dataclass(frozen=True, slots=True)
class Order:
    """Which disks are wanted."""

    treatments: Sequence[Treatment]
    size: int  # bytes of each
    fresh_size: int = 0  # bytes of one more for each boot; 0: none
    spare: int = 0  # bytes of all that are made for a boot
    beside: int = 0  # bytes that will be taken of the directory once the disks are filled


def provision(
    machine: Machine,
    target: Target,
    ours: PurePosixPath,
    mark: str,
    qemu_img: tuple[str, ...],
    order: Order,
    emit: Callable[[Event], None],
) -> Disks:
    """Make the backings of an order. Raises StorageError and CommandFailed.

    `ours`: an existing directory of this run; `mark`: names volumes and pools of this run
    """
    disks = Disks(machine, Provisioner(Ground(machine, target, ours, mark), qemu_img), order.fresh_size)
    keys = list(wanted(order.treatments))
    disks.provisioner.prepare([settings for settings, _ in keys], order.size, order.spare, order.beside)
    for count, key in enumerate(keys, 1):
        if len(keys) > 1:
            emit(Step(f"making disk {count} of {len(keys)}", describe(key[0])))
        disks.made[key] = disks.provisioner.make(key[0], order.size, order.spare)
    return disks


def fill_all(
    disks: Disks,
    enter: Callable[[Backing], tuple[str, ...]],
    treatments: Sequence[Treatment],
    emit: Callable[[Event], None],
) -> dict[str, FirstWrite]:
    """Write every disk once in full; of each layer, or of each kind where there are several, how that went.

    `enter`: what enters the userland on the host with that disk in it
    """
    users = wanted(treatments)
    found: dict[str, FirstWrite] = {}
    with_image = [disk for disk in disks.made.values() if disk.settings.format != "raw"]
    source = _source(disks, enter, with_image[0].size) if with_image else None
    for number, (this, disk) in enumerate(disks.made.items(), 1):
        more = f", {number} of {len(disks.made)}" if len(disks.made) > 1 else ""
        emit(Step(f"writing the disk under test in full{more}", f"{disk.size / 2**20:.0f} MiB, {disk.kind}"))
        if disk.settings.format == "raw":
            inside = inside_userland(disk)
            written = fill(disks.machine, enter(disk), inside, disk.size, allocation=disk.kind, when=WHEN)
        else:
            assert source is not None
            qemu_img = disks.provisioner.qemu_img
            written = fill_image(
                disks.machine, qemu_img, str(source.path), str(disk.path), disk.size, allocation=disk.kind
            )
        if len(disks.made) > 1:
            found[disk.kind] = written
        else:
            found |= dict.fromkeys(dict.fromkeys(treatment.layer for treatment in users[this]), written)
    if source is not None:
        disks.machine.run("rm", "-f", str(source.path))
    return found


def inside_userland(disk: Backing) -> str:
    """What the host's userland calls a disk."""
    return DATA_DEVICE if disk.is_device else f"{DATA_MOUNT}/{disk.path.name}"


def bound(disk: Backing) -> tuple[str, ...]:
    """bubblewrap's options that bring a disk into the host's userland."""
    if disk.is_device:
        return ("--dev-bind", str(disk.path), DATA_DEVICE)
    return ("--bind", str(disk.path.parent), DATA_MOUNT)


def _source(disks: Disks, enter: Callable[[Backing], tuple[str, ...]], size: int) -> RawFile:
    """A file of random data, from which images are filled."""
    source = RawFile.allocate(disks.machine, disks.provisioner.ground.ours / "source.raw", size)
    as_disk = Backing(source.path, size=size)
    fill(disks.machine, enter(as_disk), inside_userland(as_disk), size, allocation="", when="")
    return source


def why_not(disks: Disks, treatments: Sequence[Treatment], qemu: Qemu, *, logged: bool = False) -> dict[str, str]:
    """Guest treatments whose disk QEMU does not open as they say on this host, each with QEMU's own reason.

    `logged`: what is written to them is to be kept in a log

    One paused QEMU without a guest opens and closes them all: tried on the file system, kernel and version that are
    there, not looked up in a table. ZFS before 2.3 accepts O_DIRECT and ignores it, and opening the file cannot reveal
    that: there the dataset is asked for its property `direct`, which came with it. Raises QemuError if QEMU itself
    ends.
    """
    found: dict[str, str] = {}
    guests = [treatment for treatment in treatments if treatment.layer == "vm" and treatment.repeats is None]
    paths = {disks.of(treatment).path: disks.of(treatment) for treatment in guests}
    devices = tuple(str(path) for path, disk in paths.items() if disk.is_device)
    reach = Reach(write=(str(disks.provisioner.ground.ours),), devices=devices)
    log = str(disks.provisioner.ground.ours / "tried.log") if logged else ""
    if log:
        disks.machine.run("truncate", "--size=0", log)
    process = disks.machine.start(*qemu.without_guest(reach), *_NO_GUEST)
    try:
        qmp = Qmp(process, PROBE_SECONDS)
        for treatment in guests:
            disk = disks.of(treatment)
            how = replace(drive(treatment, disk), log=log)
            cache = how.settings.cache
            if cache.is_direct and (reason := _ignores_direct(disks.machine, disk)) is not None:
                found[treatment.name] = f"disk.cache={cache} needs O_DIRECT: {reason}"
                continue
            try:
                qmp.execute("blockdev-add", **block_node(how))
                qmp.execute("blockdev-del", node_name=DATA_ID)
            except QmpError as error:
                if process.poll() is not None:
                    raise
                found[treatment.name] = f"QEMU {qemu.version} does not open it here: {error}"
    except QmpError as error:
        words = process.stderr_tail().strip().splitlines()
        raise QemuError(f"{disks.machine.path}: QEMU {qemu.version} ended: {words[-1] if words else error}") from error
    finally:
        process.stop()
    return found


_NO_GUEST = (
    *("-nodefaults", "-no-user-config", "-display", "none", "-machine", "none", "-accel", "tcg", "-S", "-qmp", "stdio"),
)


def _ignores_direct(machine: Machine, disk: Backing) -> str | None:
    """Why O_DIRECT on it would be a promise that is not kept; None if it would be kept, or refused."""
    if disk.is_device:
        return None
    mounted = machine.try_run("findmnt", "--json", "--output", "FSTYPE,SOURCE", "--target", str(disk.path))
    if not mounted.ok:
        return None
    row = json.loads(mounted.stdout)["filesystems"][0]
    if row["fstype"] != "zfs":
        return None
    asked = machine.try_run("zfs", "get", "-H", "-o", "value", "direct", str(row["source"]))
    if not asked.ok:
        version = machine.try_run("zfs", "version").stdout.partition("\n")[0] or "this ZFS"
        return f"{version} accepts it and ignores it; 2.3 or newer obeys it"
    return "the dataset has direct=disabled" if asked.stdout.strip() == "disabled" else None


@dataclass(frozen=True, slots=True)
class Trying:
    """What the checks of `features_of` have to work with."""

    qemu: Qemu
    guest: GuestSpec | None  # for the check of a full disk; None: not root, which it takes
    credentials: Credentials
    local: LocalMachine
    scratch: PurePosixPath  # a directory of this run on the machine of the disks


def features_of(
    disks: Disks, treatments: Sequence[Treatment], trying: Trying, emit: Callable[[Event], None]
) -> dict[str, list[Json]]:
    """Treatment name -> what its way to keep a disk can do, as `Feature.to_json`; guests on the host only."""
    guests = [treatment for treatment in treatments if treatment.layer == "vm"]
    qemu_img = disks.provisioner.qemu_img

    @functools.cache
    def when_full(bus: str, format: str) -> Feature:
        assert trying.guest is not None
        emit(Step("filling a small file system under a guest", f"{bus} {format}: is it paused?"))
        how = DiskSettings(bus=bus, format=format)
        return stops_when_full(disks.machine, trying.guest, how, trying.credentials, trying.local, qemu_img)

    found: dict[str, list[Json]] = {}
    for number, treatment in enumerate(guests, 1):
        disk = disks.of(treatment)
        how = drive(treatment, disk)
        emit(Step(f"trying what disks can do, {number} of {len(guests)}", treatment.name))
        cells = features(
            *(disks.machine, trying.qemu, disk, how, trying.scratch),
            qemu_img=qemu_img,
            when_full=functools.partial(when_full, how.settings.bus, how.settings.format) if trying.guest else None,
        )
        found[treatment.name] = [cell.to_json() for cell in cells]
    return found
