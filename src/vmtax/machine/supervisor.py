"""Runs a command whose output and time are bounded, and which outlives the program that started it.

A program of its own, without other parts of vmtax: `supervisor.py SECONDS COMMAND...`. Standard output is an empty
file. When the command has ended, that gets one line of JSON: {"code": its exit status, negative: killed by that signal;
"words": the end of what it printed}; {"error": why it could not be started}. After SECONDS, the command and all its
descendants are ended, those that left its session included.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

KEPT = 2000  # bytes of output
GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
SET_CHILD_SUBREAPER = 36  # prctl: orphans among the descendants become our children
PAUSE = 0.1  # seconds between two looks at the command
MOST_READS = 64  # of 64 KiB between two looks


def descendants() -> list[int]:
    """All processes below this one that still run."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it ended meanwhile
                words = (path / "stat").read_text(errors="replace").rpartition(") ")[2].split()
                parents[int(path.name)] = int(words[1]), words[0]
    found, seen = [], {os.getpid()}
    while more := [pid for pid, (parent, _) in parents.items() if parent in seen and pid not in seen]:
        seen.update(more)
        found += [pid for pid in more if parents[pid][1] not in "ZX"]
    return found


def end_all() -> None:
    """End all descendants, those that they start meanwhile included; one that may not be ended is left alone."""
    last, left = time.monotonic() + GRACE_SECONDS, set[int]()
    while below := [pid for pid in descendants() if pid not in left]:
        kind = signal.SIGTERM if time.monotonic() < last else signal.SIGKILL
        for pid in below:
            try:
                os.kill(pid, kind)
            except ProcessLookupError:
                continue
            except OSError:
                left.add(pid)
        time.sleep(0.05)


def main(words: list[str]) -> None:
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    last = time.monotonic() + float(words[0])
    out, into = os.pipe()
    os.set_blocking(out, False)
    try:
        command = subprocess.Popen(
            words[1:], stdin=subprocess.DEVNULL, stdout=into, stderr=into, start_new_session=True
        )
    except OSError as error:
        say({"error": error.strerror})
        return
    os.close(into)
    tail, is_told = b"", False
    while time.monotonic() < last:
        code = command.poll()
        is_open = bool(select.select([out], [], [], PAUSE)[0])
        for _ in range(MOST_READS):
            try:
                data = os.read(out, 65536)
            except BlockingIOError:
                break
            if not data:
                is_open = False
                break
            tail = (tail + data)[-KEPT:]
        if code is not None and not is_told:
            say({"code": code, "words": tail.decode("utf-8", "replace")})
            is_told = True
        if is_told:
            reap()
            if not descendants():
                return
        if not is_open:
            time.sleep(PAUSE)
    end_all()
    if not is_told:
        say({"code": command.wait(), "words": tail.decode("utf-8", "replace")})
    reap()


def reap() -> None:
    """Take the exit statuses of orphans, which nobody else does."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def say(answer: dict[str, object]) -> None:
    os.write(1, json.dumps(answer).encode("ascii") + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
