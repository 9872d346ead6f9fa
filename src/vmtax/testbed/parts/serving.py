"""The factor `disk.server`: a server of NBD on the guest's host opens the disk, and QEMU connects to it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from vmtax.core.machines import first_line, last_words
from vmtax.core.records import Treatment
from vmtax.design.disk import DiskServer, DiskSettings
from vmtax.hypervisor import DATA_ID, FRESH_ID, Drive
from vmtax.hypervisor.confine import Reach, alone, image_program
from vmtax.machine import Machine, MachineError, Process
from vmtax.testbed.host import needs
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.subjects.provisioned import Provisioned

READY_SECONDS = 30.0
PROGRAM = "qemu-nbd"  # of the image, also where the host's own QEMU runs the guests
BESIDE = (
    "disk.server=nbd: the server is another process on the same host, and its CPU time is in that of the host; a server"
    " behind a network has its delay, too."
)


class ServingPart(Part):
    """One server for each disk of a guest under test, from before its boot until its end."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        unfit = needs.with_own_disk(request.plan)
        why = f"disk.server=nbd: the workload {unfit} needs a QEMU that has the disk itself: measure it in another plan"
        return {each.name: why for each in request.guests if unfit and is_served(each)}

    def notes(self, request: Request) -> Sequence[str]:
        return (BESIDE,) if any(map(is_served, request.guests)) else ()

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        if not is_served(treatment) or on.disks is None or not on.fills_disks:
            return order
        drives = tuple(
            replace(each, served=_serve(on, each, stack)) if each.name in (DATA_ID, FRESH_ID) else each
            for each in order.spec.disks
        )
        return replace(order, spec=replace(order.spec, disks=drives))


def is_served(treatment: Treatment) -> bool:
    """Whether QEMU gets a treatment's disk from a server."""
    return DiskSettings.of(treatment.levels).server is DiskServer.NBD


def options(drive: Drive) -> tuple[str, ...]:
    """qemu-nbd's, with which the server has the settings that QEMU would have. It serves until it is ended."""
    settings = drive.settings
    discard = ("--discard", "unmap") if settings.discard == "unmap" else ()
    how = ("--cache", settings.cache, "--aio", settings.aio, *discard)
    return ("--persistent", "--format", settings.format, *how, drive.path)


def _serve(on: Provisioned, drive: Drive, stack: contextlib.ExitStack) -> str:
    """Start the server of one disk; returns its socket. Raises MachineError if it does not serve."""
    socket = place_of_socket(on.host, f"nbd-{drive.name}", stack)
    place, disk = str(socket.parent), (drive.path,)
    reach = Reach(write=(place,), devices=disk) if drive.is_device else Reach(write=(place, *disk))
    start = image_program(on.tree, PROGRAM, reach, *alone(root=on.is_root), bubblewrap=on.placed.bubblewrap)
    process = on.host.start(*start, "--socket", str(socket), *options(drive))
    stack.callback(process.stop)
    until_it_serves(on.host, process, socket, PROGRAM)
    return str(socket)


def place_of_socket(host: Machine, name: str, stack: contextlib.ExitStack) -> PurePosixPath:
    """A socket that is still to be made, alone in a directory that no other user enters, until the stack is left."""
    place = PurePosixPath(host.run("mktemp", "-d", str(host.scratch / f"{name}-XXXXXX")).strip())
    stack.callback(host.try_run, "rm", "-rf", "--one-file-system", str(place))
    return place / "socket"


def until_it_serves(host: Machine, process: Process, socket: PurePosixPath, name: str) -> None:
    """Wait until a server, called `name`, has made its socket. Raises MachineError if it ends before, or makes none."""
    deadline = time.monotonic() + READY_SECONDS
    while not host.succeeds("test", "-S", str(socket)):
        if process.poll() is not None or time.monotonic() > deadline:
            why = first_line(last_words(process)) or "it makes no socket"
            raise MachineError(f"{host.path}: {name} does not serve: {why}")
        time.sleep(0.02)
