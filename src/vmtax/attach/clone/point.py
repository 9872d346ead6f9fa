"""A consistent point of a domain's disks, which clones are laid over, and which ends with the run."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePosixPath
from urllib.parse import quote

from vmtax.attach.agent import SILENT
from vmtax.attach.clone.backup import BackupJob
from vmtax.attach.clone.definition import Definition, OwnDisk
from vmtax.attach.domain import ANSWERS, OFF, RUNNING, Domain, DomainError, words_of_virsh
from vmtax.core.machines import Machine, Process, Undoing
from vmtax.core.units import format_room
from vmtax.machine.answer import json_or_none, sha256_of, whole_of, words_of
from vmtax.machine.local import LocalMachine
from vmtax.machine.packages import install
from vmtax.meter.text import fields

OVERLAY_BYTES = 2 * 2**30  # what a clone may write to its own disks from its boot to its end
DIGEST_BYTES = 8 * 2**30  # of larger disks, size and time of the last change are compared
SERVE_SECONDS = 20.0  # until qemu-nbd has opened an image
PROGRAMS = {"qemu-nbd": "qemu-utils", "qemu-img": "qemu-utils"}
SESSION = (
    "libvirt:{}: the connection {} is a user's own, whose QEMU could open nothing of ours: a clone takes the system's,"
    " LIBVIRT_DEFAULT_URI=qemu:///system"
)
FROZEN = (
    "libvirt:{}: its guest agent does not say which file systems it has ({}): they are frozen, as for a backup: wait"
    " until that has ended"
)
ROOM = "libvirt:{}: {} has {} free, and {} may be needed{}: name another directory with --disk-dir"
COPIES = ", because what it overwrites meanwhile is copied there first"


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image in the answer of qemu-img info."""

    filename: str


@dataclass(frozen=True, slots=True)
class ServedDisk:
    """One disk as it was at that point, served by NBD."""

    name: str
    socket: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class ClonePoint:
    """A consistent point of a domain's disks. It holds until the run leaves it, or until `why_void` says why not."""

    domain: Domain
    definition: Definition
    directory: PurePosixPath  # of this run, on the domain's host; QEMU can reach it
    is_off: bool
    exports: dict[str, ServedDisk] = field(default_factory=dict)  # by the names of the domain's disks
    servers: list[Process] = field(default_factory=list)
    disks: dict[str, str] = field(default_factory=dict)  # path -> what its contents were known by; only if it is off
    undoings: list[Undoing] = field(default_factory=list)
    mark: str = ""  # by which the backup job is known; "" if it is off

    @property
    def name(self) -> str:
        return f"libvirt:{self.domain.name}"

    def why_void(self) -> str:
        """Why clones no longer stand on that point; "" if they do. Raises MachineLost."""
        state = self.domain.ask("domstate")
        if not state.ok:
            return f"{self.name} cannot be asked any more: {words_of_virsh(state)}"
        if self.is_off:
            if (now := state.stdout.strip()) != OFF:
                return f"{self.name} was started while it was cloned (it is {now}): shut it down, and run again"
            changed = [path for path in self.disks if _stamp(self.domain.host, path) not in self.disks[path]]
            return f"{changed[0]} of {self.name} was written while it was cloned: run again" if changed else ""
        if self.mark not in self.domain.ask("backup-dumpxml").stdout:
            return f"{self.name} was stopped while it was cloned, or its backup job was (it is {state.stdout.strip()})"
        return ""

    def leave(self) -> dict[str, object]:
        """Undo everything, and compare the domain with what it was. Raises MachineError."""
        for server in self.servers:
            server.stop()
        while self.undoings:
            self.undoings.pop().undo()
        now = {path: _known_by(self.domain.host, path) for path in self.disks}
        changed = [f"disk {path}" for path, known in now.items() if known != self.disks[path]]
        return {**self.domain.leave(changed), **({"disks": now} if now else {})}


def refuse(domain: Domain, state: str, directory: PurePosixPath) -> Definition:
    """What of its definition matters. Raises DomainError if it cannot be cloned, as far as can be read."""
    host, name = domain.host, f"libvirt:{domain.name}"
    if state not in (*RUNNING, OFF):
        also = "; or shut it down" if state in ("paused", "pmsuspended") else ""
        raise DomainError(f"{name} {ANSWERS.get(state, f'is {state}').format(shlex.quote(domain.name))}{also}")
    if "/session" in domain.uri:
        raise DomainError(SESSION.format(domain.name, domain.uri.partition("?")[0]))
    for program, package in PROGRAMS.items():
        if not host.succeeds("sh", "-c", 'command -v "$1"', "sh", program):
            raise DomainError(f"{host.path}: {name}: {program} is missing there: {install(host, package)}")
    said = domain.ask("dumpxml", *(["--inactive"] if state == OFF else []))
    if not said.ok:
        raise DomainError(f"{name}: {words_of_virsh(said)}")
    definition = Definition.of(said.stdout, name)
    if state != OFF:
        domain.refuse_job()
        asked = domain.ask("domfsinfo")
        if not asked.ok:
            words = words_of_virsh(asked)
            if "disabled" in words or "not allowed" in words:
                raise DomainError(FROZEN.format(domain.name, words))
            raise DomainError(f"{name}: {SILENT.format(words)}; or shut the VM down")
    needed, free = OVERLAY_BYTES, _free(host, directory)
    if state != OFF:
        needed += sum(_capacity(domain, disk) for disk in definition.disks)
    if free < needed:
        why = COPIES if state != OFF else ""
        raise DomainError(ROOM.format(domain.name, directory, format_room(free), format_room(needed), why))
    return definition


def opened(
    domain: Domain, definition: Definition, state: str, directory: PurePosixPath, local: LocalMachine
) -> ClonePoint:
    """Take the point. The guard of its host ends it. Raises DomainError and MachineError."""
    host, own = domain.host, directory / local.fresh_name("clone")
    job = None if state == OFF else BackupJob.of(domain, own, local.fresh_name("nbd"))
    point = ClonePoint(domain, definition, own, state == OFF, mark="" if job is None else job.mark)
    domain.before[:] = domain.digests()
    point.undoings.append(host.remove_later(point.directory))
    host.run("mkdir", "-m", "711", str(point.directory), remedy="name another directory with --disk-dir")
    sizes = {disk.target: _capacity(domain, disk) for disk in definition.disks}
    if job is None:
        for disk in definition.disks:
            below = _below(point, disk)
            point.disks.update({path: _known_by(host, path) for path in (disk.path, *below)})
            socket = _serve(point, disk, len(below))
            point.exports[disk.target] = ServedDisk("point", socket, sizes[disk.target])
    else:
        job.begin(definition, point.undoings)
        for disk in definition.disks:
            point.exports[disk.target] = ServedDisk(disk.target, job.socket, sizes[disk.target])
    if why := point.why_void():
        raise DomainError(why)
    return point


def _below(point: ClonePoint, disk: OwnDisk) -> list[str]:
    """The files that an image of a domain that is off stands on, the next one first. Raises DomainError."""
    if disk.format == "raw":
        return []
    said = point.domain.host.try_run("qemu-img", "info", "-U", "--backing-chain", "--output=json", "--", disk.path)
    chain = json_or_none(said.stdout, list[ImageInfo])
    if not said.ok or not chain:
        why = said.stderr.strip().splitlines()
        raise DomainError(f"{point.name}: its disk {disk.target} cannot be read: {' '.join(why[-1:])}")
    return list(takewhile(lambda name: name.startswith("/"), (image.filename for image in chain[1:])))


def _serve(point: ClonePoint, disk: OwnDisk, below: int) -> str:
    """Serve the image of a domain that is off, without locking it: its owner can start it. Returns the socket.

    below: how many files the image stands on, which its owner can merge it into
    """
    host, socket = point.domain.host, str(point.directory / f"nbd-{disk.target}")
    path = disk.path.replace(",", ",,")
    protocol = "host_device" if disk.is_device else "file"
    image = f"driver={disk.format},read-only=on,file.driver={protocol},file.filename={path},file.locking=off"
    image += "".join(f",{'backing.' * depth}file.locking=off" for depth in range(1, below + 1))
    words = ("--read-only", "--persistent", "--shared=4", f"--socket={socket}", "--export-name=point", "--image-opts")
    server = host.start("qemu-nbd", *words, image)
    point.servers.append(server)
    limit, export = time.monotonic() + SERVE_SECONDS, f"nbd+unix:///point?socket={quote(socket)}"
    while not host.succeeds("qemu-img", "info", export):  # it listens before it has opened the image
        if server.poll() is not None or time.monotonic() > limit:
            why = server.stderr_tail().strip().splitlines()
            raise DomainError(f"{point.name}: qemu-nbd does not serve its disk {disk.target}: {' '.join(why[-1:])}")
        time.sleep(0.1)
    host.run("chmod", "666", socket)  # QEMU runs as a user of its own
    return socket


def _capacity(domain: Domain, disk: OwnDisk) -> int:
    """Bytes that a disk has for its guest. Raises DomainError and MachineError."""
    said = domain.ask("domblkinfo", disk.target)
    if not said.ok:
        raise DomainError(f"libvirt:{domain.name}: {words_of_virsh(said)}")
    size = fields(said.stdout).get("Capacity", "")
    return whole_of(domain.host, f"the size of {disk.target}", size, most=2**60)


def _free(host: Machine, directory: PurePosixPath) -> int:
    said = host.run("df", "--output=avail", "-B1", str(directory), remedy="name another directory with --disk-dir")
    what = f"df {directory}"
    return whole_of(host, what, words_of(host, what, said, 2)[1], most=2**63)


def _stamp(host: Machine, path: str) -> str:
    """Size and time of the last change of a file; a device has neither."""
    return host.try_run("stat", "--dereference", "--format=%s bytes, %y", "--", path).stdout.strip()


def _known_by(host: Machine, path: str) -> str:
    """By what the contents of a file are known again: the time of its last change and, unless it is large, a digest."""
    stamp = _stamp(host, path)
    if not 0 < whole_of(host, f"stat {path}", stamp.partition(" ")[0]) <= DIGEST_BYTES:
        return stamp
    said = host.run("sha256sum", "--", path)
    return f"{stamp}, sha256 {sha256_of(host, f'sha256sum {path}', said)}"
