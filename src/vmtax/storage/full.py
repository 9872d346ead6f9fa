"""Test whether a guest is paused when the host's disk is full: a small file system is filled under a real guest."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line, last_words
from vmtax.design.disk import DiskSettings
from vmtax.design.features import Feature
from vmtax.hypervisor import BootFailed, Credentials, Drive, Guest, GuestSpec, boot
from vmtax.machine import Machine, MachineError, MachineLost, Process, Undoing
from vmtax.machine.answer import json_or_none
from vmtax.machine.local import LocalMachine
from vmtax.storage.file import free_bytes
from vmtax.storage.undo import UNMOUNT

NAME = "pause-on-full"
HOW = "a file on a full ext4 under a guest that writes, with this bus and format"
FILE_SYSTEM_BYTES = 64 * 2**20
FREE_BYTES = 8 * 2**20  # left free for the image
DISK_BYTES = 32 * 2**20
WRITTEN_BYTES = 24 * 2**20
PAUSE_SECONDS = 90.0  # for the guest to reach the end of the free space
FINISH_SECONDS = 90.0  # for the guest to write the rest and read all of it
# How fio names the errors that a guest's kernel reports for a failing disk; other errors say nothing about the disk.
IO_ERRORS = tuple(map(os.strerror, (errno.EIO, errno.ENOSPC, errno.EREMOTEIO, errno.ENODATA, errno.EILSEQ)))
WORDS = "paused, went on when there was space again, and all data were there"

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Small:
    """A small file system that is nearly full."""

    mount: PurePosixPath
    ballast: PurePosixPath  # takes the space that the image must not get


def stops_when_full(
    machine: Machine,
    spec: GuestSpec,
    how: DiskSettings,
    credentials: Credentials,
    local: LocalMachine,
    qemu_img: tuple[str, ...] = ("qemu-img",),
) -> Feature:
    """Fill the disk under a guest with that bus and format (the rest of `how` is ignored).

    "yes" if QEMU paused the guest (werror=enospc is QEMU's default if the bus supports it), it continued once there
    was space, and its data was intact. Needs root, and a boot. "not tried" if the check itself could not be made; only
    MachineLost is raised.
    """
    try:
        with _small_file_system(machine) as small:
            image = small.mount / f"disk.{how.format}"
            machine.run(*qemu_img, "create", "-q", "-f", how.format, str(image), str(DISK_BYTES))
            _fill(machine, small)
            disk = Drive(str(image), DiskSettings(bus=how.bus, aio="threads", format=how.format))
            with _booted(machine, replace(spec, disks=(disk,)), credentials, local) as guest:
                return _watched(machine, small, guest)
    except MachineLost as error:
        if error.args and str(error).startswith(f"{machine.path}/"):
            return Feature(NAME, "not tried", HOW, first_line(str(error)))
        raise
    except (CannotDo, MachineError) as error:
        return Feature(NAME, "not tried", HOW, first_line(str(error)))


@contextlib.contextmanager
def _small_file_system(machine: Machine) -> Iterator[_Small]:
    directory = machine.scratch / f"full-{next(_numbers)}"
    mount, file = directory / "mount", directory / "disk"
    entries: list[Undoing] = [machine.remove_later(directory)]
    try:
        machine.run("mkdir", "-p", str(mount))
        machine.run("truncate", "-s", str(FILE_SYSTEM_BYTES), str(file))
        machine.run("mkfs.ext4", "-q", "-m", "0", str(file))
        entries.append(machine.undo_later(*UNMOUNT, str(mount)))
        machine.run("mount", "-o", "loop", str(file), str(mount))
        yield _Small(mount, mount / "ballast")
    finally:
        for entry in reversed(entries):
            entry.undo()


def _fill(machine: Machine, small: _Small) -> None:
    machine.run("fallocate", "-l", str(free_bytes(machine, small.mount) - FREE_BYTES), str(small.ballast))


@contextlib.contextmanager
def _booted(machine: Machine, spec: GuestSpec, credentials: Credentials, local: LocalMachine) -> Iterator[Guest]:
    """Boot a guest; there is a second attempt if necessary, as in a run."""
    with contextlib.ExitStack() as stack:
        try:
            guest = stack.enter_context(boot(machine, spec, credentials, local))
        except BootFailed:
            guest = stack.enter_context(boot(machine, spec, credentials, local))
        yield guest


def _watched(machine: Machine, small: _Small, guest: Guest) -> Feature:
    device = guest.spec.device()
    writer = guest.machine.start(
        *("fio", "--name=full", f"--filename={device}", f"--size={WRITTEN_BYTES}", "--rw=write"),
        # Each block carries its own checksum, and all blocks are read at the end.
        *("--bs=64k", "--direct=1", "--ioengine=psync", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"),
        "--output-format=json",
    )
    try:
        if not _paused(guest, writer):
            code = writer.poll()
            if code is None:
                return Feature(NAME, "not tried", HOW, f"neither full nor finished within {PAUSE_SECONDS:.0f} s")
            failure = _error(writer)
            if failure in IO_ERRORS:
                return Feature(NAME, "no", HOW, f"the guest was not paused, its write failed: {failure}")
            if code or failure:
                return Feature(NAME, "not tried", HOW, f"the guest's fio ended: {failure or f'exit code {code}'}")
            return Feature(NAME, "not tried", HOW, "the guest wrote all of it: the disk was not full")
        machine.run("rm", str(small.ballast))
        guest.go_on()
        try:
            code = writer.wait(FINISH_SECONDS)
        except TimeoutError:
            return Feature(NAME, "no", HOW, f"paused, but did not finish within {FINISH_SECONDS:.0f} s of going on")
        failure = _error(writer)
        if code == 0 and not failure:
            return Feature(NAME, "yes", HOW, WORDS)
        return Feature(NAME, "no", HOW, f"paused and went on, but then: {failure or f'exit code {code}'}")
    finally:
        writer.stop()


def _paused(guest: Guest, writer: Process) -> bool:
    """Whether QEMU paused the guest because of an I/O error before the writer ended."""
    deadline = time.monotonic() + PAUSE_SECONDS
    while time.monotonic() < deadline:
        ended = writer.poll() is not None
        if guest.is_paused():
            return True
        if ended:
            return False
        time.sleep(0.1)
    return False


def _error(writer: Process) -> str:
    """The error that fio reports; "" if there is none. Call it once fio has ended."""
    output = writer.stdout.read().decode(errors="replace")
    said = json_or_none(output[output.find("{") :], _Fio)
    if not said or not said["jobs"]:
        return first_line(last_words(writer) or output)
    number = said["jobs"][0]["error"]
    return os.strerror(number) if number else ""


class _Job(TypedDict):
    error: Annotated[int, Field(ge=0, lt=2**31)]


class _Fio(TypedDict):
    jobs: list[_Job]
