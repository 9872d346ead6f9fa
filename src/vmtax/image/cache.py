"""Where images live: XDG_CACHE_HOME/vmtax/images/IDENTITY, complete or not there at all."""

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
from vmtax.image.contents import ContentsError
from vmtax.machine import tree
from vmtax.machine.local import LocalMachine
from vmtax.system.paths import cache_home, make_private

INCOMING = ".incoming-"  # begins the name of a directory that is being copied here
BUILDING, REMOVING = ".building-", ".removing-"  # begin the names of what its maker or remover will not leave so
IDENTITY = "usr/lib/vmtax/identity"  # in the tree: by it a machine that booted the image knows which
SHORT = 12  # digits of a digest by which people name an image


class ImageError(CannotDo):
    """An image cannot be built, found, or trusted; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """One complete image on this host."""

    directory: Path
    digest: str  # sha256 of its contents list: another file in it, another digest
    recipe: str  # recipe.key() at build time
    kernel: str  # release of its kernel
    packages: int  # how many
    bytes: int  # of all its files
    mark: str  # sha256 of IDENTITY in its tree
    created: float  # when it was built or imported here, seconds since the epoch

    @property
    def identity(self) -> str:
        """What people call it, and its directory: the start of its digest."""
        return self.digest[:SHORT]

    @property
    def tree(self) -> Path:
        """The root file system unpacked: what the host layer enters."""
        return self.directory / "tree"

    @property
    def root(self) -> Path:
        """The same as an erofs image: what a guest boots."""
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
    """Directories, each complete or not there at all, that are made and removed by one process at a time."""

    directory: Path
    is_whole: Callable[[Path], bool]  # whether a directory on it is complete

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Held alone: a second build waits for the first and then finds what that made."""
        try:
            make_private(self.directory)
            lock = (self.directory / ".lock").open("a")
        except OSError as error:
            cure = "set XDG_CACHE_HOME to a directory you can write"
            raise ImageError(f"{self.directory}: {error.strerror}; {cure}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Nobody else builds while we hold the lock. What else is not whole may be another version's, and in use.
            for entry in self.unfinished():
                with contextlib.suppress(ImageError):
                    remove_tree(entry)
            yield

    def remove(self, directory: Path) -> None:
        """Whole or not. Moved first, so that an interrupted removal leaves nothing that looks whole; the next sweeps.

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
        """A directory to make something in, alone, and who runs the commands for it.

        At the end, after SIGKILL too, the keeper's guard ends its processes and removes what was not moved away.
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
        """What is not whole; nothing while something is being made: it may be that."""
        return [] if self.is_locked() else self.half_made()

    def half_made(self) -> list[Path]:
        """Directories that are not whole: unfinished, damaged, or of another version of vmtax."""
        return [path for path in self.entries() if not self.is_whole(path)]

    def unfinished(self) -> list[Path]:
        """Directories of a build or removal that was killed, or that goes on just now."""
        return [path for path in self.entries() if path.name.startswith((BUILDING, REMOVING))]

    def entries(self) -> list[Path]:
        """Every directory on it, whole or not, but what another host's run copies here, which has its own guard."""
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
    """However deep it is. Raises ImageError if something cannot be removed."""
    with _removing(directory):
        tree.remove(str(directory))


@contextlib.contextmanager
def _removing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ImageError(f"{directory} cannot be removed: {error.strerror}") from error


def shelf() -> Shelf:
    """Where the images are."""
    return Shelf(images_directory(), _is_whole)


def _is_whole(directory: Path) -> bool:
    with contextlib.suppress(ImageError):
        return read(directory).identity == directory.name
    return False


def read(directory: Path) -> Image:
    """The image in `directory`, by its list; raises ImageError if it has none. Its files are not looked at."""
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
    """All whole images, newest first."""
    found = []
    for path in shelf().entries():
        with contextlib.suppress(ImageError):
            image = read(path)
            if image.identity == path.name:
                found.append(image)
    return sorted(found, key=lambda image: image.created, reverse=True)


def current() -> Image | None:
    """The newest image of the present recipe."""
    return next((image for image in images() if image.recipe == recipe.key()), None)


def find(identity: str) -> Image:
    """The image whose digest starts so; raises BadInput if there is none or more than one."""
    matching = [image for image in images() if identity and image.digest.startswith(identity)]
    if len(matching) != 1:
        have = ", ".join(image.identity for image in images()) or "none"
        raise BadInput(f"{'no' if not matching else 'more than one'} image '{identity}'; there are: {have}")
    return matching[0]


def verify(image: Image) -> None:
    """Raises ImageError if a file is not as it was built. Call this before running anything in an image."""
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
    """Write the contents list of the files in `directory`; last of all, since it is what makes an image whole."""
    packages = (directory / "manifest").read_bytes().count(b"\n")
    text = contents.Contents(recipe_key, kernel, packages, contents.listed(str(directory))).text()
    contents.parse(text)  # what could not be imported is not built
    (directory / contents.NAME).write_bytes(text)
    (directory / contents.NAME).chmod(0o644)
    return read(directory)


def install(directory: Path) -> Image:
    """Move a complete image into place in one step; the same one that is there already, and not damaged, stays."""
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
    """Raises ImageError if it cannot be."""
    shelf().remove(image.directory)
