"""How qemu-img makes an image file as a treatment's levels say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.core.units import parse_bytes

# Every level of a treatment that is an option of qemu-img create -> its name there.
IMAGE_OPTIONS = {
    "disk.preallocation": "preallocation",
    "disk.cluster_size": "cluster_size",
    "disk.lazy_refcounts": "lazy_refcounts",
    "disk.extended_l2": "extended_l2",
}


def image_options(levels: Mapping[str, str]) -> tuple[str, ...]:
    """What stands behind -o of qemu-img create: "preallocation=falloc", "cluster_size=65536"."""
    is_raw = levels.get("disk.format", "raw") == "raw"
    found = []
    for level, option in IMAGE_OPTIONS.items():
        if level not in levels or (is_raw and option != "preallocation"):
            continue
        value = str(parse_bytes(levels[level])) if option == "cluster_size" else levels[level]
        found.append(f"{option}={value}")
    return tuple(found)


def create_image(
    levels: Mapping[str, str], path: str, size: int | str, tool: Sequence[str] = ("qemu-img",)
) -> list[str]:
    """The argv that makes the image `path` of `size` bytes (or "32G")."""
    options = image_options(levels)
    words = [*tool, "create", "-q", "-f", levels.get("disk.format", "raw")]
    return [*words, *(("-o", ",".join(options)) if options else ()), path, str(size)]
