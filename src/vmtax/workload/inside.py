"""Executed by Python inside the userland: runs the user's command lines, and prints one line of JSON about them.

Standard library only. The first argument is JSON: prepare, run, cleanup (command lines, may be empty), timeout
(seconds, of each), warmup (how often `run` runs before it counts), files (an archive that is unpacked before, "" for
none), server ([address, port] that must answer before, or null). What `run` forked is killed when it ends; what
`prepare` forked, such as a server, when everything has ended.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

KEPT = 32 * 1024  # bytes of the beginning, and of the end, of each output
CHUNK = 65536
DIRECTORY = "/tmp/vmtax-command"
MOST_IN_PIPE = 2**20  # bytes that a pipe holds
PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 10.0  # for killed processes to end


class Extract:
    """The beginning and the end of an output of any length, and the digest of all of it."""

    def __init__(self) -> None:
        self.first = self.last = b""
        self.size, self.digest = 0, hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.digest.update(data)
        room = KEPT - len(self.first)
        self.first, data = self.first + data[:room], data[room:]
        self.last = (self.last + data)[-KEPT:]

    def record(self) -> dict[str, object]:
        return {
            "first": self.first.decode(errors="replace"),
            "last": self.last.decode(errors="replace"),
            "omitted": self.size - len(self.first) - len(self.last),
            "sha256": self.digest.hexdigest(),
        }


def descendants(spared: frozenset[int] = frozenset()) -> list[int]:
    """Our children, and theirs, but for those that are spared, and theirs. A process whose parent ends becomes our
    child.
    """
    parents: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_bytes()
            parents.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(int(entry.name))
        except (OSError, IndexError):
            continue  # it has just ended
    found: list[int] = []
    below = [os.getpid()]
    while below:
        below = [child for parent in below for child in parents.get(parent, ()) if child not in spared]
        found += below
    return found


def end_all(spared: frozenset[int] = frozenset()) -> bool:
    """Kill everything that the command left behind, but for what is spared; True if all of it ended."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = descendants(spared)
        if not left or time.monotonic() > deadline:
            return not left
        for pid in left:
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        select.select([], [], [], 0.005)


def execute(line: str, directory: str, timeout: float) -> dict[str, object]:
    """Run one command line. Its time ends when the shell ends, not when the last one that it started ends."""
    began = time.monotonic()
    process: subprocess.Popen[bytes] = subprocess.Popen(
        ["sh", "-c", line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=directory,
        start_new_session=True,
    )
    ended = os.pidfd_open(process.pid)
    assert process.stdout is not None and process.stderr is not None
    outputs = {process.stdout.fileno(): Extract(), process.stderr.fileno(): Extract()}
    both = list(outputs.values())
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    for pipe in outputs:
        os.set_blocking(pipe, False)
        poll.register(pipe, select.POLLIN)
    seconds = None
    while seconds is None and (left := began + timeout - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(1000 * left):
            if descriptor == ended:
                seconds = time.monotonic() - began
            elif not read(descriptor, outputs[descriptor]):
                poll.unregister(descriptor)
    os.close(ended)
    code = process.wait() if seconds is not None else None
    for pipe, kept in outputs.items():
        rest = MOST_IN_PIPE  # what is still running may write without end
        while rest > 0 and read(pipe, kept):
            rest -= CHUNK
    for stream in (process.stdout, process.stderr):
        with stream:
            if descendants():  # they may write on, and must not wait for a reader or be ended by a lack of one
                os.set_blocking(stream.fileno(), True)
                subprocess.Popen(["cat"], stdin=stream, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"code": code, "seconds": seconds, "out": both[0].record(), "err": both[1].record()}


def read(descriptor: int, kept: Extract) -> bool:
    """Keep what there is; False at the end."""
    try:
        data = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return False
    kept.add(data)
    return bool(data)


def await_server(address: str, port: int, timeout: float) -> str:
    """Wait until that server takes connections; returns why it does not, or ""."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((address, port), timeout=timeout).close()
            return ""
        except OSError as error:
            if time.monotonic() > deadline:
                return str(error)
        select.select([], [], [], 0.05)


def work(asked: dict[str, Any], directory: str, report: dict[str, object]) -> None:
    """Carry out the parts, each one only if those before it went well; `report` gets what each did."""
    timeout = float(asked["timeout"])
    if asked["files"]:
        unpacked = subprocess.run(["tar", "-xf", asked["files"], "-C", directory], stderr=subprocess.PIPE)
        if unpacked.returncode:
            report["why_not"] = f"files: {unpacked.stderr.decode(errors='replace').strip()[:200]}"
            return
    address, port = asked["server"] or ("", 0)
    if address and (why := await_server(address, port, timeout)):
        report["why_not"] = f"serve: the server takes no connection within {timeout:g} s: {why}"
        return
    if asked["prepare"]:
        report["prepare"] = ended = execute(asked["prepare"], directory, timeout)
        if ended["code"] != 0:
            return
    spared = frozenset(descendants())
    for _ in range(asked["warmup"] + 1):
        report["run"] = ended = execute(asked["run"], directory, timeout)
        report["gone"] = end_all(spared)
        if ended["code"] not in asked["exit_codes"]:
            break
    if asked["cleanup"]:
        report["cleanup"] = execute(asked["cleanup"], directory, timeout)


def own_directory() -> str:
    """A new directory, whose name is the same in every userland, because programs print it."""
    try:
        pathlib.Path(DIRECTORY).mkdir(0o755)  # for programs that become another user
    except FileExistsError:  # others share this /tmp
        return tempfile.mkdtemp(prefix="vmtax-command-", dir="/tmp")
    return DIRECTORY


def main() -> None:
    asked = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    directory = own_directory()
    report: dict[str, object] = {}
    try:
        work(asked, directory, report)
    finally:
        gone = end_all()
        shutil.rmtree(directory, ignore_errors=True)
    report["gone"] = gone and report.get("gone", True)
    with open(1, "w", encoding="ascii") as answer:
        answer.write(f"vmtax command: {json.dumps(report)}\n")


if __name__ == "__main__":
    main()
