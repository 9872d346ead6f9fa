"""Who used a host's CPU between two readings: an entry for each kind of thread, which add up to its busy time.

Threads are taken from schedstat (nanoseconds), what ended meanwhile from its parent's time of children, and interrupts
from /proc/stat. The entries, their sources and errors: docs/explanation/ledger.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from vmtax.machine import Reader
from vmtax.machine.local import ISOLATED, PYTHON
from vmtax.machine.processes import MARK
from vmtax.meter.base import Readings, Work

# One process reads everything, itself last. A line for each process; one for each thread of a QEMU that we started.
PROGRAM = """\
import os, sys, time
mark = sys.argv[1]
mark = (mark + "=" + os.environ.get(mark, "?")).encode()
def read(path):
    try:
        with open(path, "rb", 0) as file:
            return file.read()
    except OSError:
        return b""
def look(path):
    name, end, rest = read(path + "/stat").partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    if len(fields) < 41:
        return None
    run = read(path + "/schedstat").split() or [b"-"]
    return fields, run[0].decode(), " ".join(name.decode(errors="replace").split())
own = str(os.getpid())
pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and pid != own] + [own]
for pid in pids:
    found = look("/proc/" + pid)
    if found is None:
        continue
    f, run, name = found
    kernel = pid == "2" or f[1] == b"2"
    ours = not kernel and mark in read("/proc/" + pid + "/environ").split(b"\\0")
    kind = "k" if kernel else "m" if ours else "z" if f[0] == b"Z" else "-"
    print("p", pid, *(f[n].decode() for n in (1, 19, 11, 12, 13, 14)), run, kind, name)
    if ours and name.startswith(("qemu-system", "qemu-kvm")):
        for tid in os.listdir("/proc/" + pid + "/task"):
            found = look("/proc/" + pid + "/task/" + tid)
            if found:
                print("t", pid, tid, *(found[0][n].decode() for n in (11, 12, 40)), *found[1:])
stat = read("/proc/stat").decode()
apart = int(os.path.exists("/proc/pressure/irq"))
print("clock", time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK"), apart)
print("cpus", stat.count("\\ncpu"), own)
print(stat.partition("\\n")[0])
"""
COMMAND = (PYTHON, *ISOLATED, PROGRAM, MARK)

Kind = Literal["kernel", "ours", "ended", "else"]
KINDS: Mapping[str, Kind] = {"k": "kernel", "m": "ours", "z": "ended", "-": "else"}
KERNEL = "kernel."  # in front of a kind of kernel threads
LOOSE = ("hard_irq", "soft_irq", "steal")  # entries from /proc/stat that may be in the time of a thread as well
QEMUS = ("qemu-system", "qemu-kvm")
TICKS_OF_ERROR = 2  # user and system time are each cut off to whole ticks


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a QEMU, in seconds since its start."""

    name: str
    user: float  # guest time included
    system: float
    guest: float
    total: float  # of the scheduler's nanoseconds


@dataclass(frozen=True, slots=True)
class Process:
    """A process, in seconds since its start."""

    pid: int
    parent: int
    started: int  # ticks since the boot: a number may be used again
    name: str
    kind: Kind
    own: float  # of all its threads, ended ones too
    children: float  # of children that it has waited for, and of theirs
    is_exact: bool  # `own` is from the scheduler's nanoseconds


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a machine, all counted since its boot."""

    seconds: float  # its clock
    tick: float  # seconds
    is_irq_apart: bool  # IRQ_TIME_ACCOUNTING: no thread's time has interrupts in it
    cpus: int
    reader: int  # the process that looked
    idle: float  # over all CPUs, as the others; waiting for disks included
    loose: Mapping[str, float]  # LOOSE
    processes: Mapping[tuple[int, int], Process]  # by number and start
    threads: Mapping[tuple[int, int], Mapping[int, Thread]]  # the same of a QEMU -> its threads


class Ledger:
    """The host's entries in core-seconds; of a host whose python3 cannot be run there are none."""

    name: ClassVar[str] = "ledger"
    at: ClassVar[Literal["host", "seat"]] = "host"
    command: ClassVar[tuple[str, ...]] = COMMAND

    def __init__(self) -> None:
        self._before: dict[str, Reading | None] = {}  # by the machine's path

    def before(self, machine: Reader) -> None:
        self._before[machine.path] = parse(machine.try_run(*COMMAND).stdout)

    def after(self, machine: Reader, works: Sequence[Work]) -> Readings:
        before, after = self._before[machine.path], parse(machine.try_run(*COMMAND).stdout)
        if before is None or after is None or after.seconds <= before.seconds:
            return Readings()
        rows = reckon(before, after)
        operations = [work.operations for work in works]
        if operations and None not in operations:
            rows["operations"] = sum(filter(None, operations))
        return Readings(rows)


def parse(text: str) -> Reading | None:
    """What PROGRAM printed; None where its end is missing or not understood."""
    clock = re.search(r"^clock (\d{1,12}\.?\d{0,9}) (\d{1,6}) ([01])$", text, re.MULTILINE | re.ASCII)
    where = re.search(r"^cpus (\d{1,6}) (\d{1,9})$", text, re.MULTILINE | re.ASCII)
    # user nice system idle iowait irq softirq steal
    stat = re.search(r"^cpu +((?:\d{1,18} ){7}\d{1,18})\b", text, re.MULTILINE | re.ASCII)
    if not (clock and where and stat) or int(clock[2]) == 0 or int(where[1]) == 0:
        return None
    tick = 1 / int(clock[2])
    counted = [int(word) * tick for word in stat[1].split()]
    processes: dict[tuple[int, int], Process] = {}
    for process in _processes(text, tick):
        processes[process.pid, process.started] = process
    keys = {pid: (pid, started) for pid, started in processes}
    threads: dict[tuple[int, int], dict[int, Thread]] = defaultdict(dict)
    for pid, tid, thread in _threads(text, tick):
        if pid in keys:
            threads[keys[pid]][tid] = thread
    return Reading(
        seconds=float(clock[1]),
        tick=tick,
        is_irq_apart=clock[3] == "1",
        cpus=int(where[1]),
        reader=int(where[2]),
        idle=counted[3] + counted[4],
        loose=dict(zip(LOOSE, counted[5:8], strict=True)),
        processes=processes,
        threads=threads,
    )


_PROCESS = re.compile(r"^p (\d{1,9}) (\d{1,9}) " + r"(\d{1,18}) " * 5 + r"(\d{1,18}|-) ([kmz-]) (.*)$", re.M | re.A)
_THREAD = re.compile(r"^t (\d{1,9}) (\d{1,9}) " + r"(\d{1,18}) " * 3 + r"(\d{1,18}) (.*)$", re.M | re.A)


def _processes(text: str, tick: float) -> Iterator[Process]:
    for pid, parent, started, user, system, *children, ran, kind, name in _PROCESS.findall(text):
        ticks = (int(user) + int(system)) * tick
        exact = int(ran) / 1e9 if ran != "-" else -1.0
        # The nanoseconds are those of the first thread; they are the whole where the ticks say so.
        is_exact = 0 <= exact - ticks <= TICKS_OF_ERROR * tick
        waited = sum(map(int, children)) * tick
        own = exact if is_exact else ticks
        yield Process(int(pid), int(parent), int(started), name, KINDS[kind], own, waited, is_exact)


def _threads(text: str, tick: float) -> Iterator[tuple[int, int, Thread]]:
    for pid, tid, user, system, guest, ran, name in _THREAD.findall(text):
        yield int(pid), int(tid), Thread(name, int(user) * tick, int(system) * tick, int(guest) * tick, int(ran) / 1e9)


def reckon(before: Reading, after: Reading) -> dict[str, float]:
    """Entries in core-seconds, none below zero, with `remainder` adding up to `busy`.

    Beside them `seconds` that went by, and `error`: how far off the entries can be together. A remainder below zero
    says that more was counted than the CPUs were busy.
    """
    wall = after.seconds - before.seconds
    busy = max(0.0, after.cpus * wall - (after.idle - before.idle))
    entries, error = _of_threads(before, after)
    loose = {name: max(0.0, after.loose[name] - before.loose[name]) for name in LOOSE}
    # The kernel's ksoftirqd runs nothing but soft interrupts, and /proc/stat counts them as such.
    apart = entries.pop("ksoftirqd", 0.0)
    loose["soft_irq"] = max(loose["soft_irq"], apart)
    _take_out(entries, loose, busy, after)
    rows = {**entries, **loose}
    rows["remainder"] = busy - sum(rows.values())
    ticks = 2 * after.tick * (len(LOOSE) + 1)
    return {**rows, "busy": busy, "seconds": wall, "error": error + ticks}


def _take_out(entries: dict[str, float], loose: Mapping[str, float], busy: float, at: Reading) -> None:
    """Take interrupts and stolen time out of the threads that they interrupted, so that they are counted once.

    Which ones these were, no kernel says: each gives the same share. How much it is, the sum says: what is more than
    the CPUs were busy was counted twice.
    """
    inside = sum(seconds for name, seconds in loose.items() if name == "steal" or not at.is_irq_apart)
    threads = sum(entries.values())
    twice = min(inside, max(0.0, threads + sum(loose.values()) - busy), threads)
    for name in entries:
        entries[name] *= 1 - twice / threads if threads else 1


def _of_threads(before: Reading, after: Reading) -> tuple[dict[str, float], float]:
    """Entry -> seconds of its threads; and how far off they can be."""
    entries: dict[str, float] = defaultdict(float)
    error = 0.0
    launcher = _launcher(before, after)
    above, ended = _above(after, launcher), _ended(before, after)
    names = _names(after, launcher, above)
    for key, process in after.processes.items():
        was = before.processes.get(key)
        grown = max(0.0, process.own - (was.own if was else 0.0))
        children = max(0.0, process.children - (was.children if was else 0.0) - ended[key])
        if process.kind == "ours" and process.name.startswith(QEMUS):
            found = _of_qemu(before.threads.get(key, {}), after.threads.get(key, {}), key[0])
            rest = grown - sum(found.values())
            if rest > 2 * TICKS_OF_ERROR * after.tick:
                found["qemu_other"] = found.get("qemu_other", 0.0) + rest  # of threads that have ended
            for name, seconds in found.items():
                entries[name] += seconds
        elif grown:
            entries[names[key]] += grown
            error += 0.0 if process.is_exact and (was is None or was.is_exact) else TICKS_OF_ERROR * after.tick
        if children:
            # The sandbox of a workload on the host ends before its first process, which then is left to one above.
            entries["workload" if key == launcher else "orphans" if key in above else names[key]] += children
            error += TICKS_OF_ERROR * after.tick
    return dict(entries), error


def _of_qemu(before: Mapping[int, Thread], after: Mapping[int, Thread], pid: int) -> dict[str, float]:
    """Entry -> seconds. The kernel splits a vCPU's time by ticks; what it has in nanoseconds is the sum."""
    entries: dict[str, float] = defaultdict(float)
    for tid, thread in after.items():
        was = before.get(tid, Thread("", 0, 0, 0, 0))
        total = max(0.0, thread.total - was.total)
        if thread.name.startswith(("CPU ", "ALL CPUs/")):
            guest = min(total, max(0.0, thread.guest - was.guest))
            kernel = min(total - guest, max(0.0, thread.system - was.system))
            entries["guest"] += guest
            entries["vcpu_kernel"] += kernel
            entries["emulator" if thread.name.endswith("/TCG") else "vcpu_user"] += total - guest - kernel
        elif thread.name.startswith("vhost-"):
            entries["vhost"] += total
        elif thread.name.startswith("IO "):
            entries["iothreads"] += total
        else:
            entries["main_loop" if tid == pid else "qemu_other"] += total
    return {name: seconds for name, seconds in entries.items() if seconds > 0}


def _names(after: Reading, launcher: tuple[int, int] | None, above: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Entry of each process: what it is by itself, or by what started it."""
    by_pid = {process.pid: process for process in after.processes.values()}
    names = {key: _name(process, by_pid, launcher, after.reader) for key, process in after.processes.items()}
    waiting = {pid for pid, _ in above}
    left = (key for key, process in after.processes.items() if process.kind == "ended" and process.parent in waiting)
    return names | dict.fromkeys(left, "orphans")


def _name(process: Process, by_pid: Mapping[int, Process], launcher: tuple[int, int] | None, reader: int) -> str:
    if process.kind == "kernel":
        if process.name.startswith("vhost-"):
            return "vhost"
        kind = re.match(r"[A-Za-z_]{1,30}", process.name)
        return "ksoftirqd" if kind and kind[0] == "ksoftirqd" else KERNEL + (kind[0].rstrip("_") if kind else "others")
    if process.pid == reader or (process.kind == "ours" and process.name == "ssh"):
        return "vmtax"
    if process.kind == "ours":
        return "workload"
    seen: Process | None = process
    for _ in range(len(by_pid)):
        if seen is None:
            break
        if (seen.pid, seen.started) == launcher:
            return "vmtax"
        seen = by_pid.get(seen.parent)
    return "other"


def _launcher(before: Reading, after: Reading) -> tuple[int, int] | None:
    """What starts our commands there and waits for them: vmtax, or its login."""
    by_pid = {process.pid: process for process in after.processes.values()}
    process = by_pid.get(after.reader)
    for _ in range(len(by_pid)):
        if process is None:
            return None
        process = by_pid.get(process.parent)
        if process and (key := (process.pid, process.started)) in before.processes and process.pid > 1:
            return key
    return None


def _above(after: Reading, launcher: tuple[int, int] | None) -> set[tuple[int, int]]:
    """Init, and what else started the launcher: one of them waits for what has lost its parent."""
    by_pid = {process.pid: key for key, process in after.processes.items()}
    found: set[tuple[int, int]] = set()
    key = launcher
    while key and (key := by_pid.get(after.processes[key].parent)) and key not in found:
        found.add(key)
    return found | {key for key in after.processes if key[0] == 1}


def _ended(before: Reading, after: Reading) -> Mapping[tuple[int, int], float]:
    """Process -> seconds that children which have ended since had used before: they are in its time of children."""
    keys = {pid: (pid, started) for pid, started in before.processes}
    found: dict[tuple[int, int], float] = defaultdict(float)
    for key, process in before.processes.items():
        if key in after.processes or process.kind == "kernel":
            continue
        above: tuple[int, int] | None = key
        for _ in range(len(keys)):
            above = keys.get(before.processes[above].parent) if above else None
            if above is None or above in after.processes:
                break
        if above in after.processes and above is not None:
            found[above] += process.own + process.children
    return found
