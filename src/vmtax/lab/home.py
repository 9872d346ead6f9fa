"""Where labs are kept: XDG_DATA_HOME/vmtax/labs/NAME holds disks and records, and whether one is up."""

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
from vmtax.lab.names import RECORD, lab_names, labs_directory
from vmtax.lab.spec import CONSOLE, DEFAULT_NAME, LOG, Size, disk_files
from vmtax.machine.local import LocalMachine
from vmtax.machine.processes import is_marked
from vmtax.system.paths import make_private, private

COPY_SECONDS = 1800.0
PANIC = re.compile(r"Kernel panic\b.*")


NOT_YOURS = "a lab is for the user alone who made it: be that user, or set XDG_DATA_HOME to a directory of your own"


class LabError(CannotDo):
    """A lab cannot be started, reached or ended; the text says why and what to do."""


class NoSuchLab(BadInput):
    """A name that no lab has, or that none can have."""


@dataclass(frozen=True, slots=True)
class Software:
    """What a lab runs on; a saved state needs exactly the same."""

    qemu: str  # version
    image: str  # identity
    kernel: str  # release
    zfs: str | None  # version; None: none was built when it was started
    accelerator: Literal["kvm", "tcg"]
    zfs_build: str | None = None  # digest of its file: each build is another; None: no ZFS, or an older record

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


@dataclass(frozen=True, slots=True)
class Record:
    """What stays when a lab is off."""

    size: Size
    software: Software  # of its last start


@dataclass(frozen=True, slots=True)
class Up:
    """A lab that is up. Removed by its guard when its QEMU ends, however it ends."""

    token: str  # marks its QEMU
    pid: int
    port: int  # of its ssh, on 127.0.0.1
    key: str
    known_hosts: str
    qmp: str  # socket
    started: float  # seconds since the epoch
    ready_seconds: float  # from when it was asked for, Python being loaded, to the first answered command
    settled_seconds: float  # until its devices, ZFS included, and what its disks hold were there too
    accelerator_reason: str
    peer_namespace: str | None  # None: user networking plays the peer
    warnings: list[str] = field(default_factory=list)
    restored: bool = False  # from a saved state, not booted
    kernel_arguments: tuple[str, ...] = ()  # that it was booted with, beside those that every lab has
    logs_writes: bool = False  # all writes to its spare disks
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
        """There while it is rebooted and has logged all writes to its spare disks: then it is to do so again."""
        return self.directory / "logs-writes"

    @property
    def log(self) -> Path:
        """What its QEMU said on standard error in its last start."""
        return self.directory / LOG

    def last_words(self) -> str:
        """The last line of that; empty if it said nothing."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        lines = [line for line in lines if "terminating on signal" not in line]  # that was us
        return lines[-1] if lines else ""

    def why_ended(self) -> str:
        """What its kernel or its QEMU said of its end; empty if they said nothing."""
        with contextlib.suppress(OSError):
            if panic := PANIC.search((self.directory / CONSOLE).read_text(errors="replace")):
                return f"its kernel said: {panic[0].strip()}"
        words = self.last_words()
        return f"its QEMU said: {words}" if words else ""

    def why_off(self) -> str:
        """How a lab that should be up is to be explained."""
        words = self.why_ended()
        return f"lab {self.name} is off" + (f", {words}" if words else "")

    @property
    def exists(self) -> bool:
        return (self.directory / RECORD).is_file()

    @property
    def has_saved(self) -> bool:
        return (self.saved / RECORD).is_file()

    def must_exist(self) -> None:
        """Raises NoSuchLab if there is none; one whose record is damaged is there."""
        if not self.exists:
            self.record()

    def record(self) -> Record:
        """Raises NoSuchLab if there is none, LabError if it is damaged."""
        return read_record(self.directory, self.name)

    def up(self) -> Up | None:
        """None if it is off; raises LabError if its record is damaged."""
        try:
            from pydantic import TypeAdapter

            up = TypeAdapter(Up).validate_python(json.loads(self.up_file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:  # what pydantic says is a ValueError
            first = str(error).partition("\n")[0]
            cure = f"end its QEMU (pgrep -f vmtax-lab-{self.name}), whose guard then removes the file"
            raise LabError(f"{self.up_file}: damaged ({first}); {cure}") from error
        return up if is_marked(up.pid, up.token) else None

    def running(self) -> Up:
        """As `up`; raises LabError if it is off, NoSuchLab if it does not exist."""
        self.record()
        up = self.up()
        if up is None:
            raise LabError(f"lab {self.name} is off: vmtax lab start {self.name}")
        return up

    @property
    def disks(self) -> tuple[Path, ...]:
        return tuple(Path(path) for path in disk_files(PurePosixPath(self.directory), self.record().size))


def lab(name: str = "") -> Lab:
    """The lab of that name, there or not; raises NoSuchLab if no lab can be called so."""
    name = name or DEFAULT_NAME
    if not names.LAB.fullmatch(name):
        raise NoSuchLab(f"{name!r} cannot be a lab's name: up to 20 of a-z, 0-9 and -, a letter or digit first")
    return Lab(name)


def labs() -> list[Lab]:
    """All that there are, by name. Raises LabError if they may not be read."""
    try:
        return [Lab(name) for name in lab_names()]
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}; {NOT_YOURS}") from error


def read_record(directory: Path, name: str) -> Record:
    """Of a lab, or of a saved state."""
    from pydantic import TypeAdapter  # here, because the shell's completion asks for names only

    path = directory / RECORD
    try:
        return TypeAdapter(Record).validate_python(json.loads(path.read_text()))
    except FileNotFoundError:
        have = ", ".join(one.name for one in labs())
        hint = f"there are: {have}" if have else "there are none yet"
        raise NoSuchLab(f"there is no lab {name}; {hint}; make it: vmtax lab start {name}") from None
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}; {NOT_YOURS}") from error
    except ValueError as error:
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
    """Nobody else starts, ends or saves it meanwhile; raises LabError if somebody does just now.

    `shared`: it is only read; others may do so too.
    """
    path = labs_directory() / f".{one.name}.lock"  # beside the directory, which may vanish under it
    with _locked(one, path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
        try:
            yield
        finally:
            if not shared and not one.directory.exists():
                path.unlink(missing_ok=True)


def _locked(one: Lab, path: Path, how: int) -> IO[str]:
    """That file, as it is there now: whoever held it before us may have removed it."""
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
    """What the system refused, at `where` unless the error says it, and what helps against that."""
    path = Path(os.fsdecode(error.filename or where))
    here = path.is_relative_to(labs_directory()) or labs_directory().is_relative_to(path)
    cures = {errno.ENOSPC: "make room there", errno.EDQUOT: "make room there"}
    cures |= dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "you must be able to write there")
    cure = cures.get(error.errno or 0, "")
    elsewhere = ", or set XDG_DATA_HOME to another directory" if cure and here else ""
    return LabError(f"{path}: {error.strerror or error}{'; ' if cure else ''}{cure}{elsewhere}")


def check_unused(one: Lab) -> None:
    """Raises LabError if a process holds a disk of a lab that should be off: QEMU locks the files it has open."""
    locked = {line.split()[5] for line in Path("/proc/locks").read_text().splitlines() if "->" not in line}
    for disk in one.directory.glob("*.raw"):
        status = disk.stat()
        if f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}" in locked:
            raise LabError(f"{disk} is in use by another process: `fuser {disk}` shows it; end it first")


def copy_disk(local: LocalMachine, source: Path, target: Path) -> None:
    """Holes stay holes; where the file system can, blocks are shared. Raises LabError, such as on a full disk."""
    done = local.try_run("cp", "--sparse=always", "--reflink=auto", str(source), str(target), timeout=COPY_SECONDS)
    if not done.ok:
        words = done.stderr.strip() or f"{source}: not copied within {COPY_SECONDS:.0f} s"
        raise LabError(f"{words}; where it is full, make room or set XDG_DATA_HOME to another directory")
