"""Chains of external snapshots over a guest's disk: images that hold only what was written since the one below."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtax.design.disk import DiskSettings
from vmtax.hypervisor.qemu.img import create_overlay
from vmtax.machine import Machine, Undoing
from vmtax.storage.backing import Backing

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Chain:
    """A disk with snapshots, for one boot."""

    top: Backing  # what the guest writes to
    beneath: tuple[str, ...]  # the images below it, the disk itself first
    undoings: tuple[Undoing, ...]

    def remove(self) -> None:
        """Remove its images, and not the disk, once the guest has ended."""
        for undoing in reversed(self.undoings):
            undoing.undo()


def lay(machine: Machine, disk: Backing, count: int, size: int, qemu_img: Sequence[str]) -> Chain:
    """A chain of `count` empty images over a disk, beside it, of which the last has `size` bytes, at most those of the
    disk: as after `count` snapshots between which nothing was written. Raises CommandFailed.
    """
    number, undoings = next(_numbers), []
    below = disk
    beneath: list[str] = []
    for place in range(1, count + 1):
        beneath.append(str(below.path))
        path = disk.path.with_name(f"{disk.path.stem}-{number}-snapshot{place}.qcow2")
        undoings.append(machine.remove_later(path))
        length = size if place == count else disk.size
        machine.run(*create_overlay(disk.settings, str(path), str(below.path), below.settings.format, length, qemu_img))
        below = Backing(path, replace(disk.settings, format="qcow2"), length)
    return Chain(below, tuple(beneath), tuple(undoings))


def snapshots_of(settings: DiskSettings) -> int:
    """The number of snapshots that have a meaning: none where a guest has no disk, or no file of one."""
    return settings.snapshots if settings.is_file and not settings.is_shared else 0
