"""What the experiment's loop needs of the machines that it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from vmtax.core.records import Json, Treatment
from vmtax.design.migration import Mode
from vmtax.hypervisor import Guest
from vmtax.machine import Machine, Process
from vmtax.meter import GuestMeter, Meter, new_guest_meters, new_meters
from vmtax.plan.schema import Plan
from vmtax.storage import Backing
from vmtax.storage.copies import Copies
from vmtax.testbed.power import Power
from vmtax.workload import Site, Workload
from vmtax.workload.durability.stacks import Stack


class Handover:
    """What a move does to a guest's address on its host. As it is, nothing: the bridge learns where the guest is."""

    def fell_back(self) -> None:
        """The guest is about to move, and has given up its virtual function."""

    def arrived(self, destination: Guest) -> None:
        """It runs there."""

    def regain(self, guest: Guest) -> None:
        """It has moved: it is given a function again. Raises CannotDo."""

    def stayed(self, guest: Guest) -> None:
        """It did not move. Raises CannotDo."""


@dataclass(frozen=True, slots=True)
class Route:
    """What the migration of a guest takes."""

    mode: Mode
    address: str  # the guest's on the network under test
    wait: Callable[[], Guest]  # starts what it moves to, which is gone with the treatment. Raises BootFailed
    watch: Callable[[Sequence[str]], Process]  # starts a command at the network peer, inside the userland there
    handover: Handover = field(default_factory=lambda: Handover())  # what it does to the guest's address


@dataclass(frozen=True, slots=True)
class HostDisk:
    """A disk of a host whose writes are all logged, under that of a guest. Files of the machine that runs vmtax."""

    disk: Path
    log: Path
    since: int  # bytes that the log had when `copies.before` was copied
    copies: Copies  # of that disk


@dataclass(frozen=True, slots=True)
class HostDisks:
    """All on which a guest's disk lies."""

    disks: tuple[HostDisk, ...]
    stack: Stack  # how the guest's disk lies on them

    @property
    def logs(self) -> list[Path]:
        return [disk.log for disk in self.disks]


@dataclass(frozen=True, slots=True)
class Cut:
    """What it takes to end a guest while it writes, and to check what is left of its disk."""

    device: str  # what the guest that writes calls its disk
    ended: Guest  # that guest, or the outer VM, which is its host
    inside: str  # the file on the disk of that outer VM in which the guest's disk lies; "" if there is none
    disk: Backing  # of the one that is ended, on the host under test
    log: PurePosixPath  # of all that QEMU writes to that, there; not there where `host_disks` have theirs
    copies: Copies  # what is rebuilt of it, on the machine that runs vmtax
    # There: a guest with the disks that copies of the guest's and of the host's disks are. Raises BootFailed.
    boot_checker: Callable[[Copies, Sequence[Copies]], AbstractContextManager[Guest]]
    checkers: int = 1  # such guests that there is room for at once
    host_disks: HostDisks | None = None  # None: what its host does below its disk is not looked at
    power: Power | None = None  # of its host, which is cut in place of the guest; None: that keeps it


@dataclass(frozen=True, slots=True)
class RunningSubject:
    """One machine whose work is measured, ready for workloads."""

    site: Site
    guest: Guest | None = None  # None: it was not booted for the treatment, as the host
    route: Route | None = None  # None: it is not to be migrated
    cut: Cut | None = None  # None: it is to end in order
    number: int = 1  # of a set of processes among those that a host has at once

    @property
    def machine(self) -> str:
        """Path of the machine, as records name it: "host/vm-2"; a host's second set of processes is "host-2"."""
        path = self.site.machine.path
        return path if self.number == 1 else f"{path}-{self.number}"


@dataclass(frozen=True, slots=True)
class RunningTreatment:
    """A treatment whose machines are up, settled and have cold caches."""

    subjects: tuple[RunningSubject, ...]  # one or more; they work at the same time
    host: Machine  # the host under test, which is watched meanwhile
    outer: tuple[Guest, ...] = ()  # guests that carry the subjects, from the outside in
    emulated: bool = False  # some layer is
    meters: tuple[Meter, ...] = field(default_factory=new_meters)
    guest_meters: tuple[GuestMeter, ...] = field(default_factory=new_guest_meters)

    @property
    def guests(self) -> tuple[Guest, ...]:
        """All that were booted, from the outside in."""
        return (*self.outer, *(subject.guest for subject in self.subjects if subject.guest is not None))


class Testbed(Protocol):
    """The machines of one run: hosts under test with all that is set up on them."""

    @property
    def plan(self) -> Plan:
        """As it can be measured here."""

    @property
    def workloads(self) -> Sequence[Workload[Any]]: ...

    @property
    def host_emulated(self) -> bool:
        """A host under test is itself emulated."""

    @property
    def power(self) -> Power | None:
        """That of the host under test, where it is to be cut."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know of how it was set up."""

    @property
    def impossible(self) -> Mapping[str, str]:
        """Treatments that cannot be here -> why."""

    def host_facts(self) -> dict[str, Json]:
        """Facts of every host under test, by the path that they are kept under."""

    def guest_facts(self, running: RunningTreatment, guest: Guest) -> Json:
        """The facts of one guest of a treatment that is running."""

    def facts_path(self, treatment: Treatment, path: str) -> str:
        """Where the facts of the machine `path` are kept, for a treatment."""

    def differences(self, facts: Mapping[str, Json]) -> list[str]:
        """One line for each fact in which two interleaved hosts, or QEMUs, differ; `facts` by path."""

    def layer_differences(self, facts: Mapping[str, Json]) -> list[str]:
        """One line for each fact in which the layers of one host differ that should not; `facts` by path."""

    def first_writes(self, treatment: Treatment) -> tuple[str, Json]:
        """Path of the treatment's host, and how each disk under test on it was written in full so far."""

    def opened(self, treatment: Treatment) -> AbstractContextManager[RunningTreatment]:
        """Brings up the machines of a treatment; guests are gone at exit. Raises BootFailed, MachineError."""

    def check(self, *, ask: bool = True) -> None:
        """Raises MachineLost if what undoes the set-up is gone. `ask=False`: only what is seen from here."""

    def check_host(self, treatment: Treatment) -> None:
        """Raises MachineLost if the treatment's host is gone."""
