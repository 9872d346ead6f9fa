"""Make an isolated partition of a machine's CPUs for some threads, look at it, and give the CPUs back.

This file runs by itself, on a host under test (`python3 -I -S -c SOURCE STEP DIRECTORY ...`), so it imports the
standard library only. The kernel (6.2 or newer) keeps all other threads off such CPUs. When the CPUs come back, it
lets threads run there again that their owner or the boot (isolcpus=) kept off: therefore each thread's CPUs are
recorded before anything is changed, and put back.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

KERNEL_THREAD = 0x00200000  # PF_KTHREAD, in the flags of /proc/PID/stat
REMOVAL_SECONDS = 5.0  # for the last threads to leave
ISOLATED_AT_BOOT = "/sys/devices/system/cpu/isolated"
Threads = dict[str, tuple[str, list[int]]]  # thread id -> (when it started, the CPUs on which it may run)


def numbers(text: str) -> list[int]:
    """The CPUs in a list of the kernel's."""
    found: list[int] = []
    for part in text.strip().split(",") if text.strip() else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def begin(directory: Path, cpus: str, record: Path, ids: list[str]) -> str:
    """Make the partition and move these threads there; why the kernel does not make it, empty if it does."""
    control = directory.parent / "cgroup.subtree_control"
    was_on = "cpuset" in control.read_text().split()
    before = threads()
    _write(record, {"was_on": was_on, "before": before, "during": {}})
    if not was_on:
        control.write_text("+cpuset")
    directory.mkdir()
    (directory / "cgroup.type").write_text("threaded")
    (directory / "cpuset.cpus").write_text(cpus)
    for thread in ids:
        (directory / "cgroup.threads").write_text(thread)
    (directory / "cpuset.cpus.partition").write_text("isolated")
    _write(record, {"was_on": was_on, "before": before, "during": threads()})
    state = (directory / "cpuset.cpus.partition").read_text().strip()
    return "" if state == "isolated" else state


def look(directory: Path) -> dict[str, Any]:
    """The partition as it is, and how many threads of other programs may run on its CPUs."""
    own = (directory / "cgroup.threads").read_text().split()
    text = (directory / "cpuset.cpus.effective").read_text().strip()
    cpus = set(numbers(text))
    return {
        "partition": (directory / "cpuset.cpus.partition").read_text().strip(),
        "cpus": text,
        "threads": len(own),
        "strangers": sum(
            thread not in own and not cpus.isdisjoint(where)
            for thread, (_, where) in threads(programs_only=True).items()
        ),
    }


def end(directory: Path, record: Path) -> None:
    """Give the CPUs back, and put back where threads may run. There may be nothing to undo."""
    last = threads()
    _remove(directory)
    if not record.exists():
        return
    kept = json.loads(record.read_text())
    if not kept["was_on"]:
        with contextlib.suppress(OSError):  # others use it by now
            (directory.parent / "cgroup.subtree_control").write_text("-cpuset")
    with contextlib.suppress(OSError):
        at_boot = numbers(Path(ISOLATED_AT_BOOT).read_text())
        for thread, cpus in put_back(kept["before"], kept["during"], last, threads(), at_boot).items():
            with contextlib.suppress(OSError):  # it has ended, or the kernel binds it
                os.sched_setaffinity(int(thread), cpus)
    record.unlink()


def put_back(before: Threads, during: Threads, last: Threads, now: Threads, at_boot: list[int]) -> dict[str, list[int]]:
    """Threads that may run elsewhere than before -> their CPUs. Those that somebody moved meanwhile are left alone.

    during, last: at the begin and at the end of the partition; now: after it; at_boot: CPUs isolated by isolcpus=
    """
    wrong: dict[str, list[int]] = {}
    for thread, (started, cpus) in now.items():
        old = before.get(thread)
        if old is not None and old[0] == started:
            moved = thread in during and thread in last and during[thread][1] != last[thread][1]
            if old[1] != cpus and not moved:
                wrong[thread] = old[1]
        elif at_boot and set(at_boot) < set(cpus):  # a newer thread, from a parent that was let there meanwhile
            wrong[thread] = [cpu for cpu in cpus if cpu not in at_boot]
    return wrong


def threads(programs_only: bool = False) -> Threads:
    """The machine's threads; the kernel's own too, unless it is programs only."""
    found: Threads = {}
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = (task / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if not (programs_only and int(fields[6]) & KERNEL_THREAD):
                found[task.name] = (fields[19], sorted(os.sched_getaffinity(int(task.name))))
    return found


def _remove(directory: Path) -> None:
    deadline = time.monotonic() + REMOVAL_SECONDS
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _write(record: Path, kept: dict[str, Any]) -> None:
    new = record.with_suffix(".new")
    new.write_text(json.dumps(kept))
    new.rename(record)


def main(argv: list[str]) -> str:
    """What is printed."""
    step, directory, *rest = argv
    if step == "begin":
        try:
            return begin(Path(directory), rest[0], Path(rest[1]), rest[2:])
        except OSError as error:
            return str(error)
    if step == "look":
        return json.dumps(look(Path(directory)))
    end(Path(directory), Path(rest[0]))
    return ""


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
