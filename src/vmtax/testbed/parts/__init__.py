"""What a run needs of a host: one file for each thing, with everything about it."""

from __future__ import annotations

import contextlib

from vmtax.core.records import Treatment
from vmtax.testbed.parts.arrival import Arrival
from vmtax.testbed.parts.balloon import Balloon
from vmtax.testbed.parts.containers import Containers
from vmtax.testbed.parts.copying import CopyingPart
from vmtax.testbed.parts.counting import Counting
from vmtax.testbed.parts.cutting import CuttingPart, PowerCuts
from vmtax.testbed.parts.directory import DirectoryPart
from vmtax.testbed.parts.disks import DiskPart, PageCache
from vmtax.testbed.parts.enlightenments import Enlightened
from vmtax.testbed.parts.equal import EqualCpus
from vmtax.testbed.parts.governor import Governor
from vmtax.testbed.parts.isolation import Isolation
from vmtax.testbed.parts.migration import MigrationPart
from vmtax.testbed.parts.network import NetworkPart
from vmtax.testbed.parts.node_pages import NodePages
from vmtax.testbed.parts.numa import NumaMemory
from vmtax.testbed.parts.outer import OuterCpus
from vmtax.testbed.parts.overcommit import Overcommit
from vmtax.testbed.parts.pages import Pages
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.parts.pinning import Pinning
from vmtax.testbed.parts.polling import Polling
from vmtax.testbed.parts.processors import Processors
from vmtax.testbed.parts.serving import ServingPart
from vmtax.testbed.parts.sharing import SharingPart
from vmtax.testbed.parts.siblings import Siblings
from vmtax.testbed.parts.snapshots import SnapshotPart
from vmtax.testbed.subjects.provisioned import Provisioned

__all__ = ["GUEST_PARTS", "PARTS", "Order", "Part", "Request", "announced", "hold", "lacking", "notes", "shape", "take"]

# What depends on the QEMU and the accelerator of the guests, the other parts on the host alone.
GUEST_PARTS: tuple[Part, ...] = (Counting(), Polling(), Processors(), Enlightened())
# In the order of set-up. If several parts lack something for a treatment, the last one says why.
PARTS: tuple[Part, ...] = (
    Arrival(),
    Containers(),
    Pages(),
    EqualCpus(),
    OuterCpus(),
    NumaMemory(),
    NodePages(),
    Balloon(),
    Pinning(),
    Siblings(),
    Isolation(),
    Governor(),
    Overcommit(),
    NetworkPart(),
    DiskPart(),
    SnapshotPart(),
    CopyingPart(),
    ServingPart(),
    SharingPart(),
    DirectoryPart(),
    PageCache(),
    MigrationPart(),
    CuttingPart(),
    PowerCuts(),
    *GUEST_PARTS,
)


def lacking(request: Request, parts: tuple[Part, ...] = PARTS) -> dict[str, str]:
    """Treatments that cannot be measured there -> why. Only reads the host. Raises QemuError."""
    impossible: dict[str, str] = {}
    for part in parts:
        impossible |= part.lacking(request)
    return impossible


def announced(request: Request) -> list[str]:
    """What will be taken of the host, a line each, for the person who is asked. Raises CannotDo."""
    return [line for part in PARTS for line in part.announced(request)]


def take(request: Request) -> dict[str, str]:
    """Set up on the host what lasts for the run; treatments for which it has too little -> why. Raises MachineError."""
    impossible: dict[str, str] = {}
    for part in PARTS:
        impossible |= part.take(request.without(impossible))
    return impossible


def notes(request: Request) -> list[str]:
    """What a reader of the results must know, a line each. Raises MachineError and CannotDo."""
    return [note for part in PARTS for note in part.notes(request)]


def hold(on: Provisioned, treatment: Treatment, stack: contextlib.ExitStack) -> None:
    """Set up on the host what lasts as long as the machines of that treatment. Raises MachineError."""
    for part in PARTS:
        part.hold(on, treatment, stack)


def shape(on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
    """The order with what all parts need of that guest. `stack` undoes it. Raises StorageError and MachineError."""
    for part in PARTS:
        order = part.shape(on, treatment, order, stack)
    return order
