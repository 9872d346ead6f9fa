"""Boot a clone, and enter it."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.attach import agent
from vmtax.attach.agent import PATIENCE
from vmtax.attach.clone.definition import TPM
from vmtax.attach.clone.edit import CloneDisk, CloneParts, Overlay, edited
from vmtax.attach.clone.point import ClonePoint
from vmtax.attach.domain import SECONDS, VIRSH, WINDOWS, Domain, DomainError, script, words_of_virsh
from vmtax.attach.entry import log_in, put_image
from vmtax.attach.libvirt import LibvirtVm
from vmtax.attach.pluggable import DATA, IMAGE, PORT
from vmtax.attach.scratch import FIND
from vmtax.image.place import Placed
from vmtax.machine.answer import words_of
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine

BOOT_SECONDS, EMULATED_BOOT_SECONDS = 300.0, 900.0  # until its agent answers
WINDOWS_BOOT_SECONDS = 900.0  # it may check its disks, or finish an update, at each boot of the same point
LOGS = PurePosixPath("/var/log/libvirt/qemu")  # where libvirt leaves a log of each domain
SERVICES_SECONDS = 120  # until all of its services have started
# Ends when systemd has started everything, at once where there is none. Argument: the most seconds. Constant text.
STARTED = 'command -v systemctl > /dev/null && timeout "$1" systemctl is-system-running --wait; exit 0'
QUIET_SECONDS = 300.0  # in which a Windows that was booted works by itself, and does not say until when
# Of a clone without its TPM that does not come up.
LOCKED = (
    "; its TPM was left out: if a key in it locks the disk, it waits for the recovery key: in that Windows, before the"
    " run: manage-bde -protectors -disable C:"
)
LAST_LINES = 3  # of its console, for a boot that failed


@dataclass(frozen=True, slots=True)
class Cloned:
    """A clone that was entered."""

    domain: Domain
    machine: SshMachine | None  # None: it is only watched
    device: str | None  # the disk under test in it; None: it has none
    ready_seconds: float  # from its start to the login


@contextlib.contextmanager
def booted(
    point: ClonePoint,
    path: str,
    local: LocalMachine,
    image: Placed | None,
    levels: Mapping[str, str],
    data: CloneDisk | None,
) -> Iterator[Cloned]:
    """A clone with these levels and that disk under test, until it is left. The guard of its host ends it, too.

    image: by which it is entered; None: it is only watched

    Raises DomainError, AgentRefused, MachineLost and CommandFailed.
    """
    host, name = point.domain.host, local.fresh_name("clone")
    clone = Domain(host, name, str(uuid.uuid4()), point.domain.uri, point.domain.vcpus, point.domain.memory)
    directory = point.directory / name
    removing = [host.remove_later(directory), host.remove_later(LOGS / f"{name}.log")]
    destroying = host.undo_later(*script("clone/destroy"), clone.uri, clone.uuid)
    try:
        host.run("mkdir", "-m", "711", str(directory))
        parts = _make(point, clone, directory, image, data)
        text = directory / "clone.xml"
        host.run("tee", str(text), input=edited(point.definition, parts, levels))
        began = time.monotonic()
        said = host.try_run(*VIRSH, "create", str(text), timeout=SECONDS)
        if not said.ok:
            raise DomainError(f"a clone of {point.name}: {words_of_virsh(said)}")
        _await_agent(point, clone, parts)
        if image is None:
            ready = time.monotonic() - began
            _await_quiet(clone)
            yield Cloned(clone, None, None, ready)
            return
        _await_services(clone)
        machine = log_in(LibvirtVm(clone), path, local)
        ready = time.monotonic() - began
        try:
            device = None
            if data is not None:
                found = machine.run(*FIND, parts.data_serial)
                device = words_of(machine, "the name of the disk under test", found, 1)[0]
            yield Cloned(clone, machine, device, ready)
        finally:
            machine.close()
    finally:
        destroying.undo()
        for each in removing:
            each.undo()


def _make(
    point: ClonePoint, clone: Domain, directory: PurePosixPath, image: Placed | None, data: CloneDisk | None
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
    root, console = directory / "image", directory / "console"
    if image is not None:
        put_image(host, image, root)
    return CloneParts(
        name=clone.name,
        uuid=clone.uuid,
        overlays=overlays,
        copies=copies,
        image=str(root) if image is not None else "",
        image_serial=clone.serial(IMAGE),
        port=clone.serial(PORT),
        console=str(console),
        data=data,
        data_serial=clone.serial(DATA),
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


def _await_quiet(clone: Domain) -> None:
    """Wait until it may idle: a Linux until its services have started, a Windows for a time. Raises AgentRefused."""
    if clone.is_windows():
        time.sleep(QUIET_SECONDS)
    else:
        _await_services(clone)


def _await_services(clone: Domain) -> None:
    """Wait until the services of the clone have started, which would disturb what is measured. Raises AgentRefused."""
    limit = time.monotonic() + SERVICES_SECONDS + PATIENCE
    pid = agent.start(clone, ("/bin/sh", "-c", STARTED, "sh", str(SERVICES_SECONDS)))
    while agent.ended(clone, pid) is None and time.monotonic() < limit:
        time.sleep(0.5)
