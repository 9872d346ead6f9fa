"""Ways to a VM of the user's that is measured as it runs: a login of the user's, or libvirt or
Proxmox VE, which plugs one in.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Protocol

from vmtax.attach import LIBVIRT, PROXMOX, Pluggable, enter, plugged_disk, why_not
from vmtax.attach.domain import FIND_QEMU
from vmtax.core.events import Event
from vmtax.core.layers import EXISTING_PATH
from vmtax.core.machines import MachineError
from vmtax.core.records import Json
from vmtax.design.factors import FACTORS
from vmtax.image.cache import Image
from vmtax.image.place import Placed, place, place_for_run
from vmtax.machine import Machine
from vmtax.machine.answer import whole_of
from vmtax.machine.local import LocalMachine
from vmtax.meter.memory import total_memory
from vmtax.plan.schema import GuestSize
from vmtax.testbed.host.cpus import allowed_cpus

OFF = {"discard": "ignore", "detect_zeroes": "off"}  # what libvirt calls a setting that a level leaves off
PLUGGED_BY = (LIBVIRT, PROXMOX)  # what runs a VM into which devices are plugged, as its name begins
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

UNSEEN = "that it runs on {} is not verified, and the ledger does not see it: {}."


def as_libvirt(levels: Mapping[str, str]) -> dict[str, str]:
    """The levels of a disk that is plugged in, as libvirt names them."""
    options = [(FACTORS[name].options["libvirt"], level) for name, level in levels.items() if name in FACTORS]
    values = {option.name: option.of(level) for option, level in options}
    return {name: value if value is not None else OFF[name] for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Inside:
    """A VM that was entered."""

    machine: Machine
    placed: Placed  # the image in it
    # A file of its host, and settings as libvirt names them -> a device in it, for a time. None: it has its own files
    plug: Callable[[str, Mapping[str, str]], AbstractContextManager[str]] | None = None
    notes: tuple[str, ...] = ()
    uuid: str = ""  # by which its QEMU is recognised on its host; "": the VM does not say
    qemu: int | None = None  # the process of its QEMU, on its host; None: not known

    def on(self, host: Machine) -> Inside:
        """The same, with its QEMU, or with a note that says why that is not known."""
        if self.qemu is not None:
            return self
        qemu, why = find_qemu(host, self.uuid)
        notes = () if qemu else (UNSEEN.format(host.path, why),)
        return replace(self, qemu=qemu, notes=(*self.notes, *notes))


def find_qemu(host: Machine, uuid: str) -> tuple[int | None, str]:
    """The process there that runs the VM with this UUID; None if that is not known, and why. Raises MachineError."""
    if not UUID.fullmatch(uuid) or set(uuid) <= {"0", "-"}:
        return None, "it does not say its UUID, which only root reads there"
    seen = host.try_run(*FIND_QEMU, uuid).stdout.split()
    if len(seen) != 1:
        return None, "several QEMUs there have its UUID" if seen else "no QEMU there has its UUID"
    return whole_of(host, "the process id of a QEMU", seen[0], most=2**31), ""


class OwnVm(Protocol):
    """A VM of the user's."""

    @property
    def name(self) -> str:
        """As the user names the VM."""
        ...

    @property
    def path(self) -> str:
        """Of the machine that is measured, as records name it."""
        ...

    @property
    def verb(self) -> str:
        """What is done with the VM, in a word: "enter"."""
        ...

    @property
    def machine(self) -> Machine | None:
        """The VM, if it was entered when it was named; None: only after the user was asked."""
        ...

    @property
    def announced(self) -> str:
        """What is done to the VM, for the person who is asked; "": nothing."""
        ...

    @property
    def takes_root(self) -> bool:
        """Whether only root of its host can enter it."""
        ...

    @property
    def measures(self) -> tuple[str, ...] | None:
        """The workloads for which there are programs in it; None: all that a VM of the user's can measure."""
        ...

    @property
    def uuid(self) -> str:
        """By which the VM is known again; "" if it does not say."""
        ...

    def size(self) -> GuestSize:
        """Raises MachineError."""
        ...

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        """Why its disk under test cannot have these levels; None if it can. Raises CannotDo."""
        ...

    def leave(self) -> Json:
        """Undo what was done to it, and compare the VM with what it was; what is known of that, for the record.

        Raises MachineError.
        """
        ...


class Way(OwnVm, Protocol):
    """How a VM is entered as it runs."""

    def enter(self, local: LocalMachine, host: Placed, image: Image, emit: Callable[[Event], None]) -> Inside:
        """Enter it with the image. Raises CannotDo.

        host: the image on its host
        """
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """A VM to which the user can log in; the image is copied there."""

    name: str
    machine: Machine
    directory: PurePosixPath
    announced: str = ""
    path: str = EXISTING_PATH
    verb: str = "enter"
    takes_root: bool = False
    measures: None = None

    @property
    def uuid(self) -> str:
        return self.machine.try_run("cat", "/sys/class/dmi/id/product_uuid").stdout.strip().lower()

    def size(self) -> GuestSize:
        memory = total_memory(self.machine)
        if memory is None:
            raise MachineError(f"{self.name}: its memory cannot be read from /proc/meminfo")
        return GuestSize(vcpus=len(allowed_cpus(self.machine)), memory=memory)

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        return None  # it has no levels

    def enter(self, local: LocalMachine, host: Placed, image: Image, emit: Callable[[Event], None]) -> Inside:
        placed = place_for_run(self.machine, local, image, self.directory, emit)
        return Inside(self.machine, placed if placed.tree == "/" else placed.with_own_bubblewrap, uuid=self.uuid)

    def leave(self) -> Json:
        """Nothing is known of its definition; its guard undoes what was copied there."""
        return {}


@dataclass(frozen=True, slots=True)
class RunByHost:
    """A VM that libvirt or Proxmox VE runs on the host under test: what these know of it."""

    vm: Pluggable

    @property
    def name(self) -> str:
        return self.vm.name

    @property
    def uuid(self) -> str:
        return self.vm.uuid

    def size(self) -> GuestSize:
        return GuestSize(vcpus=self.vm.vcpus, memory=self.vm.memory)

    def leave(self) -> Json:
        return self.vm.leave()


@dataclass(frozen=True, slots=True)
class Plugged(RunByHost):
    """Nothing in it is used but its agent, once."""

    directory: PurePosixPath  # on its host
    machine: None = None
    path: str = EXISTING_PATH
    verb: str = "enter"
    takes_root: bool = True
    measures: None = None

    @property
    def announced(self) -> str:
        return self.vm.announced

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        return why_not(self.vm.settings(), as_libvirt(levels))

    def enter(self, local: LocalMachine, host: Placed, image: Image, emit: Callable[[Event], None]) -> Inside:
        inside = enter(self.vm, EXISTING_PATH, local, host, self.directory)
        placed = place(inside.machine, local, image, emit)
        plug = functools.partial(plugged_disk, inside)
        return Inside(inside.machine, placed, plug, inside.notes, self.uuid, self.vm.qemu)
