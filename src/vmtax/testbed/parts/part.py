"""The interface of a part: one thing that a run needs of a host, such as huge pages or pinned CPUs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmtax.core.records import Treatment
from vmtax.hypervisor import Drive, Guest, GuestSpec, Qemu
from vmtax.machine import Machine
from vmtax.plan.schema import Plan
from vmtax.testbed.session.session import Wire
from vmtax.testbed.subjects.cards import Plug
from vmtax.testbed.subjects.provisioned import Provisioned

EMULATED = "needs KVM, and the guests here are emulated"  # after a level that only KVM has


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured on one host, as far as parts must know it."""

    host: Machine
    plan: Plan
    treatments: Sequence[Treatment]
    qemu: Qemu | None = None  # that runs the guests; None: there are no guests, or another QEMU may be chosen
    accelerator: Literal["kvm", "tcg"] | None = None  # of the guests; None: there are no guests, or it is not known yet
    card: str | None = None  # the network card of the host that the user named
    wire: Wire | None = None  # the link that carries the network under test; None: a network of our own
    cuts_power: bool = False  # the host's own power is cut
    destination: Machine | None = None  # another host, to which guests are migrated
    far_card: str = ""  # the card of that host that the run takes

    @property
    def guests(self) -> list[Treatment]:
        """The treatments that are measured in VMs of the host; nested guests do not count."""
        return [treatment for treatment in self.treatments if treatment.layer == "vm"]

    def without(self, left_out: Mapping[str, str]) -> Request:
        """The same without these treatments."""
        return replace(self, treatments=[each for each in self.treatments if each.name not in left_out])


@dataclass(frozen=True, slots=True)
class Order:
    """A guest to boot."""

    parent: Machine
    spec: GuestSpec
    plug: Plug | None = None  # its card on the network under test; None: it has none
    number: int = 1  # of the guest among those that run at once
    count: int = 1  # of guests that run at once
    # Called once all guests run, before anything is measured; what they return, except None, the guest offers to
    # workloads and activities. Raise BootFailed and MachineError.
    up: tuple[Callable[[Guest], object], ...] = ()

    def with_disks(self, *drives: Drive) -> Order:
        return replace(self, spec=replace(self.spec, disks=(*self.spec.disks, *drives)))

    def then(self, act: Callable[[Guest], object]) -> Order:
        """The same order, with that to be done when its guest runs."""
        return replace(self, up=(*self.up, act))

    def offers(self, guest: Guest) -> tuple[object, ...]:
        """Do what is to be done now that its guest runs."""
        return tuple(offer for act in self.up if (offer := act(guest)) is not None)


class Part:
    """Everything about one thing that a run needs of a host. A part that has nothing to do in a phase inherits it."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        """Treatments that cannot be measured there -> why. Only reads the host. Raises QemuError."""
        return {}

    def announced(self, request: Request) -> Sequence[str]:
        """What `take` will take of the host, a line each, for the person who is asked. Only reads. Raises CannotDo."""
        return ()

    def take(self, request: Request) -> Mapping[str, str]:
        """Set up what lasts for the run, listing its undo first; treatments for which the host has too little -> why.

        Raises MachineError.
        """
        return {}

    def notes(self, request: Request) -> Sequence[str]:
        """What a reader of the results must know of it, a line each. Raises MachineError and CannotDo."""
        return ()

    def hold(self, on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack) -> None:
        """Set up on the host what lasts as long as the machines of a treatment of any layer; `stack` undoes it.

        Raises MachineError.
        """

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        """What a guest of that treatment needs of it, in the guest itself or on its host until `stack` undoes it.

        Raises StorageError and MachineError.
        """
        return order
