"""Copies of a guest's disk on the machine that runs vmtax: its first contents, its log, and states rebuilt from
them.
"""

from __future__ import annotations

import errno
import os
import select
import zlib
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from vmtax.core.machines import first_line, last_words
from vmtax.design.disk import DiskSettings
from vmtax.machine import Machine, MachineError, Process
from vmtax.machine.local import LocalMachine
from vmtax.storage.backing import Backing
from vmtax.storage.power_cut import copy_sparse

COPY_SECONDS = 600.0
SILENCE_SECONDS = 120.0  # without data on the connection; zeros are compressed, so long stretches of them send little
CHUNK = 2**20
# gzip rejects device names. Constant text.
COMPRESSED = ("sh", "-c", 'exec gzip -1 -c < "$1"', "sh")
LEAKS = 3  # exit code of qemu-img check: unused clusters, which waste space and lose no data


@dataclass(frozen=True, slots=True)
class Copies:
    """The files in one directory."""

    local: LocalMachine
    directory: Path
    qemu_img: tuple[str, ...]  # command that starts qemu-img for files in `directory`
    settings: DiskSettings  # of the original disk
    size: int  # bytes that a guest sees

    @property
    def before(self) -> Path:
        """The disk before anything was written to it, in its own format."""
        return self.directory / "before"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def flushed(self) -> Path:
        """The data that has certainly reached the disk."""
        return self.directory / "flushed"

    @property
    def image(self) -> Path:
        """One state of the disk, in its own format."""
        return self.disk if self.is_raw else self.directory / "image"

    @property
    def disk(self) -> Path:
        """The same state, raw, as a guest sees it."""
        return self.directory / "disk"

    @property
    def is_raw(self) -> bool:
        return self.settings.format == "raw"

    def twin(self, number: int) -> Copies:
        """Additional files for states of the same disk, in a subdirectory; `before` is shared."""
        own = replace(self, directory=self.directory / f"checker{number}")
        own.directory.mkdir(mode=0o700)
        os.link(self.before, own.before)
        _empty(own.disk, self.size)
        _replace(self.before, own.image)  # a guest's kernel looks for partitions when it boots
        return own

    def keep_before(self, machine: Machine, disk: Backing) -> None:
        """Copy the disk of a guest that has not run yet; if it is no qcow2, it is all zeros.

        Raises MachineError, also if qemu-img finds an error in it, because every state would have that error.
        """
        if self.is_raw:
            _empty(self.before, disk.size)
        else:
            fetch(machine, self.local, disk.path, self.before)
        _empty(self.disk, self.size)
        if not self.is_raw:
            _replace(self.before, self.image)
            if wrong := self.check_and_convert():
                raise MachineError(f"{machine.path}: {disk.path}, which was never written to: {wrong}")

    def begin_with(self, disk: Path) -> None:
        """Copy a raw disk that is a file here, and make that copy the present state."""
        fetch(self.local, self.local, PurePosixPath(disk), self.before)
        _replace(self.before, self.disk)

    def check_and_convert(self) -> str:
        """Convert `image` to `disk`; returns qemu-img's complaint, "" if there is none.

        Raises MachineError if there is no room, which is no fault of the image.
        """
        if self.is_raw:
            return ""
        settings, plain = self.settings, self.directory / "plain"
        check = (*self.qemu_img, "check", "-q", "-f", settings.format)
        if settings.lazy_refcounts and self._is_dirty():  # QEMU repairs such an image when it opens it
            self.local.try_run(*check, "-r", "all", str(self.image))
        checked = self.local.try_run(*check, str(self.image))
        wrong = first_line(checked.stderr or checked.stdout) if checked.code not in (0, LEAKS) else ""
        # Not to `disk` itself, which is locked by a guest's QEMU.
        how = (*self.qemu_img, "convert", "-f", settings.format, "-O", "raw", str(self.image), str(plain))
        converted = self.local.try_run(*how)
        if os.strerror(errno.ENOSPC) in converted.stderr:
            raise MachineError(f"{self.directory}: no room to convert a state of the disk")
        if not converted.ok:
            _empty(plain, self.size)
        _replace(plain, self.disk)
        return wrong or ("" if converted.ok else first_line(converted.stderr))

    def _is_dirty(self) -> bool:
        """Whether the image is marked dirty: its reference counts were not written."""
        told = self.local.try_run(*self.qemu_img, "info", "--output=json", str(self.image)).stdout
        return '"dirty-flag": true' in told


def fetch(machine: Machine, local: LocalMachine, source: PurePosixPath, target: Path) -> None:
    """Copy a file or device of a machine to a new sparse file here. Raises MachineError."""
    if machine is local:
        machine.run("cp", "--sparse=always", str(source), str(target))
        return
    process = machine.start(*COMPRESSED, str(source))
    try:
        with target.open("wb") as file:
            unpacking = zlib.decompressobj(wbits=31)
            while packed := _next(process, machine, source):
                _write_sparse(file.fileno(), unpacking.decompress(packed))
            _write_sparse(file.fileno(), unpacking.flush())
            file.truncate(os.lseek(file.fileno(), 0, os.SEEK_CUR))
        if not unpacking.eof or process.wait(COPY_SECONDS) != 0:
            raise MachineError(f"{machine.path}: {source} was not copied: {first_line(last_words(process))}")
    except zlib.error as error:
        raise MachineError(f"{machine.path}: {source} was not copied: {error}") from error
    finally:
        process.stop()


def _next(process: Process, machine: Machine, source: PurePosixPath) -> bytes:
    """The next data; b"" at the end. Raises MachineError if none comes in time."""
    if not select.select([process.stdout], [], [], SILENCE_SECONDS)[0]:
        raise MachineError(f"{machine.path}: {source} was not copied: nothing came for {SILENCE_SECONDS:.0f} s")
    return os.read(process.stdout.fileno(), CHUNK)


def _write_sparse(file: int, data: bytes, block: int = 65536) -> None:
    for at in range(0, len(data), block):
        part = data[at : at + block]
        if part.count(0) == len(part):
            os.lseek(file, len(part), os.SEEK_CUR)
        else:
            os.write(file, part)


def _empty(path: Path, size: int) -> None:
    """Fill the file with zeros; it stays the same file, because a guest may have it open."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(file, 0)
        os.ftruncate(file, size)
    finally:
        os.close(file)


def _replace(source: Path, target: Path) -> None:
    """Copy the contents; an existing file stays the same file."""
    _empty(target, 0)
    file = os.open(target, os.O_RDWR)
    try:
        copy_sparse(source, file)
    finally:
        os.close(file)
