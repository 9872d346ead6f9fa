"""A clone of a VM of the user's: taken once for the run, booted for each treatment with the settings of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.attach import LIBVIRT, Domain, why_not
from vmtax.attach import clone as clones
from vmtax.attach.clone.boot import QUIET_SECONDS
from vmtax.core.layers import CLONE_PATH
from vmtax.core.machines import MachineLost
from vmtax.core.records import Json
from vmtax.design.disk import THREADS
from vmtax.design.factors import FACTORS
from vmtax.design.hyperv import OFF
from vmtax.design.settings import BACKED
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.machine.login_shell import NEVER_RUN
from vmtax.plan.schema import GuestSize
from vmtax.storage import Backing
from vmtax.testbed.session.observed import Observed
from vmtax.testbed.session.ways import as_libvirt

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
ALONE = (
    "Nothing is done in them but asking whether they are up; a Windows is left alone for"
    f" {QUIET_SECONDS / 60:.0f} minutes after each boot, in which it works by itself, and which a first guess of how"
    f" long the run takes does not have; vmtax was {NEVER_RUN}"
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


@dataclass(frozen=True, slots=True)
class Cloning:
    """How a domain of libvirt on the host under test is cloned."""

    domain: Domain
    state: str  # in libvirt's words, when it was named
    directory: PurePosixPath  # on its host
    definition: clones.Definition
    points: list[clones.ClonePoint] = field(default_factory=list)  # the one that was taken
    machine: None = None
    path: str = CLONE_PATH
    verb: str = "clone"
    takes_root: bool = True
    measures: None = None
    is_watched: bool = False  # its clones are not entered

    @classmethod
    def of(cls, found: tuple[Domain, str], directory: PurePosixPath, *, is_watched: bool = False) -> Cloning:
        """Raises DomainError if that domain cannot be cloned."""
        domain, state = found
        definition = clones.refuse(domain, state, directory, is_watched=is_watched)
        return cls(domain, state, directory, definition, is_watched=is_watched)

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
        return f"{IS_OFF if self.state == clones.OFF else RUNS}{BOOTS}.{also}{alone}".removesuffix(".")

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
        for name, level in levels.items():
            if (why := INSTEAD_OF.get((name, level))) is not None:
                return f"{name}={level}: {why}"
        if self.is_emulated and (level := levels.get(HYPERV, OFF)) != OFF:
            return f"{HYPERV}={level}: only KVM has it, and libvirt emulates {self.name} (type qemu)"
        options = {name: level for name, level in levels.items() if "libvirt" in FACTORS[name].options}
        return why_not(self.definition.settings, as_libvirt(options))

    def take(self, local: LocalMachine) -> clones.ClonePoint:
        """The consistent point, taken when it is first asked for. Raises DomainError and MachineError."""
        if not self.points:
            self.points.append(clones.opened(self.domain, self.definition, self.state, self.directory, local))
        return self.points[0]

    def check(self) -> None:
        """Raises MachineLost if clones no longer stand on the point that was taken: nothing more can be measured."""
        if self.points and (why := self.points[0].why_void()):
            raise MachineLost(why)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about it."""
        state = "shut off" if self.state == clones.OFF else "as it ran, its file systems frozen"
        left_out = ", ".join(self.definition.left_out)
        without = f" It lacks {left_out}." if left_out else ""
        return (f"It is a clone of {self.name}, {state}.{without}", WATCHED if self.is_watched else DATA_DISK)

    @property
    def facts(self) -> Json:
        """Of clones that are only watched."""
        return {"uuid": self.uuid, "cpus_online": self.domain.vcpus, "memory_bytes": self.domain.memory}

    @contextmanager
    def booted(
        self, local: LocalMachine, image: Placed, levels: Mapping[str, str], disk: Backing | None
    ) -> Iterator[clones.Cloned]:
        """A clone with these levels. Raises DomainError and MachineError."""
        data = None
        if disk is not None:
            data = clones.CloneDisk(str(disk.path), disk.settings.format, is_device=disk.is_device)
        entered = None if self.is_watched else image
        with clones.booted(self.take(local), CLONE_PATH, local, entered, levels, data) as clone:
            yield clone

    def leave(self) -> Json:
        """End the point, and compare the domain with what it was. Raises MachineError."""
        return self.points.pop().leave() if self.points else {}


def takes(factor: str) -> bool:
    """Whether a clone can be given that factor."""
    return factor in clones.CHANGES or FACTORS[factor].layers == BACKED
