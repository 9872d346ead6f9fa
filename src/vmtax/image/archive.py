"""Read an archive of `image export`: a tar file, compressed with zstd, that begins with the list of its contents.

Each further member must be the next one of that list, with its kind, mode, size and contents. So nothing in an archive
can be unpacked that was not checked before: no other kind of member, no other path, no larger file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vmtax.core.errors import BadInput
from vmtax.core.units import format_room
from vmtax.image import contents
from vmtax.image.cache import ImageError
from vmtax.image.contents import ContentsError, Member
from vmtax.system.packages import install_here

BLOCK = tarfile.BLOCKSIZE
TYPES = {"d": tarfile.DIRTYPE, "f": tarfile.REGTYPE, "x": tarfile.REGTYPE, "l": tarfile.SYMTYPE}
# A real archive has a quarter of the size of its contents.
MOST_GROWTH = 100
SMALL = 16 * 2**20  # bytes that may be unpacked from an archive of any size
WRITTEN = "a file that `vmtax image export` wrote"


class EndsEarlyError(ContentsError):
    """The archive ends too early."""


class Archive:
    """An archive whose list was read and is valid; the rest is read when it is unpacked."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        """`size`: bytes of the compressed file."""
        self._stream = stream
        header = self._header(contents.NAME)
        if header.name != contents.NAME or header.type != tarfile.REGTYPE or header.size > contents.LARGEST_LIST:
            what = f"begins with {header.name!a}, not with its {contents.NAME}: from another version of vmtax?"
            raise ContentsError(what)
        text = self._exactly(header.size, contents.NAME)
        self._skip_padding(header.size, contents.NAME)
        self.text = text
        self.digest = hashlib.sha256(text).hexdigest()
        self.contents = contents.parse(text)
        if self.contents.bytes > max(SMALL, MOST_GROWTH * size):
            room = format_room(self.contents.bytes)
            raise ContentsError(f"would grow to {room}, more than {MOST_GROWTH} times its size")

    def unpack(self, directory: Path) -> None:
        """Unpack everything into that directory, which only we use. Raises ContentsError at the first difference."""
        _write(directory / contents.NAME, 0o644, iter([self.text]))
        for member in self.contents.members:
            self._check_header(member)
            target = directory / member.path
            if member.kind == "d":
                target.mkdir()
                target.chmod(contents.MODES["d"])
            elif member.kind == "l":
                target.symlink_to(member.what)
            else:
                _write(target, contents.MODES[member.kind], self._file(member))
        rest = self._stream.read(tarfile.RECORDSIZE + 1)
        if len(rest) > tarfile.RECORDSIZE or rest.strip(b"\0"):
            raise ContentsError("more follows behind the last member of its list")

    def _check_header(self, member: Member) -> None:
        header = self._header(member.path)
        if header.name != member.path:
            raise ContentsError(f"{header.name!a}: comes where its list has {member.path}")
        links = member.kind == "l"  # the mode of a link has no meaning
        if (
            (header.type, header.size) != (TYPES[member.kind], member.size)
            or (header.mode != contents.MODES[member.kind] and not links)
            or (header.linkname != member.what and links)
        ):
            raise ContentsError(f"{member.path}: has another kind, mode, size or target than in its list")

    def _header(self, wanted: str) -> tarfile.TarInfo:
        """One header block. Extended headers are never read: their length is chosen by the archive's author."""
        block = self._exactly(BLOCK, wanted)
        try:
            return tarfile.TarInfo.frombuf(block, "ascii", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise ContentsError(f"{wanted}: no header of a tar archive where it should be ({error})") from error

    def _file(self, member: Member) -> Iterator[bytes]:
        """The contents of a file; they are known to be right once the iterator has ended."""
        digest = hashlib.sha256()
        left = member.size
        while left:
            chunk = self._exactly(min(left, contents.CHUNK), member.path)
            left -= len(chunk)
            digest.update(chunk)
            yield chunk
        self._skip_padding(member.size, member.path)
        if digest.hexdigest() != member.what:
            raise ContentsError(f"{member.path}: damaged (its digest is not the one in its list)")

    def _skip_padding(self, size: int, path: str) -> None:
        self._exactly(-size % BLOCK, path)

    def _exactly(self, size: int, path: str) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise EndsEarlyError(f"ends before the end of {path}")
        return data


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Archive]:
    """The archive in that file. Raises BadInput if it is no file, or holds no image.

    A ContentsError in the body of the `with` statement becomes a BadInput that names the file.
    """
    with _file(source) as file, tempfile.TemporaryFile() as words, _zstd(file, words) as process:
        assert process.stdout
        try:
            yield Archive(process.stdout, os.fstat(file.fileno()).st_size)
        except ContentsError as error:
            reason = (isinstance(error, EndsEarlyError) and _last_words(process, words)) or error
            raise BadInput(f"{source}: is not {WRITTEN}: {reason}") from error
        finally:
            process.kill()


def _file(source: Path) -> IO[bytes]:
    """Only a regular file: opening a device may have effects, and opening a pipe may block."""
    try:
        if not stat.S_ISREG(source.stat().st_mode):
            raise BadInput(f"{source}: is no regular file; name {WRITTEN}")
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"{source}: {error.strerror}; name {WRITTEN}") from error
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise BadInput(f"{source}: is no regular file; name {WRITTEN}")
    return file


def _zstd(file: IO[bytes], words: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process that decompresses the open file. It ends when we do, because nobody reads its output then."""
    try:
        return subprocess.Popen(["zstd", "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=words)
    except OSError as error:
        raise ImageError(f"zstd: {error.strerror}: {install_here('zstd')}") from error


def _last_words(process: subprocess.Popen[bytes], words: IO[bytes]) -> str:
    """Why zstd stopped; empty if it reached the end of the file."""
    if process.wait() == 0:
        return ""
    words.seek(0)
    return " ".join(words.read(1000).decode(errors="replace").split())


def _write(target: Path, mode: int, chunks: Iterator[bytes]) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        os.fchmod(descriptor, mode)
