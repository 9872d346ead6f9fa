"""A clone of a VM of the user's: taken once for the run, booted for each treatment with the settings of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from vmtax.attach import LIBVIRT, Domain, why_not
from vmtax.attach import clone as clones
from vmtax.core.events import Event
from vmtax.core.layers import CLONE, CLONE_PATH
from vmtax.core.machines import Machine, MachineLost
from vmtax.core.records import Json, Treatment
from vmtax.design.disk import THREADS
from vmtax.design.factors import FACTORS
from vmtax.design.hyperv import OFF
from vmtax.design.settings import BACKED
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.machine.login_shell import NEVER_RUN
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.facts import read_facts
from vmtax.meter.windows import read_windows
from vmtax.plan.schema import GuestSize
from vmtax.storage import Backing
from vmtax.testbed.session.observed import Observed
from vmtax.testbed.session.ways import as_libvirt
from vmtax.testbed.session.windows_disc import ProgramsDisc, put_disc
from vmtax.testbed.session.windows_way import NOTES, building
from vmtax.workload.chess import Chess
from vmtax.workload.fio import Disk

RUNS = (
    "a backup job of libvirt's serves its disks as they are now, and copies what it overwrites meanwhile; its file"
    " systems are frozen for that for less than a second. Until the run ends, make no snapshot or other backup of it,"
    " and do not migrate it"
)
IS_OFF = "its disks are read, and neither written nor locked: you can start it, which ends the run"
BOOTS = (
    ". Clones of it are booted on this host beside it, with its programs and services, but without a network; what they"
    " write is thrown away"
)
HYPERV = "cpu.hyperv"
INSTEAD_OF = {  # (factor, level) -> why a clone cannot have it
    ("disk.bus", "nvme"): "libvirt has no NVMe disk that QEMU emulates",
    ("guest.hpet", "auto"): "it is off or on in a clone",
    ("memory.backing", "4k"): "libvirt has no word for memory without transparent huge pages",
    **{
        ("disk.iothread", level): "a clone's disk has one iothread" for level, threads in THREADS.items() if threads > 1
    },
}
MINUTES = f"{clones.QUIET_SECONDS / 60:.0f}"
ALONE = (
    f"Nothing is done in them but asking whether they are up; a Windows is left alone for {MINUTES} minutes after each"
    f" boot, in which it works by itself; vmtax was {NEVER_RUN}"
)
BY_DISC = (
    "Each sees a disc of ours with fio and stockfish, which its guest agent starts, and a blank disk of ours: disk"
    " tests write to that one alone, and not if there is a partition on it. It is left alone after each boot until its"
    f" CPUs rest, {MINUTES} minutes at most; vmtax was {NEVER_RUN}"
)
WATCHED = (
    "Nothing was looked at inside: its figure is the time of its QEMU's threads, in a clone that has no screen and no"
    " network, so that the VM itself may take more."
)
DATA_DISK = (
    "The disk under test is a disk of ours with the settings of the VM's first disk; its own disks are overlays, which"
    " are not measured."
)


@dataclass(frozen=True, slots=True)
class ClonedBoot(Observed):
    """One boot of a clone, which its subject offers to the record and to whoever measures it."""

    accelerator: str  # "kvm" or "tcg"
    argv: tuple[str, ...]  # of its QEMU; () if it cannot be read
    ready_seconds: float
    uuid: str  # of the VM
    warnings: tuple[str, ...] = ()  # doubts about this boot, as they are recorded with it


@dataclass(frozen=True, slots=True)
class Cloning:
    """How a domain of libvirt on the host under test is cloned."""

    domain: Domain
    state: str  # in libvirt's words, when it was named
    directory: PurePosixPath  # on its host
    definition: clones.Definition
    points: list[clones.ClonePoint] = field(default_factory=list)  # the one that was taken
    discs: list[ProgramsDisc] = field(default_factory=list)  # the one that was made, for a Windows
    machine: None = None
    path: str = CLONE_PATH
    verb: str = "clone"
    takes_root: bool = True
    is_watched: bool = False  # its clones are not entered
    is_windows: bool = False

    @classmethod
    def of(cls, found: tuple[Domain, str], directory: PurePosixPath, *, is_watched: bool = False) -> Cloning:
        """Raises DomainError if that domain cannot be cloned."""
        domain, state = found
        definition = clones.refuse(domain, state, directory)
        is_windows = domain.is_windows()
        return cls(domain, state, directory, definition, is_watched=is_watched, is_windows=is_windows)

    @property
    def is_off(self) -> bool:
        return self.state == clones.OFF

    @property
    def name(self) -> str:
        return f"{LIBVIRT}{self.domain.name}"

    @property
    def uuid(self) -> str:
        return self.domain.uuid

    @property
    def announced(self) -> str:
        left_out = self.definition.left_out[1:] if self.definition.left_out[:1] == ("its network",) else ()
        also = f" They also lack {', '.join(left_out)}." if left_out else ""
        alone = f" {ALONE}." if self.is_watched else ""
        entered = f" {BY_DISC}{building()}." if self.has_disc else ""
        return f"{IS_OFF if self.is_off else RUNS}{BOOTS}.{also}{alone}{entered}".removesuffix(".")

    @property
    def has_disc(self) -> bool:
        """Whether its clones are entered as a Windows."""
        return self.is_windows and not self.is_watched

    @property
    def alone_seconds(self) -> float:
        """For which a clone is left alone after its boot, at most."""
        return clones.QUIET_SECONDS if self.is_windows else 0.0

    @property
    def measures(self) -> tuple[str, ...] | None:
        return (Chess.name, Disk.name) if self.has_disc else None

    @property
    def why_emulated(self) -> str:
        """Of one that is."""
        return f"libvirt emulates the CPU of {self.name}, as its definition says (type qemu)"

    @property
    def is_emulated(self) -> bool:
        return self.definition.is_emulated

    def size(self) -> GuestSize:
        return GuestSize(vcpus=self.domain.vcpus, memory=self.domain.memory)

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        """Why a clone cannot have these levels; None if it can."""
        if self.definition.has_no_ide and levels.get("disk.bus") == "ide":
            return f"disk.bus=ide: the machine of {self.name} is a q35, which has none in libvirt: sata is like it"
        for name, level in levels.items():
            if (why := INSTEAD_OF.get((name, level))) is not None:
                return f"{name}={level}: {why}"
        if self.is_emulated and (level := levels.get(HYPERV, OFF)) != OFF:
            return f"{HYPERV}={level}: only KVM has it, and libvirt emulates {self.name} (type qemu)"
        options = {name: level for name, level in levels.items() if "libvirt" in FACTORS[name].options}
        return why_not(self.definition.settings, as_libvirt(options))

    def impossible(self, treatments: Sequence[Treatment]) -> dict[str, str]:
        """Clones that cannot have their levels -> why."""
        asked = {one.name: self.why_not(one.levels) for one in treatments if one.layer == CLONE}
        return {name: why for name, why in asked.items() if why is not None}

    def take(self, local: LocalMachine, emit: Callable[[Event], None] = lambda event: None) -> clones.ClonePoint:
        """The consistent point, taken when it is first asked for, after the programs for a Windows were built.

        Raises DomainError and MachineError.
        """
        if not self.points:
            disc = ProgramsDisc.made(local, emit) if self.has_disc else None
            self.points.append(clones.opened(self.domain, self.definition, self.state, self.directory, local))
            if disc is not None:
                self.discs.append(put_disc(disc, self.domain.host, self.points[0].directory))
        return self.points[0]

    def check(self) -> None:
        """Raises MachineLost if clones no longer stand on the point that was taken: nothing more can be measured."""
        if self.points and (why := self.points[0].why_void()):
            raise MachineLost(why)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about it."""
        state = "shut off" if self.is_off else "as it ran, its file systems frozen"
        left_out = ", ".join(self.definition.left_out)
        without = f" It lacks {left_out}." if left_out else ""
        seen = (WATCHED,) if self.is_watched else (DATA_DISK, *(NOTES if self.is_windows else ()))
        return (f"It is a clone of {self.name}, {state}.{without}", *seen)

    def facts(self, there: Machine) -> Json:
        """`there`: a clone, or its host if it is only watched. Raises MachineLost."""
        known = {"uuid": self.uuid, "cpus_online": self.domain.vcpus, "memory_bytes": self.domain.memory}
        if self.is_watched:
            return known
        if isinstance(there, WindowsMachine):
            facts = replace(read_windows(there), cpus=self.domain.vcpus, memory_bytes=self.domain.memory)
            return {**facts.to_json(), "uuid": self.uuid, "windows_programs": dict(self.discs[0].digests)}
        return {**read_facts(there), "uuid": self.uuid, "os": None}  # what is read of a system is the image's own

    @contextmanager
    def booted(
        self, local: LocalMachine, image: Placed, levels: Mapping[str, str], disk: Backing | None
    ) -> Iterator[clones.Cloned]:
        """A clone with these levels. Raises DomainError and MachineError."""
        data = None
        if disk is not None:
            data = clones.CloneDisk(str(disk.path), disk.settings.format, is_device=disk.is_device, size=disk.size)
        with clones.booted(self.take(local), CLONE_PATH, local, self._guest(image), levels, data) as clone:
            yield clone

    def _guest(self, image: Placed) -> clones.ClonedGuest:
        if self.is_watched:
            return clones.WatchedGuest()
        if not self.is_windows:
            return clones.LinuxGuest(image)
        return clones.WindowsGuest(self.discs[0].file, self.discs[0].mark, tuple(self.discs[0].digests))

    def leave(self) -> Json:
        """End the point, and compare the domain with what it was. Raises MachineError."""
        self.discs.clear()  # they lie beside the point
        return self.points.pop().leave() if self.points else {}


def takes(factor: str) -> bool:
    """Whether a clone can be given that factor."""
    return factor in clones.CHANGES or FACTORS[factor].layers == BACKED
