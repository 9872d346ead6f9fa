"""The directories of labs: XDG_DATA_HOME/vmtax/labs/NAME holds disks, records, and whether the lab is up."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from vmtax.core import names
from vmtax.core.errors import BadInput, CannotDo
from vmtax.core.machines import how_ended
from vmtax.lab.names import RECORD, lab_names, labs_directory
from vmtax.lab.spec import CONSOLE, DEFAULT_NAME, LOG, Size, disk_files
from vmtax.machine.local import LocalMachine
from vmtax.machine.processes import is_marked
from vmtax.system.paths import make_private, private

PANIC = re.compile(r"Kernel panic\b.*")


NOT_YOURS = "a lab is for the user alone who made it: be that user, or set XDG_DATA_HOME to a directory of your own"


class LabError(CannotDo):
    """A lab cannot be started, reached or ended; the text says why and what to do."""


class NoSuchLab(BadInput):
    """No lab has that name, or none can have it."""


@dataclass(frozen=True, slots=True)
class Software:
    """The software of a lab; a saved state needs exactly the same."""

    qemu: str  # version
    image: str  # identity
    kernel: str  # release
    zfs: str | None  # version; None: none had been built when it was started
    accelerator: Literal["kvm", "tcg"]
    zfs_build: str | None = None  # digest of its file, which differs for each build; None: no ZFS, or an older record
    additional_cpu: bool = False  # QEMU has one more, or room for one; False: also in an older record

    def differences(self, other: Software) -> list[str]:
        """Words for each part that differs: "QEMU 10.0.2, not 10.0.1"."""
        words = {"qemu": "QEMU", "image": "image", "kernel": "kernel", "zfs": "ZFS", "accelerator": "accelerator"}
        ours, theirs = asdict(self), asdict(other)
        found = [
            f"{word} {ours[key] or 'none'}, not {theirs[key] or 'none'}"
            for key, word in words.items()
            if ours[key] != theirs[key]
        ]
        if self.zfs == other.zfs and self.zfs_build and other.zfs_build and self.zfs_build != other.zfs_build:
            found.append(f"build {self.zfs_build[:12]} of ZFS {self.zfs}, not {other.zfs_build[:12]}")
        return found

    def differences_from_saved(self, saved: Software) -> list[str]:
        """The same, with what only matters to a saved state."""
        found = self.differences(saved)
        if self.additional_cpu is not saved.additional_cpu:
            found.append("room for another CPU, not none" if self.additional_cpu else "no room for another CPU")
        return found


@dataclass(frozen=True, slots=True)
class Record:
    """What is stored of a lab while it is off."""

    size: Size
    software: Software  # in its last start


@dataclass(frozen=True, slots=True)
class Up:
    """The record of a lab that is up. Its guard removes it when its QEMU ends, however it ends."""

    token: str  # marks the processes of its QEMU
    pid: int
    port: int  # of its sshd, on 127.0.0.1
    key: str
    known_hosts: str
    qmp: str  # socket
    started: float  # seconds since the epoch
    ready_seconds: float  # from the request, after Python was loaded, to the first answered command
    settled_seconds: float  # until its devices, including ZFS, and the contents of its disks were ready, too
    accelerator_reason: str
    peer_namespace: str | None  # None: user networking provides the peer
    warnings: list[str] = field(default_factory=list)
    restored: bool = False  # from a saved state, not booted
    kernel_arguments: tuple[str, ...] = ()  # of this boot, in addition to those that every lab has
    logs_writes: bool = False  # whether all writes to its spare disks are logged
    link: str = ""  # the lab whose network it shares; "": it has its own


@dataclass(frozen=True, slots=True)
class Lab:
    """One lab, up or off."""

    name: str

    @property
    def directory(self) -> Path:
        return labs_directory() / self.name

    @property
    def saved(self) -> Path:
        """The directory of its saved state."""
        return self.directory / "saved"

    @property
    def up_file(self) -> Path:
        return self.directory / "up.json"

    @property
    def logs_again(self) -> Path:
        """A file that exists while it is being rebooted and had logged the writes to its spare disks, so that it will
        again.
        """
        return self.directory / "logs-writes"

    @property
    def log(self) -> Path:
        """Standard error of its QEMU in its last start."""
        return self.directory / LOG

    def last_words(self) -> str:
        """The last line of that file; empty if there is none."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        lines = [line for line in lines if "terminating on signal" not in line]  # caused by us
        return lines[-1] if lines else ""

    def why_ended(self) -> str:
        """The last message of its kernel or QEMU; empty if there is none."""
        with contextlib.suppress(OSError):
            if panic := PANIC.search((self.directory / CONSOLE).read_text(errors="replace")):
                return f"its kernel said: {panic[0].strip()}"
        words = self.last_words()
        return f"its QEMU said: {words}" if words else ""

    def why_off(self) -> str:
        """An explanation for a lab that should be up."""
        words = self.why_ended()
        return f"lab {self.name} is off" + (f", {words}" if words else "")

    @property
    def exists(self) -> bool:
        return (self.directory / RECORD).is_file()

    @property
    def has_saved(self) -> bool:
        return (self.saved / RECORD).is_file()

    def must_exist(self) -> None:
        """Raises NoSuchLab if it does not exist; a lab with a damaged record exists."""
        if not self.exists:
            self.record()

    def record(self) -> Record:
        """Raises NoSuchLab if there is none, LabError if it is damaged."""
        return read_record(self.directory, self.name)

    def up(self) -> Up | None:
        """Its record; None if it is off. Raises LabError if the record is damaged."""
        try:
            from pydantic import TypeAdapter

            up = TypeAdapter(Up).validate_python(json.loads(self.up_file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:  # pydantic's errors are ValueErrors
            first = str(error).partition("\n")[0]
            cure = f"end its QEMU (pgrep -f vmtax-lab-{self.name}), whose guard then removes the file"
            raise LabError(f"{self.up_file}: damaged ({first}); {cure}") from error
        return up if is_marked(up.pid, up.token) else None

    def running(self) -> Up:
        """Like `up`; raises LabError if it is off, NoSuchLab if it does not exist."""
        self.record()
        up = self.up()
        if up is None:
            raise LabError(f"lab {self.name} is off: vmtax lab start {self.name}")
        return up

    @property
    def disks(self) -> tuple[Path, ...]:
        return tuple(Path(path) for path in disk_files(PurePosixPath(self.directory), self.record().size))


def lab(name: str = "") -> Lab:
    """The lab of that name, whether it exists or not. Raises NoSuchLab if no lab can have that name."""
    name = name or DEFAULT_NAME
    if not names.LAB.fullmatch(name):
        raise NoSuchLab(f"{name!r} cannot be a lab's name: up to 20 of a-z, 0-9 and -, a letter or digit first")
    return Lab(name)


def labs() -> list[Lab]:
    """All existing labs, by name. Raises LabError if they may not be read."""
    try:
        return [Lab(name) for name in lab_names()]
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}; {NOT_YOURS}") from error


def read_record(directory: Path, name: str) -> Record:
    """The record of a lab, or of a saved state."""
    from pydantic import TypeAdapter  # imported here, because shell completion needs only names

    path = directory / RECORD
    try:
        return TypeAdapter(Record).validate_python(json.loads(path.read_text()))
    except FileNotFoundError:
        have = ", ".join(one.name for one in labs())
        hint = f"there are: {have}" if have else "there are none yet"
        raise NoSuchLab(f"there is no lab {name}; {hint}; make it: vmtax lab start {name}") from None
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}; {NOT_YOURS}") from error
    except (ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0]
        raise LabError(f"{path}: damaged ({first}); remove the lab: vmtax lab remove {name}") from error


def write(path: Path, record: Any) -> None:
    """Replace a record in one step."""
    new = path.with_suffix(".new")
    with open(new, "w", opener=private) as file:
        json.dump(asdict(record), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


@contextlib.contextmanager
def held(one: Lab, *, shared: bool = False) -> Iterator[None]:
    """Locks the lab: no other process can start, end or save it meanwhile. Raises LabError if one is doing so.

    `shared`: only for reading, which others may do at the same time
    """
    path = labs_directory() / f".{one.name}.lock"  # beside its directory, which may be removed meanwhile
    with _locked(one, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
        try:
            yield
        finally:
            if not shared and not one.directory.exists():
                path.unlink(missing_ok=True)


def _locked(one: Lab, path: Path, how: int) -> IO[str]:
    """The lock file under its present name: an earlier holder may have removed it."""
    while True:
        try:
            make_private(path.parent)
            file = open(path, "a", opener=private)  # noqa: SIM115 (the lock lasts while it is open)
        except OSError as error:
            raise trouble(error, labs_directory()) from error
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise LabError(f"lab {one.name} is being started, ended or saved by another command just now") from None
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        file.close()


def trouble(error: OSError, where: Path) -> LabError:
    """What the system refused, at `where` unless the error names a path, and what helps."""
    path = Path(os.fsdecode(error.filename or where))
    here = path.is_relative_to(labs_directory()) or labs_directory().is_relative_to(path)
    cures = {errno.ENOSPC: "make room there", errno.EDQUOT: "make room there"}
    cures |= dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "you must be able to write there")
    cure = cures.get(error.errno or 0, "")
    elsewhere = ", or set XDG_DATA_HOME to another directory" if cure and here else ""
    return LabError(f"{path}: {error.strerror or error}{'; ' if cure else ''}{cure}{elsewhere}")


def check_unused(one: Lab) -> None:
    """Raises LabError if a process holds a disk of a lab that should be off: QEMU locks its open files."""
    locked = {line.split()[5] for line in Path("/proc/locks").read_text().splitlines() if "->" not in line}
    for disk in one.directory.glob("*.raw"):
        status = disk.stat()
        if f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}" in locked:
            raise LabError(f"{disk} is in use by another process: `fuser {disk}` shows it; end it first")


def copy_disk(local: LocalMachine, source: Path, target: Path) -> None:
    """Copy with holes; blocks are shared if the file system supports it. Raises LabError, for example on a full
    disk.
    """
    done = local.try_run("cp", "--sparse=always", "--reflink=auto", str(source), str(target))
    if not done.ok:
        words = done.stderr.strip() or f"{source}: not copied: {how_ended(done.code)}"
        raise LabError(f"{words}; where it is full, make room or set XDG_DATA_HOME to another directory")
