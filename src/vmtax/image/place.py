"""Carries images between hosts: one file out, one file in, and onto the host under test."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmtax.event import Event, Step
from vmtax.image import cache
from vmtax.image.cache import Image, ImageError
from vmtax.machine import Machine, Reader
from vmtax.machine.local import LocalMachine
from vmtax.outfile import replacing

MEMBERS = (cache.INFO, *cache.FILES, "tree")
# Constant text: the far user's home is known to the far shell only.
MAKE_REMOTE_CACHE = 'umask 077; d=${XDG_CACHE_HOME:-$HOME/.cache}/vmtax/images; mkdir -p "$d" && cd "$d" && pwd'
FIND_IMAGE = 'cd "${XDG_CACHE_HOME:-$HOME/.cache}/vmtax/images/$1" && test -f "$2" && pwd'
UNPACK_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an image lies on one machine; paths as that machine knows them."""

    root: str
    kernel: str
    initrd: str
    tree: str | None = None  # unpacked, for the host layer


# A machine that booted the image has it before it as a disk, and in it what boots the next guest.
IN_GUEST = Placed(root="/dev/vda", kernel="/boot/vmlinux", initrd="/boot/initrd", tree="/")


def export(image: Image, target: Path) -> None:
    """Write the whole image to one file (tar, zstd); replaced in one step."""
    if (target.exists() and not target.is_file()) or not target.parent.is_dir():
        what = "is no regular file" if target.exists() else "its directory does not exist"
        raise ImageError(f"{target}: {what}; name a file, such as image.tar.zst")
    cache.verify(image)
    keeper = LocalMachine()
    try:
        with replacing(target, before=lambda new: keeper.remove_later(PurePosixPath(new))) as stream:
            opened = f"/proc/{os.getpid()}/fd/{stream.fileno()}"  # whatever becomes of its name meanwhile
            _tar(keeper, target, "-cf", opened, "-C", str(image.directory), "--sort=name", *MEMBERS)
    except OSError as error:
        raise ImageError(f"{target}: {error.strerror}; name another file") from error
    finally:
        keeper.close()


def import_(source: Path) -> Image:
    """Install the image in `source`; raises ImageError where it is not whole or its digests do not match."""
    with cache.shelf().workshop() as (keeper, work):
        try:
            _tar(keeper, source, "-xf", str(source.absolute()), "-C", str(work), "--no-same-owner", *MEMBERS)
            work.chmod(0o755)
            image = cache.read(work)
            cache.verify(image)
            return cache.install(work, image)
        except ImageError as error:
            text = str(error).partition(";")[0].replace(f"{work}/", "")
            raise ImageError(f"{source}: not an image that `vmtax image export` wrote: {text}") from error


def _tar(keeper: LocalMachine, file: Path, *argv: str) -> None:
    done = keeper.try_run("tar", "--zstd", *argv, timeout=UNPACK_SECONDS)
    if not done.ok:
        words = done.stderr.strip().splitlines()
        raise ImageError(f"{file}: {words[0] if words else f'tar ended with {done.code}'}")


def place(machine: Machine, local: LocalMachine, image: Image, emit: Callable[[Event], None]) -> Placed:
    """The image on `machine`, copied there where it is not yet."""
    if isinstance(machine, LocalMachine):
        return Placed(str(image.root), str(image.vmlinux), str(image.initrd), str(image.tree))
    if _booted(machine, image):
        return IN_GUEST
    base = PurePosixPath(machine.run("sh", "-c", MAKE_REMOTE_CACHE).strip())
    directory = base / image.identity
    if not machine.succeeds("test", "-f", str(directory / cache.INFO)):
        _copy(machine, local, image, directory, emit)
    return _placed(directory)


def find_placed(reader: Reader, image: Image) -> Placed | None:
    """The image on another host, where an earlier run copied it; None where it is not."""
    if _booted(reader, image):
        return IN_GUEST
    found = reader.try_run("sh", "-c", FIND_IMAGE, "sh", image.identity, cache.INFO)
    return _placed(PurePosixPath(found.stdout.strip())) if found.ok else None


def _booted(reader: Reader, image: Image) -> bool:
    """Whether the machine runs from that very image."""
    return reader.try_run("cat", f"/{cache.IDENTITY}").stdout.strip() == image.identity


def _placed(directory: PurePosixPath) -> Placed:
    return Placed(*(str(directory / name) for name in ("root.erofs", "vmlinux", "initrd", "tree")))


def _copy(
    machine: Machine, local: LocalMachine, image: Image, directory: PurePosixPath, emit: Callable[[Event], None]
) -> None:
    """Through a directory of the run's, so that what is in place is whole; the rename is the last step."""
    incoming = directory.with_name(f"{cache.INCOMING}{image.identity}-{local.token}")
    machine.remove_later(incoming)
    emit(Step("copying the root image", f"to {machine.path}", 0.0))
    packed = Path(local.scratch) / "image.tar.zst"
    export(image, packed)
    machine.run("mkdir", "-m", "700", str(incoming))
    emit(Step("copying the root image", f"{packed.stat().st_size / 2**20:.0f} MiB", 0.3))
    machine.push(packed, incoming / "image", timeout=UNPACK_SECONDS)
    packed.unlink()
    emit(Step("copying the root image", "unpacking", 0.7))
    remedy = "tar and zstd are needed there (Debian: apt-get install zstd)"
    unpack = ("tar", "--zstd", "-xf", str(incoming / "image"), "-C", str(incoming), "--no-same-owner")
    machine.run(*unpack, timeout=UNPACK_SECONDS, remedy=remedy)
    machine.run("rm", str(incoming / "image"))
    emit(Step("copying the root image", "verifying", 0.9))
    _verify(machine, image, incoming)
    # Another run may have been faster: then its copy serves, and ours goes with the undo list.
    if not machine.succeeds("mv", "-T", str(incoming), str(directory)):
        machine.run("test", "-f", str(directory / cache.INFO))
    emit(Step("copying the root image", "done", 1.0))


def _verify(machine: Machine, image: Image, directory: PurePosixPath) -> None:
    """Raises ImageError where a file did not arrive as it left."""
    listed = machine.run("sha256sum", *(str(directory / name) for name in cache.FILES), timeout=UNPACK_SECONDS)
    arrived = {line.rpartition("/")[2]: line.partition(" ")[0] for line in listed.splitlines()}
    wrong = [name for name in cache.FILES if arrived.get(name) != image.digests[name]]
    if wrong:
        raise ImageError(f"{machine.path}: {directory / wrong[0]} did not arrive whole; start the run again")
