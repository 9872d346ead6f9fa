"""The disks under test of one run on one host: made and filled once, shared by treatments with the same backing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from vmtax.core.events import Event, Step
from vmtax.core.machines import last_words
from vmtax.core.records import Json, Treatment
from vmtax.design.disk import DiskSettings
from vmtax.design.features import Feature
from vmtax.design.settings import BACKED
from vmtax.design.topology import topology
from vmtax.design.treatments import backing
from vmtax.hypervisor import DATA_ID, Credentials, Drive, GuestSpec, Qemu, QemuError
from vmtax.hypervisor.confine import Reach
from vmtax.hypervisor.qemu.drives import block_node
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.machine import Machine
from vmtax.machine.local import LocalMachine
from vmtax.meter.mounts import mount_of
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
DATA_DEVICE = "/dev/vmtax-disk"  # where it sees the device, if the disk is one
WHEN = "before the first round"
PROBE_SECONDS = 30.0

Key = tuple[DiskSettings, int]  # what identifies a disk: its settings, and the number of its guest


@dataclass
class Disks:
    """The disks under test of one host and of the guests on it."""

    machine: Machine
    provisioner: Provisioner
    fresh_size: int = 0  # bytes of a disk that is made anew for each boot of a VM; 0: there is none
    made: dict[Key, Backing] = field(default_factory=dict)

    def of(self, treatment: Treatment, number: int = 1) -> Backing:
        """The disk of a treatment of layer host or vm. `number`: of the guest, among those that run at once."""
        return self.made[backing_of(treatment), number]

    def fresh(self, treatment: Treatment, number: int = 1) -> Fresh | None:
        """A disk like the treatment's that was never written; None if none is needed, or for a bare device."""
        return self.new(treatment, self.fresh_size, number) if self.fresh_size else None

    def new(self, treatment: Treatment, size: int, number: int = 1) -> Fresh | None:
        """One more disk of `size` bytes like the treatment's; None for a bare device."""
        return self.provisioner.make_fresh(backing_of(treatment), self.of(treatment, number), size)


def backing_of(treatment: Treatment) -> DiskSettings:
    """The settings that identify the file or device of a treatment's disk, the others at their defaults. Treatments
    with equal ones share a disk.
    """
    return DiskSettings.of(backing(treatment.levels))


def has_disk(treatment: Treatment) -> bool:
    """Whether a guest has the disk under test as a disk, and not in a shared directory."""
    return not DiskSettings.of(treatment.levels).is_shared


def wanted(treatments: Sequence[Treatment]) -> dict[Key, list[Treatment]]:
    """The disks of a plan, each with the treatments that use it; guests that run at once have one each."""
    found: dict[Key, list[Treatment]] = {}
    for treatment in treatments:
        if treatment.layer in BACKED:
            for subject in topology(treatment).subjects:
                found.setdefault((backing_of(treatment), subject.number), []).append(treatment)
    return found


def written_bytes(treatments: Sequence[Treatment], size: int) -> int:
    """Bytes written before the first round: every disk, and the file from which images are filled."""
    found = [settings for settings, _ in wanted(treatments)]
    return size * len(found) + source_bytes(found, size)


def drive(treatment: Treatment, disk: Backing) -> Drive:
    """How QEMU opens the disk of a guest's treatment."""
    settings = replace(DiskSettings.of(treatment.levels), format=disk.settings.format)
    # Not a factor of plans: tools/prove_live.py uses it to plant a known cost.
    limit = int(treatment.levels.get("disk.iops_limit", "0"))
    return Drive(str(disk.path), settings, disk.is_device, limit)


def not_here(machine: Machine, target: Target, treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments, those of the host included, whose disk the machine cannot provide -> what is missing, and how to get
    it.
    """
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
class DiskOrder:
    """The disks to make."""

    treatments: Sequence[Treatment]
    size: int  # bytes of each disk
    fresh_size: int = 0  # bytes of one more disk for each boot; 0: none
    spare: int = 0  # bytes of the disks that are made for a boot beside one of them
    beside: int = 0  # bytes that other files will take of the directory once the disks are filled


def provision(
    machine: Machine,
    target: Target,
    ours: PurePosixPath,
    mark: str,
    qemu_img: tuple[str, ...],
    order: DiskOrder,
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
    """Write every disk once in full, and return how that went: by layer, or by kind of disk if there are several disks.

    `enter`: the command that enters the userland on the host with the given disk in it
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
    """The path of a disk in the host's userland."""
    return DATA_DEVICE if disk.is_device else f"{DATA_MOUNT}/{disk.path.name}"


def bound(disk: Backing) -> tuple[str, ...]:
    """bubblewrap's options that bring a disk into the host's userland."""
    if disk.is_device:
        return ("--dev-bind", str(disk.path), DATA_DEVICE)
    return ("--bind", str(disk.path.parent), DATA_MOUNT)


def _source(disks: Disks, enter: Callable[[Backing], tuple[str, ...]], size: int) -> RawFile:
    """A file of random data with which images are filled."""
    source = RawFile.allocate(disks.machine, disks.provisioner.ground.ours / "source.raw", size)
    as_disk = Backing(source.path, size=size)
    fill(disks.machine, enter(as_disk), inside_userland(as_disk), size, allocation="", when="")
    return source


def why_not(disks: Disks, treatments: Sequence[Treatment], qemu: Qemu, *, logged: bool = False) -> dict[str, str]:
    """Guest treatments whose disk this host's QEMU does not open as they ask, each with QEMU's own reason.

    `logged`: their writes are to be logged

    One paused QEMU without a guest opens and closes all of the disks: a trial on this file system, kernel and version
    tells more than a table. ZFS before 2.3 accepts O_DIRECT and ignores it, and opening the file cannot reveal that; so
    the dataset is checked for the property `direct`, which arrived in that version. Raises QemuError if QEMU itself
    ends.
    """
    found: dict[str, str] = {}
    guests = [one for one in treatments if one.layer == "vm" and one.repeats is None and has_disk(one)]
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
        words = last_words(process).splitlines()
        raise QemuError(f"{disks.machine.path}: QEMU {qemu.version} ended: {words[-1] if words else error}") from error
    finally:
        process.stop()
    return found


_NO_GUEST = (
    *("-nodefaults", "-no-user-config", "-display", "none", "-machine", "none", "-accel", "tcg", "-S", "-qmp", "stdio"),
)


def _ignores_direct(machine: Machine, disk: Backing) -> str | None:
    """Why O_DIRECT has no effect on this disk; None if it works, or if it is refused."""
    if disk.is_device:
        return None
    mount = mount_of(machine, disk.path)
    if mount is None or mount.system != "zfs":
        return None
    asked = machine.try_run("zfs", "get", "-H", "-o", "value", "direct", mount.source)
    if not asked.ok:
        version = machine.try_run("zfs", "version").stdout.partition("\n")[0] or "this ZFS"
        return f"{version} accepts it and ignores it; 2.3 or newer obeys it"
    return "the dataset has direct=disabled" if asked.stdout.strip() == "disabled" else None


@dataclass(frozen=True, slots=True)
class Trying:
    """What the checks of `features_of` need."""

    qemu: Qemu
    guest: GuestSpec | None  # for the check of a full disk; None: we are not root, which that check requires
    credentials: Credentials
    local: LocalMachine
    scratch: PurePosixPath  # a directory of this run on the machine of the disks


def features_of(
    disks: Disks, treatments: Sequence[Treatment], trying: Trying, emit: Callable[[Event], None]
) -> dict[str, list[Json]]:
    """Treatment name -> what its kind of disk can do, as `Feature.to_json`; only for guests that run on the host
    itself.
    """
    guests = [treatment for treatment in treatments if treatment.layer == "vm" and has_disk(treatment)]
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
