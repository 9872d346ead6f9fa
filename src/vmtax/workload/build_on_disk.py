"""A kernel build whose files lie in a directory on the disk under test: what is put there, and how a build sees it.

Pure. The sources are copied there when a layer is opened, before its caches are dropped: the first build of a boot
reads them from the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MIB = 2**20
SOURCE, BUILD = "/src", "/build"  # of the kernel pack: its source, and an empty directory
# Of the target `objects`, only what these parts have of its files is copied: for what it compiles, and for the tools
# that make would build anew without it. The rest stays in the pack, as make itself does.
PARTS: Mapping[str, Sequence[str]] = {"objects": ("include", "lib", "arch/x86/include")}
# Target -> bytes of the disk: for sources, objects and the file system. Measured for the first two.
BYTES = {"objects": 128 * MIB, "tinyconfig": 1024 * MIB, "defconfig": 5 * 1024 * MIB, "allmodconfig": 32 * 1024 * MIB}
# Constant text. The copies belong to whoever makes them: not every directory lets us give files away.
COPY = f"tar -C {SOURCE} --null -T /tmp/list -cf - | tar -C {BUILD}/src --no-same-owner -xf -"
# $1: pattern of directories of which only what describes the build is copied.
ALL = f"""
set -e
mkdir {BUILD}/src {BUILD}/objects
find {SOURCE} ! -type d \\
    \\( ! -regex "\\($1\\)/.*" -o -name 'Kconfig*' -o -name 'Kbuild*' -o -name 'Makefile*' \\) \\
    -printf '%P\\0' > /tmp/list
{COPY}
"""
# $1: pattern of the parts; the rest: the parts themselves. What the prepared files were made from, their dependencies
# say.
NEEDED = f"""
set -e
mkdir {BUILD}/src {BUILD}/objects
parts=$1
shift
cd {SOURCE}
{{
    cat /read-first
    find /prepared -name '.*.cmd' -exec cat {{}} + | tr -s ' ()\\\\\\n' '\\n' | grep '^{SOURCE}/' |
        xargs realpath -q || true
    find "$@" ! -type d \\( -name 'K[cb]*' -o -name 'Makefile*' -o -path '*/asm-generic/*' -o -path '*/uapi/*' \\)
}} | sed 's,^{SOURCE}/,,' | grep -E "^($parts)/" | sort -u | tr '\\n' '\\0' > /tmp/list
{COPY}
"""


def lay_out(target: str, unread: str, directory: str) -> tuple[str, ...]:
    """What fills the directory: bubblewrap's options, and the command in the kernel pack."""
    parts = PARTS.get(target)
    script = (ALL, "sh", unread) if parts is None else (NEEDED, "sh", "|".join(parts), *parts)
    return ("--bind", directory, BUILD, "--", "sh", "-c", *script)


def mounts(target: str, directory: str) -> tuple[str, ...]:
    """bubblewrap's options with which the kernel pack has these files in the usual places: so paths in the result are
    the same wherever they lie.
    """
    binds = [(f"{directory}{part}", part) for part in _parts(target)]
    return tuple(word for pair in [*binds, (f"{directory}/objects", BUILD)] for word in ("--bind", *pair))


def _parts(target: str) -> tuple[str, ...]:
    return tuple(f"{SOURCE}/{part}" for part in PARTS.get(target, ())) or (SOURCE,)
