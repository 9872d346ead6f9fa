"""What is in a clone: what is brought to it, how it is entered once its agent answers, and when it may be measured."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Protocol

from vmtax.attach import agent
from vmtax.attach.agent import PATIENCE
from vmtax.attach.agent_transport import AgentTransport
from vmtax.attach.clone.windows_disk import LIST, WRITABLE, SeenDisk, chosen, parse_disks
from vmtax.attach.domain import Domain, DomainError
from vmtax.attach.entry import log_in, put_image
from vmtax.attach.libvirt import LibvirtVm
from vmtax.attach.scratch import FIND
from vmtax.core.machines import Machine
from vmtax.image.place import Placed
from vmtax.machine.answer import words_of
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows.command_line import encoded
from vmtax.machine.windows.machine import WindowsClone
from vmtax.machine.windows.transport import SMALL_SECONDS
from vmtax.meter.text import fields, whole
from vmtax.meter.windows import problems

SERVICES_SECONDS = 120  # until all of its services have started
# Ends when systemd has started everything, at once where there is none. Argument: the most seconds. Constant text.
STARTED = 'command -v systemctl > /dev/null && timeout "$1" systemctl is-system-running --wait; exit 0'
# Exit code 1 if systemd is still at it. Constant text.
STARTING = 'command -v systemctl > /dev/null || exit 0; test "$(timeout 30 systemctl is-system-running)" != starting'
QUIET_SECONDS = 300.0  # in which a Windows that was booted works by itself, and does not say until when
CALM_SECONDS, CALM_SHARE = 10.0, 0.1  # it has done its work if it takes less than this share of a CPU for so long
CALM = f"{100 * CALM_SHARE:.0f} %"
SEEN_SECONDS = 120.0  # until a Windows that was booted has a disk or a disc that it did not have before
PAUSE_SECONDS = 3.0  # between two looks, each of which starts a PowerShell
LETTER = re.compile("[D-Zd-z]:")
LETTERS = "D E F G H I J K L M N O P Q R S T U V W X Y Z"  # of drives; C is that of Windows
UNKNOWN = (
    "{}: its clones say that they are Windows, and its definition, by which a VM is known that is off, does not: start"
    " the VM, or name its system in virt-manager (Overview)"
)
UNSEEN = (
    "a clone of {}: its Windows sees no disk with the serial number {} within {:.0f} s: it has no driver for the bus"
    " (disk.bus): install that of virtio-win (viostor, vioscsi) in the VM, or leave out that level"
)


@dataclass(frozen=True, slots=True)
class Brought:
    """Files of a clone's host that are in it as disks; "": there is none."""

    image: str = ""
    disc: str = ""


class ClonedGuest(Protocol):
    """One kind of system in a clone, or none that is looked into. What fails raises DomainError and MachineError."""

    def bring(self, host: Machine, directory: PurePosixPath) -> Brought:
        """Before its start. `directory`: of this clone, on its host"""
        ...

    def enter(self, clone: Domain, path: str, local: LocalMachine, name: str) -> Machine | None:
        """Once its agent answers; None: it is not entered. `name`: of the VM"""
        ...

    def settle(self, clone: Domain) -> str:
        """Wait until it does nothing by itself any more, or for as long as anybody can tell; returns what it still
        does, "" if nothing that is known.
        """
        ...

    def find(self, machine: Machine, serial: str, size: int, name: str) -> str:
        """The device that is the disk under test. `size`: bytes that are measured; `name`: of the VM"""
        ...


class WatchedGuest:
    """A clone that is left alone, whatever its system is."""

    def bring(self, host: Machine, directory: PurePosixPath) -> Brought:
        return Brought()

    def enter(self, clone: Domain, path: str, local: LocalMachine, name: str) -> None:
        return None

    def settle(self, clone: Domain) -> str:
        """A Linux until its services have started, a Windows for a time."""
        if clone.is_windows():
            time.sleep(QUIET_SECONDS)
            return ""
        _await_services(clone)
        return _services_starting(clone)

    def find(self, machine: Machine, serial: str, size: int, name: str) -> str:
        raise AssertionError("it is not entered")


@dataclass(frozen=True, slots=True)
class LinuxGuest:
    """A clone that is entered by the root image, which is plugged in."""

    image: Placed  # on its host

    def bring(self, host: Machine, directory: PurePosixPath) -> Brought:
        root = directory / "image"
        put_image(host, self.image, root)
        return Brought(image=str(root))

    def enter(self, clone: Domain, path: str, local: LocalMachine, name: str) -> Machine:
        if clone.is_windows():
            raise DomainError(UNKNOWN.format(name))
        _await_services(clone)
        return log_in(LibvirtVm(clone), path, local)

    def settle(self, clone: Domain) -> str:
        """Its services were waited for."""
        return _services_starting(clone)

    def find(self, machine: Machine, serial: str, size: int, name: str) -> str:
        return words_of(machine, "the name of the disk under test", machine.run(*FIND, serial), 1)[0]


@dataclass(frozen=True, slots=True)
class WindowsGuest:
    """A clone of a Windows, entered by its agent. Its programs are on a disc, because its agent would take minutes to
    bring them to each clone anew.
    """

    disc: PurePosixPath  # on its host
    mark: str  # name of an empty file on that disc, by which it is known
    programs: tuple[str, ...] = ()  # the files of those that may run for too long, and are ended then

    def bring(self, host: Machine, directory: PurePosixPath) -> Brought:
        return Brought(disc=str(self.disc))

    def enter(self, clone: Domain, path: str, local: LocalMachine, name: str) -> Machine:
        transport = AgentTransport(LibvirtVm(clone).agent, path, Path(local.scratch))
        transport.look()
        machine = WindowsClone(transport, self._drive(transport, name))
        machine.set_up(PureWindowsPath(machine.carry("echo %USERPROFILE%").stdout.strip()), self.programs)
        return machine

    def settle(self, clone: Domain) -> str:
        limit, before, is_known = time.monotonic() + QUIET_SECONDS, _cpu_seconds(clone), False
        while time.monotonic() < limit:
            began = time.monotonic()
            time.sleep(CALM_SECONDS)
            now = _cpu_seconds(clone)
            if before is not None and now is not None and now - before < CALM_SHARE * (time.monotonic() - began):
                return ""
            is_known |= before is not None and now is not None
            before = now
        if not is_known:
            return "Whether its CPUs rest is not known: libvirt does not say what they take"
        return (
            f"In {QUIET_SECONDS / 60:.0f} minutes after its boot its CPUs were not seen to take less than {CALM} of one"
        )

    def find(self, machine: Machine, serial: str, size: int, name: str) -> str:
        assert isinstance(machine, WindowsClone)
        limit = time.monotonic() + SEEN_SECONDS
        while (disk := _listed(machine, serial, size, name)) is None:
            if time.monotonic() > limit:
                raise DomainError(UNSEEN.format(name, serial, SEEN_SECONDS))
            time.sleep(PAUSE_SECONDS)
        if disk.is_readonly is not False:
            machine.carry(encoded(WRITABLE.format(disk.number)))
            disk = _listed(machine, serial, size, name)
            if disk is None or disk.is_readonly is not False:
                raise DomainError(f"a clone of {name}: its Windows keeps the disk under test read-only")
        return disk.device

    def _drive(self, transport: AgentTransport, name: str) -> PureWindowsPath:
        """The drive with the disc."""
        line = f'(for %d in ({LETTERS}) do @if exist "%d:\\{self.mark}" echo %d:)'
        limit = time.monotonic() + SEEN_SECONDS
        while not (seen := transport.carry(line, SMALL_SECONDS).stdout.split()):
            if time.monotonic() > limit:
                raise DomainError(
                    f"a clone of {name}: its Windows gives the disc with the programs no drive within"
                    f" {SEEN_SECONDS:.0f} s: all letters from D to Z may be in use, or a policy forbids it (Removable"
                    " Storage Access)"
                )
            time.sleep(PAUSE_SECONDS)
        if not LETTER.fullmatch(seen[0]):
            raise DomainError(
                f"a clone of {name}: its Windows answered {seen[0][:20]!r} when asked for the drive with the disc"
            )
        return PureWindowsPath(f"{seen[0]}\\")


def _listed(machine: WindowsClone, serial: str, size: int, name: str) -> SeenDisk | None:
    """The disk under test, if Windows has it; raises DomainError if it must not be written, or none is listed."""
    said = machine.carry(encoded(LIST))
    disks = parse_disks(said.stdout)
    if not disks:
        why = next(problems({"disks": said}, {"disks": "Get-Disk"}), "Get-Disk printed none")
        raise DomainError(f"a clone of {name}: which disks its Windows has is not known: {why}")
    return chosen(disks, serial, size, name)


def _cpu_seconds(clone: Domain) -> float | None:
    """That its CPUs have taken of the host; None: libvirt does not say."""
    said = fields(clone.ask("domstats", "--vcpu").stdout, "=")
    times = [whole(value) for name, value in said.items() if name.startswith("vcpu.") and name.endswith(".time")]
    known = [each for each in times if each is not None]
    return sum(known) / 1e9 if known else None


def _await_services(clone: Domain) -> None:
    """Wait until the services of the clone have started, which would disturb what is measured. Raises AgentRefused."""
    _ended(clone, STARTED, SERVICES_SECONDS)


def _services_starting(clone: Domain) -> str:
    """That not all of them have, or "". Raises AgentRefused."""
    code = _ended(clone, STARTING, 0)
    return f"Not all of its services had started {SERVICES_SECONDS} s after its agent answered" if code == 1 else ""


def _ended(clone: Domain, script: str, seconds: int) -> int | None:
    """The exit code of a script in the clone, whose argument is `seconds`; None if it has not ended long after them."""
    limit = time.monotonic() + seconds + PATIENCE
    pid = agent.start(clone, ("/bin/sh", "-c", script, "sh", str(seconds)))
    while (code := agent.ended(clone, pid)) is None and time.monotonic() < limit:
        time.sleep(0.5)
    return code
