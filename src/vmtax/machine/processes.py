"""The processes that the guard ends, and those that it starts.

A part of the guard, which runs by itself on a machine: the standard library only, and no name that guard.py has too.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from vmtax.machine.tree import shorten

MARK = "VMTAX_RUN"
QEMU_USERS = range(1879048192, 2147483646)  # the users of QEMUs that root started: no account has these numbers
MOST_LOG = 2**26  # bytes of what a process that outlives us says
LOG_SECONDS = 2.0  # between two looks at that
TERM_SECONDS = 2.0  # between SIGTERM and SIGKILL


def is_marked(pid: int, token: str) -> bool:
    """Whether that process is there, carries the token, and is no other user's, who could give it any."""
    return carries(pid, token) and is_ours(pid)


def is_ours(pid: int) -> bool:
    """Whether it has our user in every respect, or that of a QEMU which root started."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            users = next(line.split()[1:] for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return False
    us = os.geteuid()
    return all(int(user) == us or (us == 0 and int(user) in QEMU_USERS) for user in users)


def start_of(pid: int) -> int | None:
    """When that process started, in the kernel's ticks since boot: with it, the number names one process only."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def carries(pid: int, token: str) -> bool:
    """Whether that process is there and carries the token, whoever gave it that."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={token}".encode() in file.read().split(b"\0")
    except OSError:
        return False  # ended meanwhile, or not ours to read


def marked(token: str) -> list[int]:
    """Every process that carries the token, but ourselves."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and carries(pid, token)]


def end_processes(token: str, deadline: float) -> None:
    """SIGTERM, two seconds, SIGKILL until none is left."""
    started = time.monotonic()
    deadline = min(deadline, started + 10 * TERM_SECONDS)
    while pids := marked(token):
        force = time.monotonic() - started > TERM_SECONDS
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
            except OSError:
                pass  # ended just now, or has become somebody else's
        if time.monotonic() > deadline:
            return  # in uninterruptible sleep; the rest is still worth undoing
        time.sleep(0.05)


def command(argv: list[str], seconds: float) -> str:
    """Run it; the reason where it failed, else an empty string. What it leaves running is not waited for."""
    words = os.memfd_create("stderr")
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"no end within {seconds:.0f} s"
        if code == 0:
            return ""
        said = os.pread(words, 4096, max(0, os.fstat(words).st_size - 4096)).decode(errors="replace").strip()
        return said or f"exit code {code}"
    finally:
        os.close(words)


def wait_for(outlived: int, logs: object) -> None:
    """The end of that process, by its pidfd; its logs stay short."""
    while not select.select([outlived], [], [], LOG_SECONDS)[0]:
        for path in logs if isinstance(logs, list) else []:
            shorten(str(path), MOST_LOG)
