"""What an image consists of: a list of its files with their digests, and whether a directory holds exactly these.

The sha256 of the list is the image's digest. The list is text: four lines about the image, then one for each member in
the order of their paths, with a tab between kind, size in bytes, sha256 or link target, and path. Kinds: d directory,
f file, x executable file, l symbolic link. The kind also says the mode, so that none has setuid, setgid or sticky bits
or can be written by others.

This file also runs by itself, on a host to which an image was copied (`python3 -I -S -c SOURCE DIRECTORY DIGEST`), so
it imports the standard library only.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import itertools
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NAME = "contents"  # file name of the list in the image's directory
STAMP = "checked"  # file name of the stamp next to it, which records the state in which everything was checked
FILES = ("root.erofs", "vmlinux", "initrd", "manifest")
TREE = "tree"
TOP = {**dict.fromkeys(FILES, "f"), TREE: "d"}
MODES = {"d": 0o755, "f": 0o644, "x": 0o755, "l": 0o777}

# A real image has 13,000 members, 1.8 GB and 13 levels; its list has 1.4 MB.
LARGEST_LIST = 16 * 2**20  # in bytes
MOST_MEMBERS = 100_000
LARGEST = 8 * 2**30  # of all members together, in bytes
DEEPEST = 40
LONGEST_PATH = 200  # characters; together with LONGEST_TARGET, the limits of a tar header
LONGEST_TARGET = 100

HEAD = re.compile(
    rb"vmtax-image 1\nrecipe ([0-9a-f]{16})\nkernel ([0-9][0-9A-Za-z.+~_-]{0,63})\npackages (0|[1-9]\d{0,5})\n"
)
LINE = re.compile(r"([dfxl])\t(0|[1-9]\d{0,11})\t([!-~]*)\t([ -~]+)", re.ASCII)
SHA256 = re.compile(r"[0-9a-f]{64}")
CHUNK = 2**20
# File timestamps of the kernel are coarse: a change within the same tick would not show.
SETTLED_SECONDS = 1.0
READINGS = 10  # of an image that changes while it is read, as when all of its files are linked elsewhere


class ContentsError(Exception):
    """An invalid list, or a directory with different contents; the text names the member."""


class Member(NamedTuple):
    """One line of the list."""

    kind: str
    size: int  # bytes; 0 for a directory or a link
    what: str  # sha256 of a file, target of a link
    path: str  # relative to the image's directory


class Contents(NamedTuple):
    """The whole list."""

    recipe: str
    kernel: str
    packages: int
    members: tuple[Member, ...]

    def text(self) -> bytes:
        head = f"vmtax-image 1\nrecipe {self.recipe}\nkernel {self.kernel}\npackages {self.packages}\n"
        return head.encode() + lines(self.members)

    @property
    def bytes(self) -> int:
        """The size of all members together."""
        return sum(member.size for member in self.members)

    def digest_of(self, path: str) -> str:
        """The sha256 of that file; empty if there is none."""
        return next((m.what for m in self.members if m.path == path and m.kind in "fx"), "")


def lines(members: Iterable[Member]) -> bytes:
    return "".join(f"{m.kind}\t{m.size}\t{m.what}\t{m.path}\n" for m in members).encode()


def parse(text: bytes) -> Contents:
    """Parse the list. Raises ContentsError for lists that no build writes, and for members that could not be unpacked
    safely.
    """
    if len(text) > LARGEST_LIST or text.count(b"\n") > MOST_MEMBERS:
        raise ContentsError(f"{NAME}: larger than the list of any image")
    head = HEAD.match(text)
    if head is None or not text.endswith(b"\n"):
        raise ContentsError(f"{NAME}: is not the list of an image's files")
    recipe, kernel, packages = (field.decode() for field in head.groups())
    members = []
    for number, line in enumerate(text[head.end() : -1].split(b"\n"), start=5):
        match = LINE.fullmatch(line.decode("ascii", errors="replace"))
        if match is None:
            raise ContentsError(f"{NAME}, line {number}: {line[:80]!a} is not kind, size, digest and path")
        kind, size, what, path = match.groups()
        members.append(Member(kind, int(size), what, path))
    contents = Contents(recipe, kernel, int(packages), tuple(members))
    _check_members(contents)
    return contents


def _check_members(contents: Contents) -> None:
    """Checks that each member is in a directory of the list, and the order: so nothing is listed twice or reached
    through a link.
    """
    directories = {""}
    last: list[str] = []
    for member in contents.members:
        words = member.path.split("/")
        reason = _reason_against(member, words)
        if not reason and words <= last:
            reason = "is not in order, or there twice"
        if not reason and member.path.rpartition("/")[0] not in directories:
            reason = "lies in no directory of the list"
        if reason:
            raise ContentsError(f"{NAME}: {member.path[:LONGEST_PATH]}: {reason}")
        if member.kind == "d":
            directories.add(member.path)
        last = words
    missing = TOP.keys() - {member.path for member in contents.members}
    if missing:
        raise ContentsError(f"{NAME}: {min(missing)}: is missing")
    if contents.bytes > LARGEST:
        raise ContentsError(f"{NAME}: its files have {contents.bytes} bytes; an image has {LARGEST} at most")


def _reason_against(member: Member, words: list[str]) -> str:
    """Why this member cannot be in any image; or an empty string."""
    if any(word in ("", ".", "..") for word in words):
        return "is not a plain path within the image"
    if len(member.path) > LONGEST_PATH or len(words) > DEEPEST:
        return f"is longer than {LONGEST_PATH} characters or deeper than {DEEPEST} directories"
    if len(words) == 1 and TOP.get(member.path) != member.kind:
        return f"is not one of the files {', '.join(FILES)} or the directory {TREE}"
    if member.kind in "fx":
        return "" if SHA256.fullmatch(member.what) else "has no sha256"
    if member.size or (member.kind == "d" and member.what):
        return "has contents and is no file"
    if member.kind == "l" and not 0 < len(member.what) <= LONGEST_TARGET:
        return f"links to nothing, or to more than {LONGEST_TARGET} characters"
    return ""


def listed(directory: str, top: Iterable[str] = tuple(TOP)) -> tuple[Member, ...]:
    """The members in `directory`, with digests of their contents. Raises ContentsError for anything that no image may
    have.
    """
    found = [(path, _member(directory, path, status)) for path, status in _walk(directory, top)]
    odd = next((path for path, member in found if member is None), None)
    if odd is not None:
        raise ContentsError(f"{odd}: is no directory, file or link, or has another mode than those of an image")
    members = [member for _, member in found if member is not None]
    digests = _digests(directory, members)
    return tuple(member._replace(what=digests.get(member.path, member.what)) for member in members)


def _walk(directory: str, top: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Every path among and below these, with its status, in the order of the list. No link is followed."""
    waiting = sorted(top, reverse=True)
    while waiting:
        path = waiting.pop()
        whole = os.path.join(directory, path)
        status = os.lstat(whole)
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            waiting += [f"{path}/{name}" for name in sorted(os.listdir(whole), reverse=True)]


def _member(directory: str, path: str, status: os.stat_result) -> Member | None:
    """The member at `path`, without its digest; None if no image may have such a member."""
    mode, permissions = status.st_mode, stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(mode):
        return Member("l", 0, os.readlink(os.path.join(directory, path)), path)
    if stat.S_ISDIR(mode):
        return Member("d", 0, "", path) if permissions == MODES["d"] else None
    kind = next((kind for kind in "fx" if permissions == MODES[kind]), None)
    return Member(kind, status.st_size, "", path) if kind and stat.S_ISREG(mode) else None


def _digests(directory: str, members: Iterable[Member]) -> dict[str, str]:
    """Path -> sha256, for regular files."""
    paths = [member.path for member in members if member.kind in "fx"]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(pool.map(lambda path: (path, digest(os.path.join(directory, path))), paths))


def digest(path: str) -> str:
    """The sha256 of a regular file."""
    digest = hashlib.sha256()
    with open(_open(path), "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read(path: str, limit: int) -> bytes:
    """Contents of a small regular file. Raises OSError, and ContentsError if it has more than `limit` bytes."""
    with open(_open(path), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ContentsError(f"{path}: has more than {limit} bytes")
    return data


def _open(path: str) -> int:
    """Open for reading; a link, a pipe or a device is refused without blocking."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ContentsError(f"{path}: is no regular file")
    return descriptor


def check(directory: str, wanted: str) -> None:
    """Raises ContentsError unless `directory` holds the image whose list has the sha256 `wanted`; also OSError.

    Reading everything takes seconds. So a stamp stores the state in which everything was right, and it is read again
    once the state differs: in any inode, owner, mode, size or time, or in the boot of this machine. ctime cannot be set
    by a program, so a change that keeps the size shows even if mtime was restored. A hard link to a file changes its
    ctime too, so what changed meanwhile is read again.
    """
    stamp = os.path.join(directory, STAMP)
    for _ in range(READINGS):
        began = time.time()
        state, newest = _state(directory, wanted)
        if _stamped(stamp) == state:
            return
        _compare(directory, wanted)
        if _state(directory, wanted)[0] == state:
            if newest < began - SETTLED_SECONDS:
                _put_stamp(stamp, state)
            return
    raise ContentsError("was changed whenever it was read")


def _compare(directory: str, wanted: str) -> None:
    """Compare everything with the list: first the properties of all members, then the contents of files."""
    text = read(os.path.join(directory, NAME), LARGEST_LIST)
    if hashlib.sha256(text).hexdigest() != wanted:
        raise ContentsError(f"{NAME}: damaged (it is the list of another image)")
    members = parse(text).members
    for member, found in itertools.zip_longest(members, _walk(directory, TOP)):
        if member is None or (found and found[0].split("/") < member.path.split("/")):
            raise ContentsError(f"{found[0]!a}: is in no list of what was built")
        if found is None or found[0] != member.path:
            raise ContentsError(f"{member.path}: is missing")
        actual = _member(directory, *found)
        if actual is None or actual != (member if member.kind == "l" else member._replace(what="")):
            raise ContentsError(f"{member.path}: damaged (its kind, mode, size or target is not the one of the build)")
    digests = _digests(directory, members)
    for member in members:
        if member.kind in "fx" and digests[member.path] != member.what:
            raise ContentsError(f"{member.path}: damaged (its digest is not the one of the build)")


def _state(directory: str, wanted: str) -> tuple[str, float]:
    """(digest of everything that changes with a file, newest ctime in seconds). Raises ContentsError if somebody else
    could change a file.
    """
    boot = ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        pass
    digest = hashlib.sha256(f"{wanted} {boot}\n".encode())
    newest = 0
    for path in (os.path.dirname(directory), directory):
        check_owner(path, os.stat(path))
    for path, status in _walk(directory, (NAME, *TOP)):
        check_owner(path, status)
        fields = (status.st_dev, status.st_ino, status.st_mode, status.st_uid, status.st_gid)
        times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest.update(f"{path}\0{fields} {times}\n".encode(errors="surrogateescape"))
        newest = max(newest, status.st_ctime_ns)
    return digest.hexdigest(), newest / 1e9


def check_owner(path: str, status: os.stat_result) -> None:
    """Raises ContentsError if somebody else can write to `path`."""
    if status.st_uid not in (0, os.geteuid()):
        raise ContentsError(f"{path}: belongs to user {status.st_uid}, who could change what runs here")
    if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode):
        raise ContentsError(f"{path}: can be written by others, who could change what runs here")


def _stamped(path: str) -> str:
    """The state in a stamp of ours; empty if there is none."""
    try:
        status = os.lstat(path)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o600:
            return ""
        return read(path, 1000).decode("ascii", errors="replace")
    except (OSError, ContentsError):
        return ""


def _put_stamp(path: str, state: str) -> None:
    """Best effort: if the stamp cannot be written, everything is read each time."""
    temporary = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(state)
        os.rename(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass


def main() -> None:
    try:
        check(sys.argv[1], sys.argv[2])
    except (ContentsError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
