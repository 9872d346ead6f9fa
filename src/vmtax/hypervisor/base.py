"""What every hypervisor has in common: the guest that is wanted, how it is booted, and the guest that runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePosixPath
from string import ascii_lowercase
from typing import Literal, Protocol, Self

from vmtax.core.errors import CannotDo
from vmtax.core.records import Moved
from vmtax.design import guest
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor.console import Console
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.move import Move
from vmtax.hypervisor.spec import DATA_DEVICES, DATA_ID, Card, Drive, Passed
from vmtax.machine import Machine, Process, Reader
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine


class BootFailed(CannotDo):
    """A guest did not come up; the text holds its hypervisor's words and the last console lines."""

    def __init__(self, text: str, *, qemu_died: bool = False, silent: bool = False) -> None:
        super().__init__(text)
        self.qemu_died = qemu_died  # QEMU itself ended by a signal, not the guest
        self.silent = silent  # the console said nothing for too long


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds."""

    ready: float = 120.0  # from launch to sshd
    silence: float | None = None  # of a talkative console, before the guest is taken for hung


AWAITED = "defer"  # as QEMU calls it


@dataclass(frozen=True, slots=True)
class Lasting:
    """Where a guest is found again that outlives the program which boots it; only on the machine of that program."""

    runtime: PurePosixPath  # a directory that is made for it
    console: PurePosixPath  # a file; its directory is there
    log: PurePosixPath  # what the hypervisor says on standard error

    @property
    def socket(self) -> PurePosixPath:
        """Where the hypervisor takes commands."""
        return self.runtime / "qmp"

    @property
    def pid_file(self) -> PurePosixPath:
        """Holds the process id of the hypervisor, which is not that of what started it."""
        return self.runtime / "pid"


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """Everything that decides how a guest runs. Paths are the parent's."""

    name: str  # the last part of its path: "vm"; guests of one parent that run at once have different ones
    vcpus: int
    memory_bytes: int
    accelerator: Literal["kvm", "tcg"]
    hypervisor: Hypervisor  # the parent's
    kernel: str
    initrd: str  # without credentials
    root: str  # the read-only root image, file or block device
    disks: tuple[Drive, ...] = ()
    cards: tuple[Card, ...] = ()  # besides the one by which it is reached: eth1 and so on
    layers: tuple[str, ...] = ()  # erofs files or devices, laid over the root; a later one is above
    packs: tuple[str, ...] = ()  # erofs files or devices, which the guest has as disks besides
    settings: GuestSettings = guest.DEFAULT
    kernel_words: tuple[str, ...] = ()  # more of its kernel's command line
    iommu: bool = False  # it can give its own devices to guests
    preallocated: bool = False  # all of its memory is taken at its start
    talkative: bool = False  # the kernel reports its progress on the console: for the KVM probe
    within: tuple[str, ...] = ()  # what starts a command in the cgroup that it is to run in; (): in ours
    incoming: str | None = None  # it goes on from a saved state, a file; AWAITED: from a guest that moves to it
    meeting: str | None = None  # a directory in which guests that move, and those that wait for them, meet
    lasting: Lasting | None = None  # None: it ends with the program that boots it

    @property
    def layer_devices(self) -> tuple[str, ...]:
        """What the guest calls its layers: virtio disks, behind all others."""
        return self._image_devices[: len(self.layers)]

    @property
    def pack_devices(self) -> tuple[str, ...]:
        """What the guest calls its packs: virtio disks, behind its layers."""
        return self._image_devices[len(self.layers) :]

    @property
    def _image_devices(self) -> tuple[str, ...]:
        first = 1 + sum(disk.settings.bus not in DATA_DEVICES for disk in self.disks)
        return tuple(_virtio_disk(first + number) for number in range(len((*self.layers, *self.packs))))

    def device(self, name: str = DATA_ID) -> str | None:
        """What the guest calls that disk where it is a virtio disk, or the only one of its kind; None: it has none.

        Two SATA disks may change places: Linux looks at them at the same time. `BY_SERIAL` distinguishes them.
        """
        virtio = 1  # the root image is the first
        for disk in self.disks:
            if disk.name == name:
                return DATA_DEVICES.get(disk.settings.bus) or _virtio_disk(virtio)
            virtio += disk.settings.bus not in DATA_DEVICES
        return None


def _virtio_disk(number: int) -> str:
    """Linux's name of a virtio disk; they are found in the order of the command line, the root first, which is 0."""
    return f"/dev/vd{ascii_lowercase[number]}"


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a guest's hypervisor."""

    id: int  # on the parent
    vcpu: int | None  # the guest's CPU that it runs, from 0; None: none
    cpus: str  # of the parent, on which it may run, as the kernel lists them: "0-3,8"


class Guest(Protocol):
    """A running guest."""

    path: str
    spec: GuestSpec
    argv: tuple[str, ...]  # what started its hypervisor
    process: Process  # its hypervisor
    console: Console
    ports: dict[int, int]  # guest TCP port -> port on the parent's loopback
    machine: SshMachine
    ready_seconds: float  # from launch to the first answered command
    kernel_seconds: float  # the kernel's share of it
    warnings: list[str]
    obtained: dict[str, float]  # what it really got, as far as that was read: Boot.obtained

    def cause_of_death(self) -> str | None:
        """Why it does not run: the hypervisor's last word, or why it was paused; None while it runs."""
        ...

    def is_paused(self) -> bool:
        """Whether its hypervisor has paused it because one of its disks is full or failed."""
        ...

    def go_on(self) -> None:
        """After a pause; raises CannotDo."""
        ...

    def memory_readings(self, parent: Machine) -> dict[str, float]:
        """What its memory really lies in, by `parent`, the machine that it runs on; what cannot be read is left out."""
        ...

    def counters(self) -> dict[str, float]:
        """What KVM has counted for it since its start, all vCPUs together, in base units; {} if it is emulated.

        With the factor guest.exit_trace also `reason.cpuid` and the like: exits by their reason, since it was up.
        """
        ...

    def threads(self, parent: Machine) -> tuple[Thread, ...]:
        """Those of its hypervisor, by `parent`, the machine that it runs on; () if they cannot be read.

        Raises CannotDo if the hypervisor does not answer.
        """
        ...

    def move_to(self, destination: Self, how: Move, arrived: Callable[[], None] = lambda: None) -> Moved:
        """Go on there while it runs: it leads to what waited there from then on, and what ran it is ended.

        `destination`: booted like it, with `incoming` AWAITED
        `arrived`: called when the guest runs there, before what ran it is ended
        Raises MoveFailed, after which it runs on if it was, unless the text says that it is lost.
        """
        ...

    def plug(self, device: Passed) -> None:
        """Give it a device of its parent, for which its card stands by. Raises CannotDo."""
        ...

    def leave(self) -> None:
        """It outlives the context in which it was booted; only where it is `lasting`."""
        ...

    def kill(self, parent: Machine) -> None:
        """End its hypervisor at once, which writes nothing more. `parent`: the machine that it runs on.

        Raises CannotDo if it goes on.
        """
        ...

    def shut_down(self) -> float | None:
        """Orderly end; the seconds until it was gone. None if it had to be forced, as a warning says."""
        ...


class Hypervisor(Protocol):
    """A hypervisor as it is on one machine."""

    @property
    def version(self) -> str: ...
    @property
    def described(self) -> str:
        """Its own words about what it is, one line."""
        ...

    @property
    def identity(self) -> tuple[str, ...]:
        """Tells it from every other one of its machine."""
        ...

    @property
    def doubt(self) -> str:
        """Why it is less confined than it could be, as sentences; empty: it is not."""
        ...

    @classmethod
    def probe(cls, machine: Reader, program: str | None = None) -> Self:
        """The machine's own, or `program`; raises CannotDo if there is none, or one too old."""
        ...

    def can(self, spec: GuestSpec) -> str | None:
        """Why it cannot have such a guest, in one line; None if it can."""
        ...

    def describe(self, spec: GuestSpec) -> str:
        """The command line that runs such a guest, as text."""
        ...

    def boot(
        self,
        parent: Machine,
        spec: GuestSpec,
        credentials: Credentials,
        local: LocalMachine,
        patience: Patience,
        attach: Callable[[], None] | None,
    ) -> AbstractContextManager[Guest]:
        """See `boot`."""
        ...


def boot(
    parent: Machine,
    spec: GuestSpec,
    credentials: Credentials,
    local: LocalMachine,
    *,
    patience: Patience | None = None,
    attach: Callable[[], None] | None = None,
) -> AbstractContextManager[Guest]:
    """Boot `spec` on `parent`; ends the guest at exit, whatever happened. Raises BootFailed or MachineError.

    `attach` is called when the hypervisor runs and holds its taps.
    """
    if reason := spec.hypervisor.can(spec):
        raise BootFailed(f"{parent.path}/{spec.name}: {reason}")
    return spec.hypervisor.boot(parent, spec, credentials, local, patience or Patience(), attach)
