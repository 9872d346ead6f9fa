"""A kernel build whose files lie in a directory on the disk under test: what is put there, and how a build sees it.

Pure. The sources are copied there when a layer is opened, before its caches are dropped: the first build of a boot
reads them from the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MIB = 2**20
SOURCE, BUILD = "/src", "/build"  # of the kernel pack: its source, and an empty directory
# Parts of the source that are copied, if not all of it: what the target compiles. What make itself reads stays in the
# pack, as all of make does.
PARTS: Mapping[str, Sequence[str]] = {"objects": ("include", "lib", "arch/x86/include")}
# Target -> bytes of the disk: for sources, objects and the file system. Measured for the first two.
BYTES = {"objects": 256 * MIB, "tinyconfig": 1024 * MIB, "defconfig": 5 * 1024 * MIB, "allmodconfig": 32 * 1024 * MIB}
# Constant text. $1: pattern of directories of which only what describes the build is copied; the rest: parts of the
# source. The kernel's files belong to whoever copies them: not every directory lets us give files away.
LAY_OUT = f"""
set -e
unread=$1
shift
mkdir {BUILD}/src {BUILD}/objects
for part; do
    mkdir -p "{BUILD}$part"
    find "$part" ! -type d \\
        \\( ! -regex "\\($unread\\)/.*" -o -name 'Kconfig*' -o -name 'Kbuild*' -o -name 'Makefile*' \\) \\
        -printf '%P\\0' > /tmp/list
    tar -C "$part" --null -T /tmp/list -cf - | tar -C "{BUILD}$part" --no-same-owner -xf -
done
"""


def lay_out(target: str, unread: str, directory: str) -> tuple[str, ...]:
    """What fills the directory: bubblewrap's options, and the command in the kernel pack."""
    return ("--bind", directory, BUILD, "--", "sh", "-c", LAY_OUT, "sh", unread, *_parts(target))


def mounts(target: str, directory: str) -> tuple[str, ...]:
    """bubblewrap's options with which the kernel pack has these files in the usual places: so paths in the result are
    the same wherever they lie.
    """
    binds = [(f"{directory}{part}", part) for part in _parts(target)]
    return tuple(word for pair in [*binds, (f"{directory}/objects", BUILD)] for word in ("--bind", *pair))


def _parts(target: str) -> tuple[str, ...]:
    return tuple(f"{SOURCE}/{part}" for part in PARTS.get(target, ())) or (SOURCE,)
