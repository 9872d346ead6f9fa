"""A VM of the user's with Windows, to which the user can log in: a `Way` that takes along programs built for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath

from vmtax.core.events import Event, Step
from vmtax.core.layers import EXISTING_PATH
from vmtax.core.machines import MachineError
from vmtax.core.records import Json
from vmtax.image import windows
from vmtax.image.cache import Image
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.machine.login_shell import NEVER_RUN
from vmtax.machine.windows.command_line import quoted
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.windows import WindowsFacts, read_windows
from vmtax.plan.schema import GuestSize
from vmtax.storage import DISK_DIRECTORY
from vmtax.testbed.session.ways import Inside
from vmtax.workload.chess import Chess
from vmtax.workload.fio import Disk
from vmtax.workload.transfer import Transfer

_DEVICES, _LETTER = ("\\\\.\\", "\\\\?\\"), re.compile(r"[A-Za-z]:")
MEASURES = (Chess.name, Disk.name, Transfer.name)  # workloads for which there are programs
ENTERS = (
    "a directory of ours and a scheduled task that removes it are made in that Windows; fio, stockfish, for the network"
    " vmtax-net and for disk tests a file that is written in full lie there; all is removed at the end. vmtax was"
    f" {NEVER_RUN}"
)
BUILDS = "builds these programs from Debian's sources, once, as `vmtax image windows` does: 10 minutes and more"
UNPROVED = f"Windows: {NEVER_RUN}."
NOTES = ("Windows build against Linux build: disk and network compare; CPU does not.", UNPROVED)


@dataclass(frozen=True, slots=True)
class WindowsInside(Inside):
    """A Windows that was entered. The image is not in it."""

    facts: WindowsFacts = field(default_factory=WindowsFacts)
    programs: Mapping[str, str] = field(default_factory=dict)  # name of a program -> sha256 of its file


@dataclass(frozen=True, slots=True)
class WindowsLogin:
    """How that Windows is entered. It was only read so far."""

    name: str
    there: WindowsMachine
    home: PureWindowsPath  # the parent of our directory
    facts: WindowsFacts
    machine: None = None
    path: str = EXISTING_PATH
    verb: str = "enter"
    takes_root: bool = False
    measures: tuple[str, ...] = MEASURES

    @property
    def announced(self) -> str:
        return entering()

    @property
    def uuid(self) -> str:
        return self.facts.uuid or ""

    def size(self) -> GuestSize:
        cpus, memory = self.facts.cpus, self.facts.memory_bytes
        if cpus is None or memory is None:
            why = f": {self.facts.problems[0]}" if self.facts.problems else ""
            raise MachineError(f"{self.name}: its number of CPUs and its memory are not known{why}")
        return GuestSize(vcpus=cpus, memory=memory)

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        return None  # it has no levels

    def enter(self, local: LocalMachine, host: Placed, image: Image, emit: Callable[[Event], None]) -> WindowsInside:
        digests = brought(self.there, self.home, local, emit)
        nowhere = Placed(root="", kernel="", initrd="")
        return WindowsInside(self.there, nowhere, None, NOTES, self.uuid, None, self.facts, digests)

    def leave(self) -> Json:
        """Nothing is known of its definition; what is ours is removed when its machine is closed."""
        return {}


def entering() -> str:
    """What entering a Windows does, and whether the programs for it must be built before."""
    return f"{ENTERS}{building()}"


def building() -> str:
    """What is done before programs for Windows can be run; "" if they are there."""
    return "" if windows.PACK.current() else f"; first it {BUILDS}"


def programs_here(local: LocalMachine) -> Path:
    """The directory with what was built for Windows, and with the other end of workload `transfer`, for Linux."""
    return Path(local.scratch) / "windows-programs"


def brought(
    there: WindowsMachine, home: PureWindowsPath, local: LocalMachine, emit: Callable[[Event], None]
) -> Mapping[str, str]:
    """Make our directory there, with the programs in it; their digests. Raises MachineError."""
    digests = unpacked(local, emit)
    carry_there(there, home, local, digests, emit)
    return digests


def unpacked(local: LocalMachine, emit: Callable[[Event], None]) -> Mapping[str, str]:
    """Have the programs in `programs_here`, once in a run; their digests by file. Raises MachineError."""
    pack = windows.PACK.current() or windows.PACK.build(emit)
    return windows.unpack(pack, local, programs_here(local))


def carry_there(
    there: WindowsMachine,
    home: PureWindowsPath,
    local: LocalMachine,
    digests: Mapping[str, str],
    emit: Callable[[Event], None],
) -> None:
    """Make our directory there, with the unpacked programs in it. Raises MachineError."""
    here = programs_here(local)
    files = {name.removesuffix(".exe"): here / name for name in digests if name.endswith(".exe")}
    there.set_up(home, [there.file(name) for name in files])
    for name, file in files.items():
        emit(Step("copying programs to Windows", file.name))
        there.push(file, PureWindowsPath(there.os.program(name)))


def windows_login(
    name: str, there: WindowsMachine, directory: PurePosixPath, option: str = "--guest-dir"
) -> WindowsLogin:
    """Read that Windows. `directory`: of the user's choice, by `option`, or DISK_DIRECTORY. Raises MachineError."""
    facts = read_windows(there)
    return WindowsLogin(name, there, home_in(name, there, directory, option), facts)


def home_in(name: str, there: WindowsMachine, directory: PurePosixPath, option: str = "--guest-dir") -> PureWindowsPath:
    """The parent of our directory: of the user's choice, or where its profile is. Raises MachineError."""
    home = PureWindowsPath(str(directory))
    if directory == DISK_DIRECTORY:
        home = PureWindowsPath(there.carry("echo %USERPROFILE%").stdout.strip())
    if home.drive.startswith(_DEVICES):
        raise MachineError(
            f"{name}: {option} {home} is a disk, which would lose what it holds: only files are measured on Windows:"
            f" {option} 'D:\\tests', on a volume of that disk"
        )
    if not _LETTER.fullmatch(home.drive) or not home.is_absolute():
        raise MachineError(f"{name}: is Windows, where {home} is no absolute path: {option} 'D:\\tests'")
    if '"' in str(home):
        raise MachineError(f"{name}: {option} {home}: no path of Windows has a quotation mark")
    quoted([str(home)])  # its percent signs and control characters, before cmd.exe sees it
    return home
