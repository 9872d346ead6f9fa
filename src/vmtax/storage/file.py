"""A raw file that is allocated and written in full before anything is measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import PurePosixPath

from typing_extensions import TypedDict

from vmtax.core.errors import BAD_INPUT, CannotDo
from vmtax.core.records import Json
from vmtax.core.stopwatch import Stopwatch
from vmtax.core.units import format_room
from vmtax.machine import CommandFailed, Machine, Reader
from vmtax.machine.answer import json_or_none, whole_of, words_of
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.workload.fio import INCOMPRESSIBLE, escaped

HEADROOM = 1.05  # free bytes for each byte of a disk under test
FULL_OR_FAILING = "see whether its disk is full or failing, or name another with --disk-dir"


class StorageError(CannotDo):
    """A disk under test cannot be made; the text says what to do."""


class NoSuchPlace(StorageError):
    """An option names a directory, device, group or pool that does not exist, is of another kind, or is not needed."""

    exit_code = BAD_INPUT


def refuse_unsafe(machine: Machine | Reader, directory: PurePosixPath) -> None:
    """Raises StorageError if another user of that machine could replace our files in the directory."""
    source = resources.files("vmtax.system").joinpath("ownership.py").read_text(encoding="utf-8")
    done = machine.try_run(PYTHON, *ISOLATED, source, str(directory))
    if not done.ok:
        words = done.stderr.strip().splitlines() or [f"{PYTHON} ended with {done.code}"]
        raise StorageError(
            f"{machine.path}: no disk is laid in {directory}: {words[-1]}; "
            "name with --disk-dir a directory that no other user can change or rename, or a sticky one such as /var/tmp"
        )


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file on one machine."""

    machine: Machine
    path: PurePosixPath
    size: int  # bytes

    @staticmethod
    def allocate(machine: Machine, path: PurePosixPath, size: int) -> RawFile:
        """Reserve the blocks; raises StorageError, before a byte is written, if they are not free."""
        check_free(machine, path.parent, size)
        machine.run("fallocate", "-l", str(size), str(path))
        return RawFile(machine, path, size)


def free_bytes(machine: Machine, directory: PurePosixPath) -> int:
    """Free bytes of a directory's file system."""
    what = f"free blocks of {directory} and their size"
    return block_bytes(machine, what, machine.run("stat", "-f", "-c", "%a %S", str(directory)))


def block_bytes(machine: Machine, what: str, text: str) -> int:
    """Bytes of a number of blocks, followed by the size of one. Raises MachineError."""
    blocks, block = (whole_of(machine, what, word) for word in words_of(machine, what, text, 2))
    return blocks * block


class _Bytes(TypedDict):
    io_bytes: int


class _Job(TypedDict):
    write: _Bytes


class _Fio(TypedDict):
    jobs: list[_Job]


def check_free(machine: Machine, directory: PurePosixPath, size: int) -> None:
    """Raises StorageError if `size` bytes do not fit into a directory's file system."""
    free = free_bytes(machine, directory)
    if free < size * HEADROOM:
        raise StorageError(
            f"{machine.path}: {directory} has {format_room(free)} free, {format_room(size)} are needed; "
            "name another directory with --disk-dir, or a smaller workloads.disk.size in the plan"
        )


@dataclass(frozen=True, slots=True)
class FirstWrite:
    """How a disk under test was written first: without this, its rates cannot be interpreted."""

    allocation: str  # "raw file (falloc)"
    size: int  # bytes
    written: int  # bytes written, as counted by fio
    by: str  # fio's options that determine the contents and the way of writing
    started: float  # seconds since the epoch, clock of the machine that runs vmtax
    seconds: float
    when: str  # point in the run: "before the first round"

    def to_json(self) -> Json:
        return asdict(self)


def fill(machine: Machine, prefix: Sequence[str], target: str, size: int, *, allocation: str, when: str) -> FirstWrite:
    """Write `target` (file or block device, as named inside the userland that `prefix` enters) once, with random data.

    Reading blocks that were never written measures nothing, and the first write of a block is slower than any later
    one. Raises StorageError if fio did not write all of it.
    """
    how = ("--rw=write", "--bs=1m", "--direct=1", *INCOMPRESSIBLE, "--end_fsync=1")
    system = machine.os
    file = (f"--filename={escaped(target)}", f"--size={size}")
    argv = (system.program("fio"), "--name=fill", *file, *system.fio_engine(waits=False), "--iodepth=4", *how)
    watch = Stopwatch()
    output = _fio(machine, (*prefix, *argv, "--output-format=json"))
    written = _written(output)
    if written < size:
        raise StorageError(
            f"{machine.path}: only {written} of the {size} bytes of {target} were written before the measurement; "
            + FULL_OR_FAILING
        )
    return FirstWrite(allocation, size, written, f"fio {' '.join(how)}", watch.started, watch.seconds, when)


def _fio(machine: Machine, argv: Sequence[str]) -> str:
    """fio's standard output. Raises StorageError if the userland has no fio, CommandFailed if it fails."""
    outcome = machine.try_run(*argv)
    if not outcome.ok and re.search(r"fio'?: No such file", outcome.stderr):
        raise StorageError(f"{machine.path}: the image has no fio, which fills disks and measures them: use another")
    if not outcome.ok:
        raise CommandFailed(outcome, FULL_OR_FAILING)
    return outcome.stdout


def fill_image(
    machine: Machine, qemu_img: Sequence[str], source: str, target: str, size: int, *, allocation: str
) -> FirstWrite:
    """Write all of an existing qcow2 image from a raw file of random data, because the host's fio cannot write
    qcow2.
    """
    # -n keeps the image as it was made, with its preallocation; -S 0 also writes blocks of zeros.
    how = ("convert", "-n", "-S", "0", "-t", "writeback", "-f", "raw", "-O", "qcow2")
    watch = Stopwatch()
    machine.run(*qemu_img, *how, source, target, remedy=FULL_OR_FAILING)
    machine.run("sync")
    when, took = "before the first round", watch.seconds
    return FirstWrite(allocation, size, size, f"qemu-img {' '.join(how)}", watch.started, took, when)


def _written(output: str) -> int:
    """Bytes that fio reports as written; 0 if its output cannot be read."""
    said = json_or_none(output[output.find("{") :], _Fio)
    return said["jobs"][0]["write"]["io_bytes"] if said and said["jobs"] else 0
