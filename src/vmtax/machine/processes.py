"""End processes of a run, and run commands; used by the guard.

It is a part of the guard, which runs by itself on a machine: only the standard library, and no name that guard.py has
too.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

from vmtax.machine.tree import shorten

MARK = "VMTAX_RUN"
QEMU_USERS = range(1879048192, 2147483646)  # the users of QEMUs started by root: no account has these numbers
MOST_LOG = 2**26  # bytes of output of a process that outlives us
LOG_SECONDS = 2.0  # between two checks of its size
TERM_SECONDS = 2.0  # between SIGTERM and SIGKILL
SCAN_SECONDS = 0.02  # between two looks for processes
# Of a process without a program, in the flags of /proc/PID/stat: PF_KTHREAD and PF_EXITING (include/linux/sched.h).
NO_PROGRAM = 0x00200000 | 0x00000004


def is_marked(pid: int, token: str) -> bool:
    """Whether that process exists, carries the token, and belongs to no other user, who could fake the token."""
    return carries(pid, token) and is_ours(pid)


def is_ours(pid: int) -> bool:
    """Whether all its user ids are ours, or that of a QEMU started by root."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            users = next(line.split()[1:] for line in file if line.startswith("Uid:"))
    except (OSError, StopIteration):
        return False
    us = os.geteuid()
    return all(int(user) == us or (us == 0 and int(user) in QEMU_USERS) for user in users)


def statistics(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third, the state, on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def start_of(pid: int) -> int | None:
    """When that process started, in the kernel's ticks since boot: together with it, the number identifies one
    process.
    """
    fields = statistics(pid)
    return int(fields[19]) if fields else None


def content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def is_in_exec(pid: int) -> bool:
    """Whether it is executing a new program whose environment is not set up yet, so that it has no code either.

    The kernel sets the address of the code after that of the environment (load_elf_binary). A kernel thread, and a
    process that is ending, have neither.
    """
    fields = statistics(pid)
    return bool(fields) and not int(fields[6]) & NO_PROGRAM and int(fields[23]) == 0


def environment_of(pid: int) -> list[bytes]:
    """The environment of that process, one NAME=VALUE each. Raises OSError if it has ended, or if we may not read it.

    The kernel shows none while it executes a program: the caller of execve goes on before that is over.
    """
    path = f"/proc/{pid}/environ"
    environment = content(path)
    if not environment:
        deadline = time.monotonic() + TERM_SECONDS  # in case a kernel never shows the code's address
        while is_in_exec(pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        environment = content(path)
    return environment.split(b"\0")


def carries(pid: int, token: str) -> bool:
    """Whether that process exists and carries the token, whoever set it."""
    try:
        return f"{MARK}={token}".encode() in environment_of(pid)
    except OSError:
        return False  # it has ended, or we may not read it


def marked(token: str) -> list[int]:
    """All processes that carry the token, except ourselves."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and carries(pid, token)]


def end_processes(token: str, deadline: float) -> None:
    """SIGTERM, two seconds, SIGKILL until none is left.

    Looks again before it believes that there is none: a process may have begun after a look, by one that ended before
    the look came to it, and carries the token only once it executes its program.
    """
    started = time.monotonic()
    deadline = min(deadline, started + 10 * TERM_SECONDS)
    empty = 0
    while empty < 2:
        pids = marked(token)
        empty = 0 if pids else empty + 1
        force = time.monotonic() - started > TERM_SECONDS
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
            except OSError:
                pass  # it has just ended, or changed its user
        if time.monotonic() > deadline:
            return  # in uninterruptible sleep; the rest is still worth undoing
        time.sleep(SCAN_SECONDS)


def command(argv: list[str], seconds: float) -> str:
    """Run it; returns the reason if it failed, else an empty string. Processes that it leaves running are not waited
    for.
    """
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
    """Wait for the end of a process, by its pidfd; truncate its logs meanwhile."""
    while not select.select([outlived], [], [], LOG_SECONDS)[0]:
        for path in logs if isinstance(logs, list) else []:
            shorten(str(path), MOST_LOG)
