"""The kernel pack: compiler and kernel source as one erofs file, a userland that every layer enters in the same way."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

from vmtax.core.events import Event, Step
from vmtax.image import packs, recipe
from vmtax.image.packs import ANY, Pack, PackKind, Userland
from vmtax.machine.local import LocalMachine
from vmtax.workload.build import OBJECTS

Emit = Callable[[Event], None]
KIND = PackKind(directory="kernel", what="the kernel pack", command="vmtax image kernel", room=4 * 2**30)
TAKES = "about three minutes, once, and 600 MiB in the cache (4 GiB while it is built)"
LAYOUT = 1  # of the pack; increased when code here changes its contents
SOURCE, COMPILER = "linux-source", "gcc"
PACKAGES = (
    *(COMPILER, "libc6-dev", "make", "bc", "bison", "flex", "libelf-dev", "libssl-dev", "openssl", "perl-base"),
    *("python3-minimal", "xz-utils", "cpio", "kmod", SOURCE),
)
SCRIPT = "kernel-source"
# No timestamps, as in the root image. LZ4 saves two thirds of the space, and the files that a build needs are read
# beforehand, so decompression is not measured.
EROFS = ("-T1577836800", "-x-1", "-U", "0b9d5c53-3a5e-4d5c-8a66-1b1f6c3f8a10", "-zlz4hc,3")
# Messages of a build -> share of the whole that is done then, from timed builds.
STAGES = (
    ("running apt-get update", 0.01),
    ("downloading packages", 0.03),
    ("extracting archives", 0.1),
    ("installing essential", 0.12),
    ("installing remaining", 0.15),
    ("kernel-source: unpacking", 0.25),
    ("kernel-source: preparing", 0.45),
    ("kernel-source: objects", 0.65),
    ("cleaning package lists", 0.7),
)


def _key() -> str:
    """Digest of everything that determines a pack's contents, except Debian's present versions."""
    words = (str(LAYOUT), recipe.SUITE, recipe.COMPONENTS, *PACKAGES, *recipe.EXCLUDED, *EROFS, *OBJECTS)
    return packs.key_of(*words, _script())


def _script() -> bytes:
    return resources.files("vmtax.image").joinpath(SCRIPT).read_bytes()


def _make(keeper: LocalMachine, work: Path, emit: Emit) -> Pack:
    script = work / SCRIPT
    script.write_bytes(_script())
    script.chmod(0o755)
    tree = KIND.debian(*(keeper, work, PACKAGES, STAGES, emit), f"--customize-hook={script}", OBJECTS=" ".join(OBJECTS))
    file = packs.erofs(keeper, work / "made", tree, *EROFS)
    version = packs.package_version(keeper, tree, SOURCE)
    compiler = packs.inside(keeper, tree, COMPILER, "-dumpfullversion").strip()
    pack = packs.described(file, kernel=ANY, version=f"{version}/gcc-{compiler}", key=_key())
    emit(Step(KIND.building, f"Linux {version}", 1.0))
    return pack


PACK = Userland(KIND, _key, _make)
