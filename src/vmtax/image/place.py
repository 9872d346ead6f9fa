"""Carries images between hosts: one file out, one file in, and onto the host under test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmtax.event import Event, Step
from vmtax.image import cache
from vmtax.image.cache import Image, ImageError
from vmtax.machine import Machine
from vmtax.machine.local import LocalMachine

MEMBERS = (cache.INFO, *cache.FILES, "tree")
REMOTE_CACHE = "${XDG_CACHE_HOME:-$HOME/.cache}/vmtax/images"
UNPACK_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an image lies on one machine; paths as that machine knows them."""

    root: str
    kernel: str
    initrd: str
    tree: str | None = None  # unpacked, for the host layer


# A guest has its own root image before it, and in it what boots the next guest.
IN_GUEST = Placed(root="/dev/vda", kernel="/boot/vmlinux", initrd="/boot/initrd")


def export(image: Image, target: Path) -> None:
    """Write the whole image to one file (tar, zstd); replaced in one step."""
    cache.verify(image)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    argv = ["tar", "--zstd", "-cf", str(temporary), "-C", str(image.directory), "--sort=name", *MEMBERS]
    try:
        _tar(argv, target)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def import_(source: Path) -> Image:
    """Install the image in `source`; raises ImageError where it is not whole or its digests do not match."""
    with cache.locked() as directory:
        work = Path(tempfile.mkdtemp(prefix=".building-", dir=directory))
        try:
            _tar(["tar", "--zstd", "-xf", str(source), "-C", str(work), "--no-same-owner", *MEMBERS], source)
            work.chmod(0o755)
            image = cache.read(work)
            cache.verify(image)
            return cache.install(work, image)
        except ImageError as error:
            text = str(error).partition(";")[0].replace(f"{work}/", "")
            raise ImageError(f"{source}: not an image that `vmtax image export` wrote: {text}") from error
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _tar(argv: list[str], file: Path) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise ImageError(f"{file}: {words[0] if words else f'tar ended with {done.returncode}'}")


def place(machine: Machine, image: Image, emit: Callable[[Event], None]) -> Placed:
    """The image on `machine`, copied there where it is not yet."""
    if isinstance(machine, LocalMachine):
        return Placed(str(image.root), str(image.vmlinux), str(image.initrd), str(image.tree))
    # Constant text: the far user's home is known to the far shell only.
    base = PurePosixPath(machine.run("sh", "-c", f'mkdir -p "{REMOTE_CACHE}" && cd "{REMOTE_CACHE}" && pwd').strip())
    directory = base / image.identity
    if not machine.succeeds("test", "-f", str(directory / cache.INFO)):
        _copy(machine, image, directory, emit)
    return Placed(*(str(directory / name) for name in ("root.erofs", "vmlinux", "initrd", "tree")))


def _copy(machine: Machine, image: Image, directory: PurePosixPath, emit: Callable[[Event], None]) -> None:
    """Through a directory of the run's, so that what is in place is whole; the rename is the last step."""
    incoming = directory.with_name(f".incoming-{image.identity}-{os.getpid()}")
    machine.remove_later(incoming)
    emit(Step("copying the root image", f"to {machine.path}", 0.0))
    with tempfile.TemporaryDirectory(prefix="vmtax-") as temporary:
        packed = Path(temporary) / "image.tar.zst"
        export(image, packed)
        machine.run("mkdir", str(incoming))
        emit(Step("copying the root image", f"{packed.stat().st_size / 2**20:.0f} MiB", 0.3))
        machine.push(packed, incoming / "image", timeout=UNPACK_SECONDS)
    emit(Step("copying the root image", "unpacking", 0.7))
    remedy = "tar and zstd are needed there (Debian: apt-get install zstd)"
    unpack = ("tar", "--zstd", "-xf", str(incoming / "image"), "-C", str(incoming), "--no-same-owner")
    machine.run(*unpack, timeout=UNPACK_SECONDS, remedy=remedy)
    machine.run("rm", str(incoming / "image"))
    machine.run("mv", "-T", str(incoming), str(directory))
    emit(Step("copying the root image", "done", 1.0))
