"""Boot a clone, and enter it if its guest is one that is entered."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.attach import agent
from vmtax.attach.clone.definition import TPM
from vmtax.attach.clone.edit import CloneDisk, CloneParts, Overlay, edited
from vmtax.attach.clone.guests import ClonedGuest
from vmtax.attach.clone.point import ClonePoint
from vmtax.attach.domain import SECONDS, VIRSH, WINDOWS, Domain, DomainError, script, words_of_virsh
from vmtax.attach.pluggable import DATA, IMAGE, PORT
from vmtax.core.machines import Machine
from vmtax.machine.local import LocalMachine

BOOT_SECONDS, EMULATED_BOOT_SECONDS = 300.0, 900.0  # until its agent answers
WINDOWS_BOOT_SECONDS = 900.0  # it may check its disks, or finish an update, at each boot of the same point
LOGS = PurePosixPath("/var/log/libvirt/qemu")  # where libvirt leaves a log of each domain
# Of a clone without its TPM that does not come up.
LOCKED = (
    "; its TPM was left out: if a key in it locks the disk, it waits for the recovery key: in that Windows, before the"
    " run: manage-bde -protectors -disable C:"
)
LAST_LINES = 3  # of its console, for a boot that failed


@dataclass(frozen=True, slots=True)
class Cloned:
    """A clone that runs."""

    domain: Domain
    machine: Machine | None  # None: it is not entered
    device: str | None  # the disk under test in it; None: it has none
    ready_seconds: float  # from its start until it was entered, or its agent answered
    restless: str = ""  # what it still did by itself when it was waited for no longer; "": nothing that is known


@contextlib.contextmanager
def booted(
    point: ClonePoint,
    path: str,
    local: LocalMachine,
    guest: ClonedGuest,
    levels: Mapping[str, str],
    data: CloneDisk | None,
) -> Iterator[Cloned]:
    """A clone with these levels and that disk under test, until it is left. The guard of its host ends it, too.

    Raises DomainError, AgentRefused, MachineLost and CommandFailed.
    """
    host, name = point.domain.host, local.fresh_name("clone")
    clone = Domain(host, name, str(uuid.uuid4()), point.domain.uri, point.domain.vcpus, point.domain.memory)
    directory = point.directory / name
    removing = [host.remove_later(directory), host.remove_later(LOGS / f"{name}.log")]
    destroying = host.undo_later(*script("clone/destroy"), clone.uri, clone.uuid)
    try:
        host.run("mkdir", "-m", "711", str(directory))
        parts = _make(point, clone, directory, guest, data)
        text = directory / "clone.xml"
        host.run("tee", str(text), input=edited(point.definition, parts, levels))
        began = time.monotonic()
        said = host.try_run(*VIRSH, "create", str(text), timeout=SECONDS)
        if not said.ok:
            raise DomainError(f"a clone of {point.name}: {words_of_virsh(said)}")
        _await_agent(point, clone, parts)
        machine = guest.enter(clone, path, local, point.name)
        ready, device = time.monotonic() - began, None
        try:
            if machine is not None and data is not None:
                device = guest.find(machine, parts.data_serial, data.size, point.name)
            restless = guest.settle(clone)  # also after what was asked there
            yield Cloned(clone, machine, device, ready, restless)
        finally:
            if machine is not None:
                machine.close()
    finally:
        destroying.undo()
        for each in removing:
            each.undo()


def _make(
    point: ClonePoint, clone: Domain, directory: PurePosixPath, guest: ClonedGuest, data: CloneDisk | None
) -> CloneParts:
    """The files of a clone, in a directory of its own."""
    host = clone.host
    overlays = {}
    for target, export in point.exports.items():
        file = str(directory / target)
        base = f"nbd+unix:///{export.name}?socket={export.socket}"
        words = ("-q", "-u", "-f", "qcow2", "-F", "raw", "-b", base, file, str(export.size))  # the base is not opened
        host.run("qemu-img", "create", *words)
        overlays[target] = Overlay(file, export.name, export.socket)
    copies = {file: str(directory / f"file{number}") for number, file in enumerate(point.definition.files)}
    for file, copied in copies.items():  # libvirt gives what a guest boots from to the user of its QEMU
        host.run("cp", "--", file, copied)
    brought = guest.bring(host, directory)
    return CloneParts(
        name=clone.name,
        uuid=clone.uuid,
        overlays=overlays,
        copies=copies,
        image=brought.image,
        image_serial=clone.serial(IMAGE),
        port=clone.serial(PORT),
        console=str(directory / "console"),
        data=data,
        data_serial=clone.serial(DATA),
        disc=brought.disc,
    )


def _await_agent(point: ClonePoint, clone: Domain, parts: CloneParts) -> None:
    """Wait until the clone's agent answers. Raises DomainError."""
    seconds = EMULATED_BOOT_SECONDS if point.definition.is_emulated else BOOT_SECONDS
    if WINDOWS.search(point.definition.text):
        seconds = max(seconds, WINDOWS_BOOT_SECONDS)
    limit = time.monotonic() + seconds
    ping = ("qemu-agent-command", "--timeout", "5", "--cmd", agent.command("guest-ping", {}))
    while not clone.ask(*ping).ok:
        state = clone.ask("domstate")
        if not state.ok or time.monotonic() > limit:
            lines = clone.host.try_run("tail", "-c", "2000", parts.console).stdout.splitlines()
            last = " | ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:]) or "nothing"
            what = "ended by itself" if not state.ok else f"had no guest agent that answered within {seconds:.0f} s"
            hint = "" if not state.ok else ": qemu-guest-agent must be installed in the VM"
            hint += LOCKED if TPM in point.definition.left_out else ""
            raise DomainError(f"a clone of {point.name} {what}{hint}; its console said: {last}")
        time.sleep(1.0)
