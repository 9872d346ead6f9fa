"""Write the initramfs: a cpio archive (newc), because neither Python nor a package of the image can."""

from __future__ import annotations

import lzma
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vmtax.image import recipe


def archive(entries: Mapping[str, tuple[int, bytes]]) -> bytes:
    """A newc archive of path -> (mode with file type, content), owned by root and dated 1970, so it is reproducible.

    Archives may be concatenated; the kernel unpacks one after the other. Format: Linux,
    Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    parts = []
    for inode, (path, (mode, content)) in enumerate([*entries.items(), ("TRAILER!!!", (0, b""))], start=1):
        name = path.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)
        parts.append(_padded(b"070701" + b"".join(b"%08X" % field for field in fields) + name))
        parts.append(_padded(content))
    return b"".join(parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def directory(mode: int = 0o755) -> tuple[int, bytes]:
    return stat.S_IFDIR | mode, b""


def file(content: bytes, mode: int = 0o644) -> tuple[int, bytes]:
    return stat.S_IFREG | mode, content


def boot_archive(tree: Path, release: str) -> bytes:
    """The initramfs for the root image in `tree` with its kernel `release`. Not compressed: decompressing would take
    longer.
    """
    entries = {name: directory() for name in ("bin", "dev", "proc", "sys", "new", "lib")}
    entries["bin/busybox"] = file((tree / "usr/bin/busybox").read_bytes(), 0o755)
    entries["init"] = file(recipe.guest_file(recipe.INITRAMFS_INIT), 0o755)
    modules = module_closure(tree / "usr/lib/modules" / release, recipe.BOOT_MODULES)
    names = []
    for module in modules:
        name = f"lib/{module.name.partition('.')[0]}.ko"
        entries[name] = file(uncompressed(module))
        names.append(f"/{name}\n")
    entries["modules"] = file("".join(names).encode())
    return archive(entries)


def module_closure(modules: Path, wanted: Sequence[str]) -> list[Path]:
    """The files of the `wanted` modules below `modules` and of all their dependencies, in loading order.

    Modules built into the kernel are left out. Raises LookupError for one that does not exist.
    """
    built_in = {_module_name(line) for line in (modules / "modules.builtin").read_text().split()}
    needs: dict[str, list[str]] = {}
    paths: dict[str, str] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        paths[_module_name(path)] = path
        needs[_module_name(path)] = rest.split()
    ordered: list[str] = []
    for name in wanted:
        if name in built_in:
            continue
        if name not in paths:
            raise LookupError(f"the kernel in {modules} has no module {name}")
        # modules.dep lists the module that must be loaded first last.
        for path in [*reversed(needs[name]), paths[name]]:
            if path not in ordered:
                ordered.append(path)
    return [modules / path for path in ordered]


def _module_name(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0].replace("-", "_")


def uncompressed(module: Path) -> bytes:
    data = module.read_bytes()
    if module.suffix == ".xz":
        return lzma.decompress(data)
    if module.suffix == ".zst":
        return subprocess.run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data
