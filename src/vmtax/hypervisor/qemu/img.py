"""qemu-img's command line for an image file with a disk's settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.design.disk import DiskSettings


def create_image(settings: DiskSettings, path: str, size: int | str, tool: Sequence[str] = ("qemu-img",)) -> list[str]:
    """The argv that makes the image `path` of `size` bytes (or "32G")."""
    options = ",".join(f"{name}={value}" for name, value in settings.options("qemu-img"))
    return [*tool, "create", "-q", "-f", settings.format, *(("-o", options) if options else ()), path, str(size)]
