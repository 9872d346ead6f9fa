"""Stored images: XDG_CACHE_HOME/vmtax/images/IDENTITY, each complete or absent."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmtax.core.errors import BadInput, CannotDo
from vmtax.image import contents, recipe
from vmtax.image.additions import NOTHING, Additions
from vmtax.image.contents import ContentsError
from vmtax.machine import tree
from vmtax.machine.local import LocalMachine
from vmtax.system.paths import cache_home, make_private

INCOMING = ".incoming-"  # name prefix of a directory that is being copied here
BUILDING, REMOVING = ".building-", ".removing-"  # name prefixes of directories that are being made or removed
IDENTITY = "usr/lib/vmtax/identity"  # file in the tree that tells a machine which image it booted
SHORT = 12  # digits of a digest that identify an image for people


class ImageError(CannotDo):
    """An image cannot be built, found, or trusted; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """One complete image on this host."""

    directory: Path
    digest: str  # sha256 of its contents list; changes with any file in it
    recipe: str  # recipe.key() at build time
    kernel: str  # release of its kernel
    packages: int  # number of packages
    bytes: int  # of all files together
    mark: str  # sha256 of IDENTITY in its tree
    created: float  # when it was built or imported here, seconds since the epoch

    @property
    def identity(self) -> str:
        """Its name for people and for its directory: the start of its digest."""
        return self.digest[:SHORT]

    @property
    def tree(self) -> Path:
        """The unpacked root file system, which the host layer enters."""
        return self.directory / "tree"

    @property
    def root(self) -> Path:
        """The same as an erofs image, which guests boot."""
        return self.directory / "root.erofs"

    @property
    def vmlinux(self) -> Path:
        return self.directory / "vmlinux"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd"

    def manifest(self) -> list[str]:
        """Lines "package version", sorted. Raises ImageError if it cannot be read."""
        with _trouble(self):
            return contents.read(str(self.directory / "manifest"), contents.LARGEST_LIST).decode("ascii").splitlines()


def images_directory() -> Path:
    return cache_home() / "images"


@dataclass(frozen=True, slots=True)
class Shelf:
    """Directories, each complete or absent, that only one process at a time may make or remove."""

    directory: Path
    is_whole: Callable[[Path], bool]  # whether a directory on it is complete

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock: a second build waits for the first, and then finds its result."""
        try:
            make_private(self.directory)
            lock = (self.directory / ".lock").open("a")
        except OSError as error:
            cure = "set XDG_CACHE_HOME to a directory you can write"
            raise ImageError(f"{self.directory}: {error.strerror}; {cure}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Nobody else builds while we hold the lock. Other incomplete entries may belong to another version, and be
            # in use.
            for entry in self.unfinished():
                with contextlib.suppress(ImageError):
                    remove_tree(entry)
            yield

    def remove(self, directory: Path) -> None:
        """Remove a directory, complete or not. It is renamed first, so that an interrupted removal leaves nothing that
        looks complete; the next user of the lock deletes the rest.

        Raises ImageError if it cannot be removed.
        """
        with self.locked():
            work = directory.with_name(f"{REMOVING}{directory.name.removeprefix(REMOVING)}")
            with _removing(directory):
                if directory.exists():
                    directory.rename(work)
            remove_tree(work)

    @contextlib.contextmanager
    def workshop(self) -> Iterator[tuple[LocalMachine, Path]]:
        """Under the lock: a machine to run commands on, and an empty directory to make something in.

        At the end, even after SIGKILL, the machine's guard ends its processes and removes what was not moved away.
        """
        with self.locked():
            keeper = LocalMachine()
            try:
                work = self.directory / f"{BUILDING}{keeper.token}"
                keeper.remove_later(PurePosixPath(work))
                work.mkdir(mode=0o700)
                yield keeper, work
            finally:
                keeper.close()

    def is_locked(self) -> bool:
        """Whether something is being made or removed just now."""
        try:
            with (self.directory / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def left(self) -> list[Path]:
        """Incomplete directories; none while something is being made, because they may belong to it."""
        return [] if self.is_locked() else self.half_made()

    def half_made(self) -> list[Path]:
        """Incomplete directories: unfinished, damaged, or of another version of vmtax."""
        return [path for path in self.entries() if not self.is_whole(path)]

    def unfinished(self) -> list[Path]:
        """Directories of builds or removals that were killed or are in progress."""
        return [path for path in self.entries() if path.name.startswith((BUILDING, REMOVING))]

    def entries(self) -> list[Path]:
        """All directories, complete or not, except copies in progress from another host, which has its own guard."""
        try:
            paths = sorted(path for path in self.directory.iterdir() if path.is_dir() and not path.is_symlink())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ImageError(
                f"{self.directory}: {error.strerror}; set XDG_CACHE_HOME to a directory of yours"
            ) from error
        return [path for path in paths if not path.name.startswith(INCOMING)]


def remove_tree(directory: Path) -> None:
    """Remove a tree of any depth. Raises ImageError if something cannot be removed."""
    with _removing(directory):
        tree.remove(str(directory))


@contextlib.contextmanager
def _removing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ImageError(f"{directory} cannot be removed: {error.strerror}") from error


def shelf() -> Shelf:
    """The shelf of the images."""
    return Shelf(images_directory(), _is_whole)


def _is_whole(directory: Path) -> bool:
    with contextlib.suppress(ImageError):
        return read(directory).identity == directory.name
    return False


def read(directory: Path) -> Image:
    """The image in `directory`, according to its list. Raises ImageError if there is none. Its files are not
    checked.
    """
    path = directory / contents.NAME
    try:
        text = contents.read(str(path), contents.LARGEST_LIST)
        listed = contents.parse(text)
        created = path.stat().st_mtime
    except (OSError, ContentsError) as error:
        raise ImageError(f"{directory}: not a whole image ({error})") from error
    return Image(
        directory=directory,
        digest=hashlib.sha256(text).hexdigest(),
        recipe=listed.recipe,
        kernel=listed.kernel,
        packages=listed.packages,
        bytes=listed.bytes,
        mark=listed.digest_of(f"{contents.TREE}/{IDENTITY}"),
        created=created,
    )


def images() -> list[Image]:
    """All complete images, newest first."""
    found = []
    for path in shelf().entries():
        with contextlib.suppress(ImageError):
            image = read(path)
            if image.identity == path.name:
                found.append(image)
    return sorted(found, key=lambda image: image.created, reverse=True)


def current(additions: Additions = NOTHING) -> Image | None:
    """The newest image of the present recipe with these additions."""
    wanted = recipe.key(additions)
    return next((image for image in images() if image.recipe == wanted), None)


def find(identity: str) -> Image:
    """The image whose digest starts with `identity`. Raises BadInput if there is none or more than one."""
    matching = [image for image in images() if identity and image.digest.startswith(identity)]
    if len(matching) != 1:
        have = ", ".join(image.identity for image in images()) or "none"
        raise BadInput(f"{'no' if not matching else 'more than one'} image '{identity}'; there are: {have}")
    return matching[0]


def verify(image: Image) -> None:
    """Raises ImageError if a file differs from the build. Call this before running anything in an image."""
    with _trouble(image):
        contents.check(str(image.directory), image.digest)


@contextlib.contextmanager
def _trouble(image: Image) -> Iterator[None]:
    cure = f"`vmtax image remove {image.identity}` and it is built anew"
    try:
        yield
    except ContentsError as error:
        raise ImageError(f"{image.directory}: {error}; {cure}") from error
    except OSError as error:
        raise ImageError(f"{error.filename}: {error.strerror}; {cure}") from error
    except UnicodeDecodeError as error:
        raise ImageError(f"{image.directory}: damaged (not text); {cure}") from error


def describe(directory: Path, *, kernel: str, recipe_key: str) -> Image:
    """Write the contents list of the files in `directory`; this comes last, because it makes the image complete."""
    packages = (directory / "manifest").read_bytes().count(b"\n")
    text = contents.Contents(recipe_key, kernel, packages, contents.listed(str(directory))).text()
    contents.parse(text)  # do not build an image that could not be imported
    (directory / contents.NAME).write_bytes(text)
    (directory / contents.NAME).chmod(0o644)
    return read(directory)


def install(directory: Path) -> Image:
    """Move a complete image into place in one step; an undamaged image that is there already stays."""
    image = read(directory)
    target = images_directory() / image.identity
    if _is_whole(target):
        old = read(target)
        if old.digest != image.digest:
            raise ImageError(f"{target} is another image, whose digest begins alike: vmtax image remove {old.identity}")
        with contextlib.suppress(ImageError):
            verify(old)
            return old
    remove_tree(target)
    os.sync()
    directory.rename(target)
    return read(target)


def remove(image: Image) -> None:
    """Raises ImageError if it cannot be removed."""
    shelf().remove(image.directory)
