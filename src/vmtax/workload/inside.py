"""Executed by Python inside the userland: runs the user's command lines, and prints one line of JSON about them.

Standard library only. The first argument is JSON: prepare, run, cleanup (command lines, may be empty), timeout
(seconds, of each). Whatever they forked is killed when each ends.
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
import subprocess
import sys
import tempfile
import time

KEPT = 32 * 1024  # bytes of the beginning, and of the end, of each output
CHUNK = 65536
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


def descendants() -> list[int]:
    """Our children, and theirs. A process whose parent ends becomes our child."""
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
        below = [child for parent in below for child in parents.get(parent, ())]
        found += below
    return found


def end_all() -> bool:
    """Kill everything that the command left behind; True if all of it ended."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        for pid in descendants():
            with contextlib.suppress(OSError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        select.select([], [], [], 0.005)
    return False


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
    code = process.wait() if seconds is not None else None
    gone = end_all()
    for pipe, kept in outputs.items():
        while gone and read(pipe, kept):
            pass
    process.stdout.close()
    process.stderr.close()
    os.close(ended)
    return {"code": code, "seconds": seconds, "gone": gone, "out": both[0].record(), "err": both[1].record()}


def read(descriptor: int, kept: Extract) -> bool:
    """Keep what there is; False at the end."""
    try:
        data = os.read(descriptor, CHUNK)
    except BlockingIOError:
        return False
    kept.add(data)
    return bool(data)


def main() -> None:
    asked = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    directory = tempfile.mkdtemp(prefix="vmtax-command-", dir="/tmp")
    report: dict[str, dict[str, object]] = {}
    prepared = True
    try:
        for part in ("prepare", "run", "cleanup"):
            if asked[part] and (part != "run" or prepared):
                report[part] = ended = execute(asked[part], directory, asked["timeout"])
                prepared = ended["code"] == 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    with open(1, "w", encoding="ascii") as answer:
        answer.write(f"vmtax command: {json.dumps(report)}\n")


if __name__ == "__main__":
    main()
