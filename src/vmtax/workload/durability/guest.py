"""The program of the workload durability that runs in a guest: it writes, or it checks states of a disk.

    write DIRECTORY BYTES NAME... [--pause SECONDS]
    verify DEVICE MOUNTPOINT NAME... [--options OPTIONS] [--inside FILE] [--stack JSON] [--beside DEVICE]...
           [--no-check]

`write` is described in writers.py. `verify` reads one JSON object per line, {"state": 12, "acknowledged": {NAME: 40}}:
records 1 to 40 of NAME had been acknowledged when the disk got into its present state. It mounts DEVICE, which replays
the journal, checks the records, unmounts, checks the file system, drops the kernel's cache of DEVICE, and answers

    {"state": 12, "file_system": WORDS, "writers": {NAME: {"lost": 0, "torn": 1, "words": WORDS}}}

with empty WORDS if nothing is wrong, and only for writers that had acknowledged something. The answer to a line that it
cannot parse, or to a state that it cannot check, also has "error": WORDS. With --inside, DEVICE is the disk of a host,
which is mounted first and holds the guest's disk as FILE. With --stack, DEVICE and the devices in --beside are the
disks of a host on which the guest's disk is laid out as stacks.py describes; then the answer also has "image": WORDS,
qemu-img's complaint, and a line with "whole": true only asks whether the guest's disk is found.

Shipped as text together with the modules before it in source.py's list, so it imports the standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from vmtax.workload.durability.checks import MOST_WORDS, Expected, Found, check
from vmtax.workload.durability.records import writer_problem
from vmtax.workload.durability.stacks import TOOLS, Broken, Stack, assembled, partitions_of, stack_of
from vmtax.workload.durability.writers import LIBC, Output, words_of, write

FILE_SYSTEM = "ext4"
NOSUID, NODEV, NOEXEC, NOATIME = 2, 4, 8, 1024
ALWAYS = NOSUID | NODEV | NOEXEC | NOATIME
# Options that mount(2) takes as flags; all others are passed to the file system as text.
FLAGS = {"sync": 16, "dirsync": 128, "relatime": 1 << 21, "strictatime": 1 << 24, "lazytime": 1 << 25}
SILENT = {"rw", "defaults", "nosuid", "nodev", "noexec", "noatime"}  # options that every mount here has anyway
DETACH = 2  # of umount2(2)
LOOP_CONTROL = "/dev/loop-control"
LOOP_SET_FD, LOOP_CLEAR, LOOP_GET_FREE = 0x4C00, 0x4C01, 0x4C82  # from linux/loop.h
FLUSH_BUFFERS = 0x1261  # BLKFLSBUF: write dirty blocks, drop the others, as `blockdev --flushbufs` does
BUSY_SECONDS = 60.0  # to wait for a file system that is still in use
RETRY_SECONDS = 0.05
KERNEL_LOG = "/dev/kmsg"
RECORD_BYTES = 8192  # of the kernel's log
MOST_RECORDS = 3  # of that log that are quoted; the last ones
E2FSCK = ("e2fsck", "-f", "-n")


def mount(device: str, mountpoint: str, options: str = "") -> None:
    """Mount the file system, which replays its journal. Raises OSError."""
    words = [word for word in options.split(",") if word and word not in SILENT]
    flags = functools.reduce(int.__or__, (FLAGS.get(word, 0) for word in words), ALWAYS)
    data = ",".join(word for word in words if word not in FLAGS)
    _called(
        LIBC.mount(device.encode(), mountpoint.encode(), FILE_SYSTEM.encode(), ctypes.c_ulong(flags), data.encode())
    )


@contextlib.contextmanager
def kernel_log() -> Iterator[Callable[[], str]]:
    """A function that returns, in brackets, what the kernel has logged since; "" if nothing, or if we may not read
    it.
    """
    try:
        file = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        yield lambda: ""
        return
    try:
        os.lseek(file, 0, os.SEEK_END)
        yield lambda: _kernel_words(file)
    finally:
        os.close(file)


def _kernel_words(log: int) -> str:
    records = []
    with contextlib.suppress(OSError):  # BlockingIOError at the end of the log
        while record := os.read(log, RECORD_BYTES):
            records.append(record.decode(errors="replace").partition(";")[2].partition("\n")[0])
    return f" ({'; '.join(records[-MOST_RECORDS:])[:MOST_WORDS]})" if records else ""


def unmount(mountpoint: str) -> None:
    """Unmount it; if it stays in use, detach it, so that nothing is mounted, and raise OSError."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _called(LIBC.umount2(mountpoint.encode(), 0))
        except OSError:
            if time.monotonic() > end:
                LIBC.umount2(mountpoint.encode(), DETACH)
                raise
        time.sleep(RETRY_SECONDS)


def wait_until_free(device: str) -> None:
    """Wait until no mount namespace has its file system any more: one may live a moment longer than its last program.

    Raises OSError if that takes too long.
    """
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(RETRY_SECONDS)


def _called(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def forget(device: str) -> None:
    """Drop the kernel's cache of the device: its next state differs."""
    file = os.open(device, os.O_RDONLY)
    try:
        fcntl.ioctl(file, FLUSH_BUFFERS, 0)
    finally:
        os.close(file)


@contextlib.contextmanager
def looped(path: str) -> Iterator[str]:
    """A loop device for that file. Raises OSError."""
    control = os.open(LOOP_CONTROL, os.O_RDWR)
    try:
        device = f"/dev/loop{fcntl.ioctl(control, LOOP_GET_FREE)}"
    finally:
        os.close(control)
    file = os.open(path, os.O_RDWR)
    try:
        loop = os.open(device, os.O_RDWR)
        try:
            fcntl.ioctl(loop, LOOP_SET_FD, file)
            try:
                yield device
            finally:
                fcntl.ioctl(loop, LOOP_CLEAR)
        finally:
            os.close(loop)
    finally:
        os.close(file)


def verify_inside(
    device: str,
    mountpoint: str,
    inside: str,
    acknowledged: Mapping[str, int],
    options: str,
    thorough: bool,
    seen: Expected,
) -> tuple[str, dict[str, Found]]:
    """The same for a guest's disk that is a file on the disk of a host."""
    forget(device)
    outer = f"{mountpoint}.host"
    os.makedirs(outer, exist_ok=True)
    try:
        mount(device, outer)
    except OSError as error:
        return f"the host's file system: mount refused: {words_of(error)}", {}
    try:
        with looped(os.path.join(outer, inside)) as disk:
            problem, found = verify_state(disk, mountpoint, acknowledged, options, thorough, seen)
    except OSError as error:
        problem, found = f"{inside} on the host: {words_of(error)}", {}
    finally:
        unmount(outer)
    if thorough and not problem and (damage := file_system_problem(device)):
        problem = f"the host's file system: {damage}"
    forget(device)
    return problem, found


def verify_stack(
    devices: Sequence[str],
    mountpoint: str,
    stack: Stack,
    acknowledged: Mapping[str, int] | None,
    options: str,
    thorough: bool,
    seen: Expected,
) -> tuple[str, str, dict[str, Found]]:
    """The same for a guest's disk that is laid out on a host's disks; the second value is the problem with its image.

    acknowledged: None if nothing is to be read from the guest's disk
    """
    parts = [part for device in devices for part in (device, *partitions_of(device))]
    for part in parts:
        forget(part)
    problem, found = "", dict[str, Found]()
    try:
        with assembled(stack, devices, f"{mountpoint}.host") as disk, contextlib.ExitStack() as ends:
            if acknowledged is not None:
                path = ends.enter_context(looped(disk.path)) if stack.image else disk.path
                problem, found = verify_state(path, mountpoint, acknowledged, options, thorough, seen)
    except Broken as error:
        return ("", str(error), {}) if error.is_image else (str(error), "", {})
    finally:
        for part in parts:
            forget(part)
    return problem or disk.damage, disk.image, found


def file_system_problem(device: str) -> str:
    """The first problem that e2fsck finds without changing anything; empty if there is none."""
    done = subprocess.run(
        (*E2FSCK, device), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=TOOLS
    )
    if not done.returncode:
        return ""
    lines = (line.strip() for line in done.stdout.decode(errors="replace").splitlines())
    found = (line for line in lines if line and not line.startswith(("e2fsck ", "Pass ", f"{device}: ")))
    return f"e2fsck: {next(found, f'exit code {done.returncode}')[:MOST_WORDS]}"


def verify_state(
    device: str, mountpoint: str, acknowledged: Mapping[str, int], options: str, thorough: bool, expected: Expected
) -> tuple[str, dict[str, Found]]:
    """Problems of the file system, and of the records of each writer.

    Raises OSError if the file system stays in use, which is no fault of the disk.
    """
    forget(device)
    with kernel_log() as said:
        try:
            mount(device, mountpoint, options)
        except OSError as error:
            return f"mount refused: {words_of(error)}{said()}", {}
    try:
        found = check(mountpoint, acknowledged, expected)
    finally:
        unmount(mountpoint)
    wait_until_free(device)
    problem = file_system_problem(device) if thorough else ""
    forget(device)
    return problem, found


def asked(line: str, names: Sequence[str]) -> tuple[object, dict[str, int], bool]:
    """Parse a line of the input: the state, what had been acknowledged, and whether only the presence of the disk is
    asked.

    Raises ValueError.
    """
    request = json.loads(line)
    if not isinstance(request, dict) or not isinstance(acknowledged := request.get("acknowledged"), dict):
        raise ValueError('must be {"state": NUMBER, "acknowledged": {NAME: NUMBER}}')
    for name, number in acknowledged.items():
        if name not in names:
            raise ValueError(f"{name} is not a writer of this disk")
        if type(number) is not int or number < 0:
            raise ValueError(f"{name}: the number of a record, not {number!r}")
    return request.get("state"), acknowledged, request.get("whole") is True


def verify(
    lines: Iterator[str],
    output: Output,
    device: str,
    mountpoint: str,
    names: Sequence[str],
    options: str = "",
    thorough: bool = True,
    inside: str = "",
    stack: Stack | None = None,
    beside: Sequence[str] = (),
) -> None:
    """Check one state for each input line, and print one answer for each."""
    expected = Expected()
    os.makedirs(mountpoint, exist_ok=True)
    for line in lines:
        state: object = None
        answer: dict[str, object] = {}
        problem, found = "", dict[str, Found]()
        try:
            state, acknowledged, whole = asked(line, names)
            if stack is not None:
                records = None if whole else acknowledged
                devices = (device, *beside)
                problem, image, found = verify_stack(devices, mountpoint, stack, records, options, thorough, expected)
                answer = {"image": image}
            elif inside:
                problem, found = verify_inside(device, mountpoint, inside, acknowledged, options, thorough, expected)
            else:
                problem, found = verify_state(device, mountpoint, acknowledged, options, thorough, expected)
        except Exception as error:  # of any kind: the other states are still worth checking
            answer = {"error": words_of(error)}
        writers = {name: one._asdict() for name, one in found.items()}
        output.say(json.dumps({"state": state, "file_system": problem, "writers": writers, **answer}))


def end_with_input() -> None:
    """End the program with its standard input, even while a flush hangs."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; ends the program if it is wrong."""
    parser = argparse.ArgumentParser(prog="durability")
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("directory")
    writing.add_argument("bytes", type=int)
    writing.add_argument("--pause", type=float, default=0.0, metavar="SECONDS")
    checking = commands.add_parser("verify")
    checking.add_argument("device")
    checking.add_argument("mountpoint")
    checking.add_argument("--options", default="")
    checking.add_argument("--inside", default="", metavar="FILE")
    checking.add_argument("--stack", type=stack_of, metavar="JSON")
    checking.add_argument("--beside", action="append", default=[], metavar="DEVICE")
    checking.add_argument("--no-check", dest="thorough", action="store_false")
    for command in (writing, checking):
        command.add_argument("names", nargs="+", metavar="NAME")
    given = parser.parse_args(words)
    for problem in filter(None, map(writer_problem, given.names)):
        parser.error(problem)
    if len(set(given.names)) < len(given.names):
        parser.error("each NAME must be given once")
    return given


def main(words: Sequence[str]) -> int:
    given, output = arguments(words), Output(1)
    if given.command == "verify":
        where = (given.device, given.mountpoint, given.names)
        how = (given.options, given.thorough, given.inside, given.stack, given.beside)
        verify(iter(sys.stdin), output, *where, *how)
        return 0
    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        return 0 if write(given.directory, given.bytes, given.names, output.say, given.pause) else 1
    except OSError as error:
        sys.exit(words_of(error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
