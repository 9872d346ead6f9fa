"""A raw file, allocated and written in full before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from vmtax.exits import CannotDo
from vmtax.machine import Machine

SLOWEST_BYTES_PER_SECOND = 4e6  # for the time limit of filling: a poor disk under emulation


class StorageError(CannotDo):
    """A disk under test cannot be made; the text says what to do."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file on one machine."""

    machine: Machine
    path: PurePosixPath
    size: int  # bytes

    @staticmethod
    def allocate(machine: Machine, path: PurePosixPath, size: int) -> RawFile:
        """Reserve the blocks; raises StorageError, before a byte is written, where they are not free."""
        free = int(machine.run("stat", "-f", "-c", "%a", str(path.parent))) * int(
            machine.run("stat", "-f", "-c", "%S", str(path.parent))
        )
        if free < size * 1.05:
            raise StorageError(
                f"{machine.path}: {path.parent} has {free / 2**30:.1f} GiB free, {size / 2**30:.1f} GiB are needed; "
                "name another directory with --disk-dir, or a smaller workloads.disk.size in the plan"
            )
        machine.run("fallocate", "-l", str(size), str(path))
        return RawFile(machine, path, size)


def fill(machine: Machine, prefix: Sequence[str], target: str, size: int) -> None:
    """Write `target` (file or block device, as named inside the userland that `prefix` enters) once, with random data.

    Reading blocks that were never written measures nothing, and their first write is slower than any later one.
    """
    argv = (
        *("fio", "--name=fill", f"--filename={target}", f"--size={size}", "--rw=write", "--bs=1m", "--iodepth=4"),
        *("--ioengine=libaio", "--direct=1", "--refill_buffers=1", "--end_fsync=1"),
    )
    machine.run(*prefix, *argv, timeout=60 + size / SLOWEST_BYTES_PER_SECOND)
