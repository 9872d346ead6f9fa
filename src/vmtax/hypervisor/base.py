"""The interface of hypervisors: the specification of a guest, its boot, and the running guest."""

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
from vmtax.design.disk import During
from vmtax.design.guest import GuestSettings
from vmtax.hypervisor.console import Console
from vmtax.hypervisor.copying import DiskCopy
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.move import Move
from vmtax.hypervisor.spec import DATA_DEVICES, DATA_ID, Card, Drive, Passed, SharedDirectory
from vmtax.machine import Machine, Process, Reader
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine


class BootFailed(CannotDo):
    """A guest did not come up; the text contains its hypervisor's message and the last console lines."""

    def __init__(self, text: str, *, qemu_died: bool = False, silent: bool = False) -> None:
        super().__init__(text)
        self.qemu_died = qemu_died  # a signal ended QEMU, so the guest is not the cause
        self.silent = silent  # the console printed nothing for too long


@dataclass(frozen=True, slots=True)
class BootPatience:
    """How long to wait, in seconds."""

    ready: float = 120.0  # from launch to sshd
    silence: float | None = None  # without output on a talkative console, before the guest counts as hung


AWAITED = "defer"  # the value in QEMU's syntax


@dataclass(frozen=True, slots=True)
class Lasting:
    """Where to find a guest that outlives the program which boots it; only on the machine of that program."""

    runtime: PurePosixPath  # a directory that is created for it
    console: PurePosixPath  # a file in an existing directory
    log: PurePosixPath  # standard error of the hypervisor

    @property
    def socket(self) -> PurePosixPath:
        """Socket for the hypervisor's commands."""
        return self.runtime / "qmp"

    @property
    def pid_file(self) -> PurePosixPath:
        """Holds the process id of the hypervisor itself, not of the program that started it."""
        return self.runtime / "pid"


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """Everything that determines how a guest runs. Paths are the parent's."""

    name: str  # last part of its path, "vm"; different for guests of one parent that run at once
    vcpus: int
    memory_bytes: int
    accelerator: Literal["kvm", "tcg"]
    hypervisor: Hypervisor  # a hypervisor on the parent
    kernel: str
    initrd: str  # initramfs without credentials
    root: str  # the read-only root image, file or block device
    disks: tuple[Drive, ...] = ()
    shares: tuple[SharedDirectory, ...] = ()  # one at most
    cards: tuple[Card, ...] = ()  # besides the card for management: eth1 and so on
    layers: tuple[str, ...] = ()  # erofs files or devices, laid over the root; later ones are on top
    packs: tuple[str, ...] = ()  # erofs files or devices, which the guest gets as additional disks
    settings: GuestSettings = guest.DEFAULT
    kernel_words: tuple[str, ...] = ()  # added to its kernel's command line
    iommu: bool = False  # the guest can pass its own devices on to guests
    carries: bool = False  # the guest runs guests itself
    preallocated: bool = False  # all of its memory is allocated at its start
    talkative: bool = False  # the kernel prints its progress on the console; for the KVM probe
    within: tuple[str, ...] = ()  # command prefix that enters the cgroup for it; (): it runs in ours
    incoming: str | None = None  # file with a saved state from which it continues; AWAITED: the guest migrates to it
    meeting: str | None = None  # directory for the sockets of migrations
    lasting: Lasting | None = None  # None: it ends with the program that boots it

    @property
    def layer_devices(self) -> tuple[str, ...]:
        """The guest's names of its layers: virtio disks after all others."""
        return self._image_devices[: len(self.layers)]

    @property
    def pack_devices(self) -> tuple[str, ...]:
        """The guest's names of its packs: virtio disks after its layers."""
        return self._image_devices[len(self.layers) :]

    @property
    def _image_devices(self) -> tuple[str, ...]:
        first = 1 + sum(disk.settings.bus not in DATA_DEVICES for disk in self.disks)
        return tuple(_virtio_disk(first + number) for number in range(len((*self.layers, *self.packs))))

    def device(self, name: str = DATA_ID) -> str | None:
        """The guest's name of that disk if it is a virtio disk, or the only one of its kind; None: it has none.

        Two SATA disks may swap names, because Linux probes them at the same time. `BY_SERIAL` distinguishes them.
        """
        virtio = 1  # the root image is the first virtio disk
        for disk in self.disks:
            if disk.name == name:
                return DATA_DEVICES.get(disk.settings.bus) or _virtio_disk(virtio)
            virtio += disk.settings.bus not in DATA_DEVICES
        return None


def _virtio_disk(number: int) -> str:
    """Linux's name of a virtio disk; they are numbered in the order of the command line, the root being 0."""
    return f"/dev/vd{ascii_lowercase[number]}"


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a guest's hypervisor."""

    id: int  # on the parent
    vcpu: int | None  # the guest's CPU that it runs, from 0; None: it runs none
    cpus: str  # CPUs of the parent on which it may run, in the kernel's notation: "0-3,8"


class Guest(Protocol):
    """A running guest."""

    path: str
    spec: GuestSpec
    argv: tuple[str, ...]  # command line of its hypervisor
    process: Process  # its hypervisor
    console: Console
    ports: dict[int, int]  # guest TCP port -> port on the parent's loopback
    machine: SshMachine
    ready_seconds: float  # from launch to the first answered command
    kernel_seconds: float  # the kernel's share of it
    warnings: list[str]
    obtained: dict[str, float]  # what it really got, as far as that was read: Boot.obtained

    def cause_of_death(self) -> str | None:
        """Why it no longer runs: the hypervisor's last message, or why it was paused; None while it runs."""
        ...

    def is_paused(self) -> bool:
        """Whether its hypervisor has paused it because one of its disks is full or failed."""
        ...

    def go_on(self) -> None:
        """Resume it after a pause. Raises CannotDo."""
        ...

    def memory_readings(self, parent: Machine) -> dict[str, float]:
        """How its memory is really backed, read on `parent`, the machine that it runs on; unreadable values are left
        out.
        """
        ...

    def sample(self, on: bool) -> str:
        """Sample from now on where its vCPUs are, or no longer.

        Returns why that is impossible; "" if it is not, and for a guest that is emulated or outlives us.
        """
        ...

    def counters(self) -> dict[str, float]:
        """What KVM has counted for it since its start, summed over vCPUs, in base units; {} if it is emulated.

        With the factor guest.exit_trace also `reason.cpuid` and the like: exits by reason, since it was up. With
        guest.cycles `cycles.guest` and `cycles.host`: cycles of its hypervisor's threads in guest code and elsewhere.
        If its vCPUs can be sampled, `samples.guest`, `samples.kernel` and `samples.user`: where they were while they
        were sampled.
        """
        ...

    def threads(self, parent: Machine) -> tuple[Thread, ...]:
        """Threads of its hypervisor, read on `parent`, the machine that it runs on; () if they cannot be read.

        Raises CannotDo if the hypervisor does not answer.
        """
        ...

    def move_to(self, destination: Self, how: Move, arrived: Callable[[], None] = lambda: None) -> Moved:
        """Migrate it while it runs; this object then refers to the guest at the destination, and the source is ended.

        `destination`: booted like it, with `incoming` AWAITED
        `arrived`: called when the guest runs there, before the source is ended
        Raises MoveFailed, after which it still runs on the source, unless the text says that it is lost.
        """
        ...

    def plug(self, device: Passed) -> None:
        """Plug a device of its parent for which its card stands by. Raises CannotDo."""
        ...

    def balloon_to(self, size: int) -> None:
        """Ask its balloon to leave it `size` bytes of memory, which takes a while. Raises CannotDo."""
        ...

    def ballooned(self) -> int:
        """The bytes of memory that its balloon leaves it now. Raises CannotDo."""
        ...

    def copying(self, disk: str, what: During) -> DiskCopy:
        """A snapshot or backup of the disk of that name, which has a spare file."""
        ...

    def leave(self) -> None:
        """Let it outlive the context in which it was booted; only if it is `lasting`."""
        ...

    def kill(self, parent: Machine) -> None:
        """End its hypervisor at once, without any further write. `parent`: the machine that it runs on.

        Raises CannotDo if it does not end.
        """
        ...

    def shut_down(self) -> float | None:
        """Shut it down; returns the seconds until it was gone. None if it had to be forced, which a warning reports."""
        ...


class Hypervisor(Protocol):
    """A hypervisor as installed on one machine."""

    @property
    def version(self) -> str: ...
    @property
    def described(self) -> str:
        """Its own description of itself, in one line."""
        ...

    @property
    def identity(self) -> tuple[str, ...]:
        """Distinguishes it from every other hypervisor of its machine."""
        ...

    @property
    def doubt(self) -> str:
        """Why it is less confined than it could be, as sentences; empty: it is fully confined."""
        ...

    @classmethod
    def probe(cls, machine: Reader, program: str | None = None) -> Self:
        """The machine's own hypervisor, or `program`. Raises CannotDo if it is missing or too old."""
        ...

    def can(self, spec: GuestSpec) -> str | None:
        """Why it cannot run such a guest, in one line; None if it can."""
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
        patience: BootPatience,
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
    patience: BootPatience | None = None,
    attach: Callable[[], None] | None = None,
) -> AbstractContextManager[Guest]:
    """Boot `spec` on `parent`; at exit the guest is ended in any case. Raises BootFailed or MachineError.

    `attach` is called when the hypervisor runs and holds its taps.
    """
    if reason := spec.hypervisor.can(spec):
        raise BootFailed(f"{parent.path}/{spec.name}: {reason}")
    return spec.hypervisor.boot(parent, spec, credentials, local, patience or BootPatience(), attach)
