"""Where images live: XDG_CACHE_HOME/vmtax/images/IDENTITY, complete or not there at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter

from vmtax.exits import CannotDo
from vmtax.image import recipe
from vmtax.machine.local import LocalMachine
from vmtax.places import cache_home, make_private

INFO = "image.json"
INCOMING = ".incoming-"  # begins the name of a directory that is being copied here
IDENTITY = "usr/lib/vmtax/identity"  # in the tree: by it a machine that booted the image knows which
FILES = ("root.erofs", "vmlinux", "initrd", "manifest")


class ImageError(CannotDo):
    """An image cannot be built, found, or trusted; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """One complete image on this host."""

    directory: Path
    identity: str  # digest of manifest and recipe: same packages and versions, same identity
    recipe: str  # recipe.key() at build time
    kernel: str  # release of its kernel
    created: float  # seconds since the epoch
    packages: int  # how many
    bytes: int  # of root.erofs, vmlinux and initrd together
    digests: dict[str, str]  # file name -> sha256; "tree" -> digest of the tree's listing

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
        """Lines "package version", sorted."""
        return (self.directory / "manifest").read_text().splitlines()


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
            # What a killed build or removal left: nobody else builds while we hold the lock.
            for entry in self.half_made():
                shutil.rmtree(entry, ignore_errors=True)
            yield

    @contextlib.contextmanager
    def workshop(self) -> Iterator[tuple[LocalMachine, Path]]:
        """A directory to make something in, alone, and who runs the commands for it.

        At the end, after SIGKILL too, the keeper's guard ends its processes and removes what was not moved away.
        """
        with self.locked():
            keeper = LocalMachine()
            try:
                work = self.directory / f".building-{keeper.token}"
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

    def half_made(self) -> list[Path]:
        """Directories that are not whole: of a build or removal that was killed, or of one that goes on just now."""
        # What another host's run is copying here has its own guard.
        entries = (path for path in self.directory.glob("*") if path.is_dir() and not path.name.startswith(INCOMING))
        return [path for path in entries if not self.is_whole(path)]


def shelf() -> Shelf:
    """Where the images are."""
    return Shelf(images_directory(), _is_whole)


def _is_whole(directory: Path) -> bool:
    with contextlib.suppress(ImageError):
        read(directory)
        return True
    return False


def read(directory: Path) -> Image:
    """The image in `directory`; raises ImageError where it is not a whole one."""
    try:
        info = json.loads((directory / INFO).read_text())
        return TypeAdapter(Image).validate_python({**info, "directory": directory})
    except (OSError, ValueError, TypeError) as error:
        raise ImageError(f"{directory}: not a whole image ({error})") from error


def images() -> list[Image]:
    """All whole images, newest first."""
    found = []
    for path in images_directory().glob(f"*/{INFO}"):
        with contextlib.suppress(ImageError):
            found.append(read(path.parent))
    return sorted(found, key=lambda image: image.created, reverse=True)


def current() -> Image | None:
    """The newest image of the present recipe."""
    return next((image for image in images() if image.recipe == recipe.key()), None)


def find(identity: str) -> Image:
    """The image whose identity starts so; raises ImageError where there is none or more than one."""
    found = [image for image in images() if identity and image.identity.startswith(identity)]
    if len(found) != 1:
        have = ", ".join(image.identity for image in images()) or "none"
        raise ImageError(f"{'no' if not found else 'more than one'} image '{identity}'; there are: {have}")
    return found[0]


def verify(image: Image) -> None:
    """Raises ImageError where a file is not what was built, or the identity not the one of its files."""
    manifest = image.directory / "manifest"
    whole = image.digests.keys() == {*FILES, "tree"} and manifest.is_file()
    if not whole or image.identity != identity(manifest.read_bytes(), image.recipe):
        raise ImageError(f"{image.directory}: damaged (its identity or digests are not those of its files)")
    for name, wanted in image.digests.items():
        try:
            actual = tree_digest(image.tree) if name == "tree" else file_digest(image.directory / name)
        except OSError as error:
            raise ImageError(f"{error.filename}: {error.strerror}; {_rebuild(image)}") from error
        if actual != wanted:
            raise ImageError(
                f"{image.directory / name}: damaged (its digest is not the one of the build); {_rebuild(image)}"
            )


def _rebuild(image: Image) -> str:
    return f"`vmtax image remove {image.identity}` and it is built anew"


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_digest(tree: Path) -> str:
    """Of every path, kind, executable bit, size and link target.

    Not of the contents, which would take longer than a boot to read, nor of the other mode bits: they differ when
    somebody else than root unpacks.
    """
    digest = hashlib.sha256()
    for directory, subdirectories, names in os.walk(tree):
        subdirectories.sort()
        for name in sorted([*names, *subdirectories]):
            path = os.path.join(directory, name)  # noqa: PTH118 (20,000 files)
            status = os.lstat(path)
            target = os.readlink(path) if os.path.islink(path) else ""  # noqa: PTH114, PTH115
            size = 0 if name in subdirectories else status.st_size
            mode = stat.S_IFMT(status.st_mode) | (status.st_mode & stat.S_IXUSR)
            digest.update(f"{os.path.relpath(path, tree)}\0{mode:o}\0{size}\0{target}\n".encode())
    return digest.hexdigest()


def identity(manifest: bytes, recipe_key: str) -> str:
    """Digest of the packages with their versions and of the recipe."""
    return hashlib.sha256(manifest + recipe_key.encode()).hexdigest()[:12]


def describe(directory: Path, *, kernel: str, recipe_key: str, created: float) -> Image:
    """Write image.json for the files in `directory`; last of all, since it is what makes an image whole."""
    manifest = (directory / "manifest").read_bytes()
    image = Image(
        directory=directory,
        identity=identity(manifest, recipe_key),
        recipe=recipe_key,
        kernel=kernel,
        created=created,
        packages=manifest.count(b"\n"),
        bytes=sum((directory / name).stat().st_size for name in FILES),
        digests={**{name: file_digest(directory / name) for name in FILES}, "tree": tree_digest(directory / "tree")},
    )
    info = {key: value for key, value in asdict(image).items() if key != "directory"}
    (directory / INFO).write_text(json.dumps(info, indent=1))
    return image


def install(directory: Path, image: Image) -> Image:
    """Move a complete image into place in one step; one of the same identity that is there already stays."""
    target = images_directory() / image.identity
    if target.exists():
        with contextlib.suppress(ImageError):
            old = read(target)
            verify(old)
            return old
        shutil.rmtree(target)
    os.sync()
    directory.rename(target)
    return read(target)


def remove(image: Image) -> None:
    """The marker goes first, so that an interrupted removal leaves no image that looks whole."""
    with shelf().locked():
        (image.directory / INFO).unlink()
        shutil.rmtree(image.directory)
