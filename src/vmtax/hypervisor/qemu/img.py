"""qemu-img's command line for an image file with a disk's settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmtax.design.disk import DiskSettings


def create_image(settings: DiskSettings, path: str, size: int | str, tool: Sequence[str] = ("qemu-img",)) -> list[str]:
    """The argv that makes the image `path` of `size` bytes (or "32G")."""
    options = ",".join(f"{name}={value}" for name, value in settings.options("qemu-img"))
    return [*tool, "create", "-q", "-f", settings.format, *(("-o", options) if options else ()), path, str(size)]


def create_overlay(
    settings: DiskSettings, path: str, below: str, format: str, size: int, tool: Sequence[str] = ("qemu-img",)
) -> list[str]:
    """The argv that makes a qcow2 image `path` over the image `below`, which has that `format`.

    `settings`: of the disk; those of a qcow2 file apply to the image, but it is never allocated beforehand
    """
    alike = replace(settings, format="qcow2", preallocation="off")
    options = [f"{name}={value}" for name, value in alike.options("qemu-img") if name != "preallocation"]
    words = ",".join([*options, f"backing_fmt={format}"])
    return [*tool, "create", "-q", "-f", "qcow2", "-b", below, "-o", words, path, str(size)]
