"""The PostgreSQL pack: server and client as one erofs file, a userland of its own that a guest enters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vmtax.core.events import Event, Step
from vmtax.core.units import format_room
from vmtax.image import packs, recipe
from vmtax.image.packs import ANY, Pack, PackKind, Userland
from vmtax.machine.local import LocalMachine

Emit = Callable[[Event], None]
KIND = PackKind(directory="postgresql", what="the PostgreSQL pack", command="vmtax image postgresql", room=2**30)
PACK_BYTES = 110 * 2**20  # approximate; it depends on Debian's versions
TAKES = f"about a minute, once, and {PACK_BYTES >> 20} MiB in the cache ({format_room(KIND.room)} while it is built)"
LAYOUT = 1  # of the pack; increased when code here changes its contents
SERVER = "postgresql-17"  # Debian 13's; it includes the client, amcheck and pg_checksums
PACKAGES = (SERVER,)
# Otherwise the package would create a database cluster of 40 MB that nobody uses.
NO_CLUSTER = (
    '--essential-hook=mkdir -p "$1/etc/postgresql-common"'
    ' && echo "create_main_cluster = false" > "$1/etc/postgresql-common/createcluster.conf"'
)
# The JIT compiler for queries, half the size of everything: the server runs with jit=off.
WITHOUT = ("/usr/lib/*/libLLVM*", "/usr/lib/llvm-*", "/usr/lib/*/libz3*", "/usr/lib/postgresql/*/lib/bitcode/*")
# No timestamps, as in the other packs.
EROFS = ("-T1577836800", "-x-1", "-U", "5e1f0c8b-2b64-4d0e-9d55-6a1c1f0b7a32", "-zlz4hc,3")
# Messages of a build -> share of the whole that is done then, from timed builds.
STAGES = (
    ("running apt-get update", 0.02),
    ("downloading packages", 0.1),
    ("extracting archives", 0.3),
    ("installing essential", 0.4),
    ("installing remaining", 0.5),
    ("cleaning package lists", 0.7),
)


def _key() -> str:
    """Digest of everything that determines a pack's contents, except Debian's present version."""
    words = (str(LAYOUT), recipe.SUITE, recipe.COMPONENTS, *PACKAGES, NO_CLUSTER, *recipe.EXCLUDED, *WITHOUT, *EROFS)
    return packs.key_of(*words)


def _make(keeper: LocalMachine, work: Path, emit: Emit) -> Pack:
    without = (f"--dpkgopt=path-exclude={pattern}" for pattern in WITHOUT)
    tree = KIND.debian(keeper, work, PACKAGES, STAGES, emit, NO_CLUSTER, *without)
    file = packs.erofs(keeper, work / "made", tree, *EROFS)
    version = packs.package_version(keeper, tree, SERVER)
    pack = packs.described(file, kernel=ANY, version=version, key=_key())
    emit(Step(KIND.building, f"PostgreSQL {version}", 1.0))
    return pack


PACK = Userland(KIND, _key, _make)
