"""Write a file that the user named, safely even as root: no link of another user's is followed, and no name can be
guessed.

The file is created beside its target under an unpredictable name, and replaces the target once it is complete.
Directories are traversed one by one and kept open, so that none can be exchanged meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MOST_LINKS = 40  # the kernel's limit
HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def replacing(
    file: Path, *, mode: int | None = None, before: Callable[[Path], object] = lambda new: None
) -> Iterator[IO[bytes]]:
    """A stream whose contents replace `file` in one step, durably, if the block ends without an exception.

    A link stays a link. `mode` of the file: by default according to the umask. `before` gets the name of the unfinished
    file before that is created. A pipe, a terminal or another descriptor of ours is written to directly. Raises
    OSError, with `file` as its name, also if a link or a directory could redirect the output.
    """
    with _named(file), _Place(file) as place:
        if place.is_stream():
            with os.fdopen(place.open_stream(), "wb") as stream:
                yield stream
            return
        new = f".vmtax-{secrets.token_hex(16)}"
        before(place.directory / new)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600, dir_fd=place.handle)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fchmod(descriptor, 0o666 & ~_umask() if mode is None else mode)
                os.fsync(descriptor)
            os.rename(new, place.name, src_dir_fd=place.handle, dst_dir_fd=place.handle)
            place.sync()
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new, dir_fd=place.handle)
            raise


def refuse_no_file(file: Path) -> None:
    """Raises OSError if `file` exists and is no regular file: a directory, a device."""
    with _named(file):
        mode = file.stat().st_mode if file.exists() else stat.S_IFREG
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is no regular file")


class _Place:
    """The directory that contains a file, kept open, and the file's name in it, after following links."""

    def __init__(self, file: Path) -> None:
        self.name = ""
        self.directory = Path("/")
        self.handle = os.open("/", HANDLE | os.O_DIRECTORY)
        self._todo = [part for part in reversed(file.absolute().parts) if part != "/"]
        self._links = 0
        try:
            while self._todo:
                self._step(self._todo.pop())
        except BaseException:
            os.close(self.handle)
            raise

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    def _step(self, part: str) -> None:
        last = not self._todo
        try:
            found = os.open(part, HANDLE, dir_fd=self.handle)
        except FileNotFoundError:
            if not last:
                raise
            self.name = part
            return
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, found)
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode) and not self._is_descriptor(status):
                self._follow(part, found, status)
            elif last:
                self.name = part
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            elif stat.S_ISDIR(status.st_mode):
                stack.pop_all()
                self._enter(found, part)
            else:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _enter(self, handle: int, part: str) -> None:
        os.close(self.handle)
        self.handle = handle
        self.directory = self.directory.parent if part == ".." else self.directory / part

    def _follow(self, part: str, link: int, status: os.stat_result) -> None:
        self._links += 1
        if self._links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        # As the kernel does with fs.protected_symlinks, but in every directory, not only in sticky ones.
        around = os.fstat(self.handle)
        others_could = around.st_uid not in (0, os.geteuid()) or around.st_mode & 0o022
        if others_could and status.st_uid not in (0, os.geteuid()):
            what = f"{self.directory / part} is a link of user {status.st_uid}, who could lead it anywhere"
            raise OSError(errno.EPERM, what)
        target = Path(os.readlink("", dir_fd=link))
        if target.is_absolute():
            self._enter(os.open("/", HANDLE | os.O_DIRECTORY), "")
            self.directory = Path("/")
        self._todo += [name for name in reversed(target.parts) if name != "/"]

    def _is_descriptor(self, status: os.stat_result) -> bool:
        """Whether it is a link in /proc that leads to an open file, under any name."""
        return not self._todo and status.st_dev == Path("/proc").stat().st_dev and self.directory.name == "fd"

    def is_stream(self) -> bool:
        """Whether the file exists and must be written to, not replaced. Raises OSError if neither is allowed."""
        try:
            status = os.stat(self.name, dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if stat.S_ISREG(status.st_mode):
            return False
        if stat.S_ISLNK(status.st_mode) and self._is_descriptor(status):
            return True
        if stat.S_ISCHR(status.st_mode) or (stat.S_ISFIFO(status.st_mode) and status.st_uid in (0, os.geteuid())):
            return True
        raise OSError(errno.EINVAL, "is no regular file")

    def sync(self) -> None:
        """A new name survives a power cut only if its directory is flushed, too."""
        with contextlib.suppress(PermissionError):  # syncing requires read permission on it
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.handle)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def open_stream(self) -> int:
        links = os.O_NOFOLLOW if self.directory.name != "fd" else 0
        return os.open(self.name, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | links, dir_fd=self.handle)


@contextlib.contextmanager
def _named(file: Path) -> Iterator[None]:
    """Makes errors name the path as the user gave it."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(file), None
        raise


def _umask() -> int:
    """The umask, without changing it, which would affect other threads."""
    lines = Path("/proc/self/status").read_text(errors="replace").splitlines()
    return next((int(line.split()[1], 8) for line in lines if line.startswith("Umask:")), 0o077)
