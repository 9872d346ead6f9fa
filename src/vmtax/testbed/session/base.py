"""The interface between the experiment's loop and the machines that it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar

from vmtax.core.records import Json, Treatment
from vmtax.design.migration import MigrationSettings
from vmtax.hypervisor import Guest
from vmtax.machine import Machine, Process
from vmtax.meter import GuestMeter, Meter, new_guest_meters, new_meters
from vmtax.plan.schema import Plan
from vmtax.storage import Backing
from vmtax.storage.copies import Copies
from vmtax.testbed.session.cloning import ClonedBoot
from vmtax.testbed.session.power import Power
from vmtax.workload import Site, Workload
from vmtax.workload.durability.stacks import Stack

Kind = TypeVar("Kind")


class Handover:
    """Keeps a migrating guest reachable at its address. This base does nothing: the bridge learns the guest's new
    place.
    """

    def fell_back(self) -> None:
        """Called before the guest moves, when it has given up its virtual function."""

    def arrived(self, destination: Guest) -> None:
        """Called when the guest runs at `destination`."""

    def regain(self, guest: Guest) -> None:
        """Called after the move: give the guest a virtual function again. Raises CannotDo."""

    def stayed(self, guest: Guest) -> None:
        """Called if the guest did not move. Raises CannotDo."""


@dataclass(frozen=True, slots=True)
class Route:
    """What is needed to migrate a guest."""

    settings: MigrationSettings
    address: str  # the guest's address on the network under test
    wait: Callable[[], Guest]  # starts the destination's QEMU, which ends with the treatment. Raises BootFailed
    watch: Callable[[Sequence[str]], Process]  # starts a command at the network peer, inside the userland there
    handover: Handover = field(default_factory=lambda: Handover())  # keeps the guest reachable at its address


@dataclass(frozen=True, slots=True)
class HostDisk:
    """A disk of a host that holds a guest's disk and logs all writes. All files are on the machine that runs vmtax."""

    disk: Path
    log: Path
    since: int  # length of the log in bytes when `copies.before` was copied
    copies: Copies  # copies of that disk


@dataclass(frozen=True, slots=True)
class HostDisks:
    """All host disks that hold a guest's disk."""

    disks: tuple[HostDisk, ...]
    stack: Stack  # how the guest's disk is laid out on them

    @property
    def logs(self) -> list[Path]:
        return [disk.log for disk in self.disks]


@dataclass(frozen=True, slots=True)
class Cut:
    """What is needed to end a guest while it writes, and to check its disk afterwards."""

    device: str  # name of the disk in the guest that writes
    ended: Guest  # the guest that writes, or the outer VM that is its host
    inside: str  # file on the outer VM's disk that holds the nested guest's disk; "" if no outer VM is ended
    disk: Backing  # disk of the guest that is ended, on the host under test
    log: PurePosixPath  # QEMU's log of all writes to that disk, on that host; unused if `host_disks` have logs
    copies: Copies  # copies from which disk states are rebuilt, on the machine that runs vmtax
    # Boots, on the machine that runs vmtax, a guest with the given copies of the guest's disk and of the host's disks.
    # Raises BootFailed.
    boot_checker: Callable[[Copies, Sequence[Copies]], AbstractContextManager[Guest]]
    checkers: int = 1  # how many checking guests fit at once
    host_disks: HostDisks | None = None  # None: the host's own disks are not examined
    power: Power | None = None  # of the host, which is cut instead of the guest; None: the host keeps its power


@dataclass(frozen=True, slots=True)
class Overdue:
    """Ends commands that go on although their time was up, where ending what started them is not enough."""

    end: Callable[[], None]  # raises MachineError


@dataclass(frozen=True, slots=True)
class RunningSubject:
    """One machine whose work is measured, ready for workloads."""

    site: Site
    guest: Guest | None = None  # None: its layer has no kernel of its own, and was not booted for the treatment
    # At most one of a kind: a Route if it is migrated, a Cut if it is ended while it writes, Overdue for a container.
    offers: tuple[object, ...] = ()
    path: str = ""  # as records name it, where that is not the machine's own: "host-2", "host/container"

    def offer(self, kind: type[Kind]) -> Kind | None:
        """What is offered of that kind; None: nothing is."""
        return next((each for each in self.offers if isinstance(each, kind)), None)

    @property
    def machine(self) -> str:
        """Its path, as records name it: "host/vm-2"; a host's second set of processes is "host-2"."""
        return self.path or self.site.machine.path


@dataclass(frozen=True, slots=True)
class RunningTreatment:
    """The machines of a treatment, all of them up, settled and with cold caches."""

    subjects: tuple[RunningSubject, ...]  # one or more; they work at the same time
    host: Machine  # the host under test, which is observed during the trials
    outer: tuple[Guest, ...] = ()  # guests that carry the subjects, from the outside in
    emulated: bool = False  # some layer is emulated
    meters: tuple[Meter, ...] = field(default_factory=new_meters)
    guest_meters: tuple[GuestMeter, ...] = field(default_factory=new_guest_meters)

    @property
    def guests(self) -> tuple[Guest, ...]:
        """All guests that were booted, from the outside in."""
        return (*self.outer, *(subject.guest for subject in self.subjects if subject.guest is not None))


class Testbed(Protocol):
    """The machines of one run: hosts under test with all that is set up on them."""

    @property
    def plan(self) -> Plan:
        """The plan, without what cannot be measured on these machines."""

    @property
    def workloads(self) -> Sequence[Workload[Any]]: ...

    @property
    def host_emulated(self) -> bool:
        """Whether a host under test is itself emulated."""

    @property
    def power(self) -> Power | None:
        """Power control of the host under test; None if its power is not cut."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know about the set-up."""

    @property
    def impossible(self) -> Mapping[str, str]:
        """Treatments that cannot be measured here -> why."""

    def host_facts(self) -> dict[str, Json]:
        """Facts of every host under test, by the path under which they are stored."""

    def guest_facts(self, running: RunningTreatment, guest: Guest) -> Json:
        """The facts of one guest of a running treatment."""

    def clone_facts(self, running: RunningTreatment, boot: ClonedBoot) -> Json:
        """The facts of the clone of a running treatment."""

    def facts_path(self, treatment: Treatment, path: str) -> str:
        """The path under which a treatment's facts about the machine `path` are stored."""

    def differences(self, facts: Mapping[str, Json]) -> list[str]:
        """One line for each fact in which two interleaved hosts, or QEMUs, differ; `facts` by path."""

    def layer_differences(self, facts: Mapping[str, Json]) -> list[str]:
        """One line for each fact in which the layers of one host differ that should not; `facts` by path."""

    def first_writes(self, treatment: Treatment) -> tuple[str, Json]:
        """Path of the treatment's host, and how each disk under test on it has been written in full so far."""

    def opened(self, treatment: Treatment) -> AbstractContextManager[RunningTreatment]:
        """Brings up the machines of a treatment; guests are gone at exit. Raises BootFailed, MachineError."""

    def check(self, *, ask: bool = True) -> None:
        """Raises MachineLost if the guard, which undoes the set-up, is gone. `ask=False`: check only what is visible
        from here.
        """

    def check_host(self, treatment: Treatment) -> None:
        """Raises MachineLost if the treatment's host is gone."""
