"""What an image holds besides, for a program of the user's own: Debian packages, and files of this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

from vmtax.core.errors import BadInput
from vmtax.core.units import format_room

ARCHIVE = "usr/lib/vmtax/files.tar"  # in the image's tree; unpacked before each execution
MOST_BYTES = 256 * 2**20  # of all files together: they are copied into the memory of each machine
MOST_FILES = 50_000
MOST_NAMED = 500  # that a run's facts name one by one, so that a comparison says which changed
TIME = 1577836800  # the time of every file, so that the same contents make the same archive


class _Sum:
    """A stream that computes the digest of what passes it on the way to another, if there is one."""

    def __init__(self, target: IO[bytes] | None = None) -> None:
        self.digest, self._target = hashlib.sha256(), target

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        if self._target is not None:
            self._target.write(data)
        return len(data)


@dataclass(frozen=True)
class Additions:
    """Nothing, or what makes an image another one than that of the recipe."""

    packages: tuple[str, ...] = ()  # names of Debian packages
    files: tuple[Path, ...] = ()  # files and directories of this machine, each under its own name

    def __bool__(self) -> bool:
        return bool(self.packages or self.files)

    def __str__(self) -> str:
        return ", ".join([*self.packages, *map(str, self.files)])

    @property
    def options(self) -> str:
        """As options of `vmtax image build`."""
        packages = ["--packages", ",".join(self.packages)] if self.packages else []
        return shlex.join([*packages, *(word for file in self.files for word in ("--files", str(file)))])

    @cached_property
    def digest(self) -> str:
        """sha256 of their names and contents. Raises BadInput if a file cannot be taken."""
        return self._digest(_Sum())

    def write(self, path: Path) -> None:
        """Write the files as one archive. Raises BadInput if they are not those of `digest` any more."""
        before = self.digest
        with path.open("wb") as stream:
            written = self._digest(_Sum(stream))
        if before != written:
            raise BadInput(f"files {', '.join(map(str, self.files))}: changed while they were copied: try again")

    def _digest(self, stream: _Sum) -> str:
        """Write the archive to the stream. Raises BadInput."""
        names = "".join(f"{name}\0" for name in sorted(self.packages))
        if self.files:
            self._archive(stream)
        return hashlib.sha256(f"{names}{stream.digest.hexdigest() if self.files else ''}".encode()).hexdigest()

    def _archive(self, stream: _Sum) -> None:
        size = number = 0
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for name, path, status in self._walk():
                size, number = size + status.st_size * stat.S_ISREG(status.st_mode), number + 1
                if size > MOST_BYTES or number > MOST_FILES:
                    raise BadInput(
                        f"files {path}: at most {format_room(MOST_BYTES)} in {MOST_FILES} files are taken along, for"
                        " each machine keeps them in memory: name a smaller part"
                    )
                _add(archive, name, path)

    def _walk(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        """(name in the archive, path, status) of everything, in order; no link is followed but those that are named."""
        names: set[str] = set()
        for top in self.files:
            named = top.absolute()
            name = Path(os.path.normpath(named)).name
            if not name:
                raise BadInput(f"files {top}: has no name of its own: name a directory below it")
            if name in names:
                raise BadInput(f"files {top}: another one is called {name} too: name their common directory")
            names.add(name)
            waiting = [(name, _resolved(named))]
            while waiting:
                inner, path = waiting.pop()
                try:
                    status = path.lstat()
                    if stat.S_ISDIR(status.st_mode):
                        below = sorted(path.iterdir(), reverse=True)
                        waiting += [(f"{inner}/{each.name}", each) for each in below]
                except OSError as error:
                    raise BadInput(f"files {path}: {error.strerror}") from error
                yield inner, path, status


def _resolved(path: Path) -> Path:
    """The path without links. Raises BadInput if links lead in a circle."""
    try:
        return path.resolve()
    except RuntimeError:  # what Python says of links in a circle
        raise BadInput(f"files {path}: {os.strerror(errno.ELOOP)}") from None


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    """Add one file, directory or link, without its owner and time. Raises BadInput."""
    try:
        entry = archive.gettarinfo(path, name)
        if entry is None or not (entry.isfile() or entry.isdir() or entry.issym() or entry.islnk()):
            raise BadInput(f"files {path}: is no file, directory or link, and cannot be taken along")
        if entry.islnk():  # a second name of a file: the archive would depend on the order
            entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.lstat().st_size
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime, entry.mode = TIME, 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        if entry.isfile():
            with path.open("rb") as file:
                archive.addfile(entry, file)
        else:
            archive.addfile(entry)
    except OSError as error:
        # "unexpected end of data", which has no number, if a file became shorter
        raise BadInput(f"files {path}: {error.strerror or error}") from error


def digests(tree: Path) -> dict[str, str]:
    """Name -> beginning of the digest of each of a user's files in an image's tree; of directories, as deep as
    MOST_NAMED allows, where there are more files. {}: it has none.
    """
    found: dict[str, str] = {}
    try:
        with tarfile.open(tree / ARCHIVE) as archive:
            for entry in archive:
                kind = f"{entry.mode:o}\0{entry.linkname}\0".encode()
                stream = archive.extractfile(entry) if entry.isfile() else None
                if not entry.isdir():
                    found[entry.name] = _start(kind, stream.read() if stream is not None else b"")
    except (OSError, tarfile.TarError):
        return {}
    depth = max((name.count("/") for name in found), default=0)
    named = found
    while len(named) > MOST_NAMED and depth:
        groups: dict[str, list[str]] = {}
        for name, digest in found.items():
            groups.setdefault("/".join(name.split("/")[:depth]), []).append(f"{name}\0{digest}\0")
        named = {name: _start("".join(rows).encode()) for name, rows in groups.items()}
        depth -= 1
    return named


def _start(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


NOTHING = Additions()
