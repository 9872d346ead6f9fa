"""What entering a VM of the user's takes of whoever runs it: libvirt or Proxmox VE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, Protocol

from vmtax.core.machines import Machine, Undoing

Bus = Literal["virtio", "scsi"]
PORT, IMAGE, CONTROLLER, WAY, DATA = "port", "image", "controller", "way", "data"  # what is plugged in, or started
# Of a disk, as libvirt names them: cache, io, discard, detect_zeroes.
Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What came back for a command."""

    text: str  # JSON; "" if the agent gave none
    words: str = ""  # what is wrong, as the agent says it, or who asks it; "" if nothing is
    is_silent: bool = False  # it did not answer


class Agent(Protocol):
    """The agent of a VM."""

    @property
    def name(self) -> str:
        """Of the VM, as the user names it."""
        ...

    def answer(self, request: str) -> AgentAnswer:
        """To a command in JSON."""
        ...


class Pluggable(Protocol):
    """A running VM, into which a port and disks of ours are plugged, and out of which they are taken again.

    Whatever is plugged in is listed in its host's guard before. What fails raises DomainError.
    """

    @property
    def host(self) -> Machine:
        """On which it runs."""
        ...

    @property
    def name(self) -> str:
        """As the user names it: "libvirt:web1"."""
        ...

    @property
    def uuid(self) -> str:
        """By which it is known again; "" if it has none."""
        ...

    @property
    def vcpus(self) -> int: ...

    @property
    def memory(self) -> int:
        """Bytes that it has now."""
        ...

    @property
    def announced(self) -> str:
        """What is done to it, for the person who is asked."""
        ...

    @property
    def agent(self) -> Agent: ...

    @property
    def asked(self) -> str:
        """What commands to its agent do to it, and what is not known of them, for the same person."""
        ...

    @property
    def is_windows(self) -> bool:
        """Then nothing is plugged in: commands and files go by its agent."""
        ...

    @property
    def qemu(self) -> int | None:
        """The process of its QEMU, on its host; None: not known."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about it."""
        ...

    def serial(self, what: str) -> str:
        """By which the guest finds what is plugged in, or what was started."""
        ...

    def remember(self) -> None:
        """Read its definition and devices, with which they are compared when the run leaves it."""
        ...

    def later(self, undoing: Undoing) -> None:
        """Undo that when the run leaves it, the last one first."""
        ...

    def removal_of(self, file: str) -> Undoing:
        """List the removal of a file that is about to be plugged in, unless the VM was saved with it."""
        ...

    def plug_port(self) -> None:
        """Plug the port in."""
        ...

    def socket(self) -> PurePosixPath:
        """Of the port, on the host."""
        ...

    def plug_image(self, file: str) -> tuple[Bus, str]:
        """Plug the image in; returns the bus for further disks, and a note if that is not the one of its own disk."""
        ...

    def plug_data(self, file: str, bus: Bus, named: Settings) -> Undoing:
        """Plug a disk in that has the settings of its own first disk but for the named ones; returns its removal."""
        ...

    def settings(self) -> dict[str, str]:
        """The bus and the settings of its own first disk."""
        ...

    def start(self, argv: Sequence[str], given: str = "") -> int:
        """Have its agent start a program, with `given` as standard input; returns its process id there.

        Raises AgentRefused. Nothing that it prints is fetched.
        """
        ...

    def ended(self, pid: int) -> int | None:
        """The exit status of a program that the agent started, which can be read once; None while it runs. 128 and
        more: a signal ended it. Raises AgentRefused.
        """
        ...

    def ends_later(self, argv: Sequence[str]) -> Undoing:
        """List that the agent runs this, if it answers, when the run leaves it; waits for its end then."""
        ...

    def leave(self) -> dict[str, object]:
        """Undo everything, and compare it with what it was. Raises MachineError."""
        ...
