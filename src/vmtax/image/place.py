"""Transport images: export to a file, import from a file, and copy to the host under test."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from vmtax.core.errors import BadInput
from vmtax.core.events import Event, Step
from vmtax.core.units import format_room
from vmtax.image import archive, cache, contents
from vmtax.image.cache import SHORT, Image, ImageError
from vmtax.image.packs import Pack
from vmtax.machine import Machine, Reader
from vmtax.machine.answer import sha256_of
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.machine.packages import install
from vmtax.system.output_file import replacing

# The list first, then its members in its order; headers of a fixed size with nothing that is not in the list.
TAR = (
    *("--format=ustar", "--hard-dereference", "--no-recursion", "--owner=0", "--group=0", "--numeric-owner"),
    *("--mtime=@0", "--verbatim-files-from", "--files-from=-"),
)
# What tar says, and how it ends, if a file's inode changed meanwhile: also if another program only made a link to it.
CHANGED, CHANGED_CODE = "file changed as we read it", 1
# Constant text: only the remote shell knows the remote user's home.
MAKE_REMOTE_CACHE = (
    "umask 077; d=${XDG_CACHE_HOME:-${HOME:?is not set on that host}/.cache}/vmtax/images; "
    'mkdir -p "$d" && cd "$d" && pwd'
)
FIND_IMAGE = 'cd "${XDG_CACHE_HOME:-$HOME/.cache}/vmtax/images/$1" && test -f "$2" && pwd'
LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"  # in the tree
IN_VM = "name another directory in the VM with --guest-dir"
PUSH_SECONDS = 1800.0  # over the connection to a machine


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an image is on one machine; paths are the machine's."""

    root: str
    kernel: str
    initrd: str
    tree: str | None = None  # unpacked, for the host layer
    bubblewrap: tuple[str, ...] = ("bwrap",)  # the command that enters the tree

    @property
    def with_own_bubblewrap(self) -> Placed:
        """The same, entered by the image's own bubblewrap, for a machine that has none."""
        loader = (f"{self.tree}/{LOADER}", "--library-path", f"{self.tree}/usr/lib/x86_64-linux-gnu")
        return replace(self, bubblewrap=(*loader, f"{self.tree}/usr/bin/bwrap"))


# A machine that booted the image has it as its first disk, with kernel and initramfs for the next guest in /boot.
IN_GUEST = Placed(root="/dev/vda", kernel="/boot/vmlinux", initrd="/boot/initrd", tree="/")


def export(image: Image, target: Path) -> None:
    """Write the whole image to one file (tar, zstd); replaced in one step."""
    if (target.exists() and not target.is_file()) or not target.parent.is_dir():
        what = "is no regular file" if target.exists() else "its directory does not exist"
        raise BadInput(f"{target}: {what}; name a file, such as image.tar.zst")
    cache.verify(image)
    keeper = LocalMachine()
    try:
        with replacing(target, before=lambda new: keeper.remove_later(PurePosixPath(new))) as stream:
            opened = f"/proc/{os.getpid()}/fd/{stream.fileno()}"  # independent of what happens to its name meanwhile
            text = contents.read(str(image.directory / contents.NAME), contents.LARGEST_LIST)
            names = "".join(f"{name}\n" for name in (contents.NAME, *(m.path for m in contents.parse(text).members)))
            _pack(keeper, image, opened, str(target), *TAR, names=names)
    except OSError as error:
        raise ImageError(f"{target}: {error.strerror}; name another file") from error
    finally:
        keeper.close()


def _pack(machine: LocalMachine, image: Image, to: str, shown: str, *what: str, names: str | None = None) -> None:
    """Write files of an image to an archive, which messages call `shown`. Raises ImageError."""
    done = machine.try_run("tar", "--zstd", "-cf", to, "-C", str(image.directory), *what, input=names)
    words = done.stderr.strip().splitlines()
    if done.code == CHANGED_CODE and words and all(line.endswith(CHANGED) for line in words):
        cache.verify(image)
    elif not done.ok:
        raise ImageError(f"{shown}: {words[0] if words else f'tar ended with {done.code}'}")


def import_(source: Path, accept: Callable[[str], None]) -> Image:
    """Install the image in `source`. `accept` gets its digest before anything is unpacked, and raises to refuse it.

    Raises BadInput if `source` is no image, and ImageError if it cannot be installed.
    """
    with archive.opened(source) as opened:
        accept(opened.digest)
        with cache.shelf().workshop() as (_, work):
            try:
                _check_room(work, opened.contents.bytes)
                opened.unpack(work)
                work.chmod(0o755)
                return cache.install(work)
            except OSError as error:
                raise ImageError(f"{source}: {error.filename or work}: {error.strerror}") from error


def _check_room(directory: Path, size: int) -> None:
    """Raises OSError if `size` bytes do not fit, before the disk is full."""
    if shutil.disk_usage(directory).free < size:
        raise OSError(errno.ENOSPC, f"{format_room(size)} are needed; set XDG_CACHE_HOME", str(directory))


def place(machine: Machine, local: LocalMachine, image: Image, emit: Callable[[Event], None]) -> Placed:
    """The image on `machine`, copied there if necessary. Raises ImageError if it differs from the build."""
    if isinstance(machine, LocalMachine):
        placed = Placed(str(image.root), str(image.vmlinux), str(image.initrd), str(image.tree))
    elif _booted(machine, image):
        return IN_GUEST
    else:
        base = PurePosixPath(machine.run("sh", "-c", MAKE_REMOTE_CACHE).strip())
        directory = base / image.identity
        placed = _placed(directory)
        if not machine.succeeds("test", "-f", str(directory / contents.NAME)):
            _copy(machine, local, image, directory, emit)
            return placed
    check(machine, image, placed)
    return placed


def place_for_run(
    machine: Machine, local: LocalMachine, image: Image, parent: PurePosixPath, emit: Callable[[Event], None]
) -> Placed:
    """The image's programs in a directory of `parent` on somebody's machine, which is removed when the run ends.

    No guest is booted from them, so there is no kernel. Raises ImageError if they arrive otherwise than they were sent.
    """
    if _booted(machine, image):
        return IN_GUEST
    directory = parent / local.fresh_name("image")
    machine.remove_later(directory)
    machine.run("mkdir", "-m", "700", str(directory), remedy=IN_VM)
    packed, there = Path(local.scratch) / "tree.tar.zst", directory / "tree.tar.zst"
    emit(Step("copying the image's programs", f"to {machine.path}", 0.0))
    cache.verify(image)
    _pack(local, image, str(packed), str(packed), "--hard-dereference", image.tree.name)
    emit(Step("copying the image's programs", f"{format_room(packed.stat().st_size)}", 0.2))
    machine.push(packed, there, timeout=PUSH_SECONDS)
    digest = sha256_of(machine, f"sha256sum {there}", machine.run("sha256sum", str(there)))
    with packed.open("rb") as file:
        if digest != hashlib.file_digest(file, "sha256").hexdigest():
            raise ImageError(f"{machine.path}: {there} is not what was sent; run again")
    packed.unlink()
    emit(Step("copying the image's programs", "unpacking", 0.8))
    machine.run("tar", "--zstd", "-xpf", str(there), "-C", str(directory), "--no-same-owner", remedy=IN_VM)
    machine.run("rm", str(there))
    emit(Step("copying the image's programs", "done", 1.0))
    return Placed("", "", "", str(directory / image.tree.name))


def check(machine: Machine, image: Image, placed: Placed) -> None:
    """Raises ImageError unless each file of the image on that machine is as it was built; call before running any of
    it.
    """
    if isinstance(machine, LocalMachine):
        cache.verify(image)
    elif placed != IN_GUEST:  # IN_GUEST is read-only, and the running system
        _check_there(machine, image, PurePosixPath(placed.root).parent)


def place_pack(machine: Machine, local: LocalMachine, pack: Pack, emit: Callable[[Event], None]) -> str:
    """The pack's file on `machine`, copied there if necessary. Raises ImageError if it differs."""
    if isinstance(machine, LocalMachine):
        return str(pack.path)
    base = PurePosixPath(machine.run("sh", "-c", MAKE_REMOTE_CACHE).strip()).parent
    file = base / f"pack-{pack.digest[:SHORT]}.erofs"
    if not machine.succeeds("test", "-f", str(file)):
        incoming = file.with_name(f"{cache.INCOMING}{file.name}-{local.token}")
        machine.remove_later(incoming)
        emit(Step("copying a pack", f"{format_room(pack.bytes)} to {machine.path}", 0.0))
        machine.push(pack.path, incoming, timeout=PUSH_SECONDS)
        machine.run("mv", "-T", str(incoming), str(file))
    digest = sha256_of(machine, f"sha256sum {file}", machine.run("sha256sum", str(file)))
    if digest != pack.digest:
        raise ImageError(f"{machine.path}: {file}: has another digest than was built; remove it there, and run again")
    return str(file)


def _check_there(machine: Machine, image: Image, directory: PurePosixPath) -> None:
    source = resources.files("vmtax.image").joinpath("contents.py").read_text(encoding="utf-8")
    done = machine.try_run(PYTHON, *ISOLATED, source, str(directory), image.digest)
    if not done.ok:
        words = done.stderr.strip().splitlines()
        reason = words[-1] if words else f"{PYTHON} ended with {done.code}"
        raise ImageError(f"{machine.path}: {directory}: {reason}; remove it there, and it is copied anew")


def find_placed(reader: Reader, image: Image) -> Placed | None:
    """The image on another host, if an earlier run copied it there; else None."""
    if _booted(reader, image):
        return IN_GUEST
    listing = reader.try_run("sh", "-c", FIND_IMAGE, "sh", image.identity, contents.NAME)
    return _placed(PurePosixPath(listing.stdout.strip())) if listing.ok else None


def _booted(reader: Reader, image: Image) -> bool:
    """Whether the machine has booted this very image."""
    said = reader.try_run("cat", f"/{cache.IDENTITY}").stdout
    return hashlib.sha256(said.encode()).hexdigest() == image.mark


def _placed(directory: PurePosixPath) -> Placed:
    root, kernel, initrd, tree = (str(directory / name) for name in ("root.erofs", "vmlinux", "initrd", "tree"))
    return Placed(root, kernel, initrd, tree)


def _copy(
    machine: Machine, local: LocalMachine, image: Image, directory: PurePosixPath, emit: Callable[[Event], None]
) -> None:
    """Copy to a temporary directory of the run first; the last step is a rename, so the destination is always
    complete.
    """
    incoming = directory.with_name(f"{cache.INCOMING}{image.identity}-{local.token}")
    machine.remove_later(incoming)
    emit(Step("copying the root image", f"to {machine.path}", 0.0))
    packed = Path(local.scratch) / "image.tar.zst"
    export(image, packed)
    machine.run("mkdir", "-m", "700", str(incoming))
    emit(Step("copying the root image", f"{packed.stat().st_size / 2**20:.0f} MiB", 0.3))
    machine.push(packed, incoming / "image", timeout=PUSH_SECONDS)
    packed.unlink()
    emit(Step("copying the root image", "unpacking", 0.7))
    remedy = f"tar and zstd are needed there: {install(machine, 'tar', 'zstd')}"
    unpack = ("tar", "--zstd", "-xpf", str(incoming / "image"), "-C", str(incoming), "--no-same-owner")
    machine.run(*unpack, remedy=remedy)
    machine.run("rm", str(incoming / "image"))
    emit(Step("copying the root image", "verifying", 0.9))
    _check_there(machine, image, incoming)
    # Another run may have been faster: then its copy is used, and ours is removed with the undo list.
    if not machine.succeeds("mv", "-T", str(incoming), str(directory)):
        _check_there(machine, image, directory)
    emit(Step("copying the root image", "done", 1.0))
