"""Who used a host's CPU between two readings: one entry for each kind of thread; they add up to the busy time.

Thread times come from schedstat (nanoseconds), those of ended processes from their parent's time of children, and
interrupts from /proc/stat. The entries, their sources and errors: docs/development/ledger.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Literal

from vmtax.machine import MachineLost, Reader
from vmtax.machine.processes import MARK
from vmtax.meter import moment
from vmtax.meter.base import At, MeteredCommand, Readings
from vmtax.meter.moment import LOOK, Moment
from vmtax.meter.text import Files, parse_files

# A shell that starts three greps, because a process costs an emulated host up to a tenth of a second. They read the
# files of all processes; for QEMUs that we started, also those of their threads; and the clocks right next to the
# counters of the CPUs. Arguments: process ids of QEMUs that are observed like ours. Constant text.
PROGRAM = f"""\
threads=
for file in $(grep -s -l -z -x -F "{MARK}=${MARK}" /proc/[0-9]*/environ) "$@"; do
    own=/proc/${{file#/proc/}}
    own=${{own%/environ}}
    echo "ours ${{own#/proc/}}"
    read -r name 2>/dev/null < "$own/comm" || continue  # it has ended
    case $name in qemu-system*|qemu-kvm*|kvm) threads="$threads $own/task/[0-9]*/stat $own/task/[0-9]*/schedstat";; esac
done
echo "reader $$"
grep -s -a -H "" /proc/[0-9]*/stat /proc/[0-9]*/schedstat $threads
{LOOK}
grep -s -a -H -E "^(cpu|btime|timestamp|some|full|[0-9])" /proc/uptime /proc/stat /proc/schedstat /proc/pressure/irq
exit 0
"""
COMMAND = ("sh", "-c", PROGRAM)
TICK = 0.01  # seconds: the unit of /proc, independent of the kernel's own ticks; fixed on x86-64

Kind = Literal["kernel", "ours", "ended", "else"]
KERNEL = "kernel."  # prefix of a kind of kernel threads
LOOSE = ("hard_irq", "soft_irq", "steal")  # entries from /proc/stat that may also be included in the time of a thread
# The host's work for a guest on KVM besides running its code.
SERVING = (
    "vcpu_kernel",
    "vcpu_user",
    "main_loop",
    "iothreads",
    "qemu_other",
    "vhost",
    "hard_irq",
    "soft_irq",
    "idle_irq",
)
OF_QEMUS = ("guest", "vcpu_kernel", "vcpu_user", "emulator", "main_loop", "iothreads", "qemu_other", "vhost")
SPLIT = {"guest": "guest", "vcpu_kernel": "kernel", "vcpu_user": "user"}  # entry -> name of its samples
QEMUS = ("qemu-system", "qemu-kvm", "kvm")  # the last on Proxmox VE
TICKS_OF_ERROR = 2  # user and system time are each rounded down to whole ticks


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """A thread of a QEMU; times in seconds since its start."""

    name: str
    user: float  # guest time included
    system: float
    guest: float
    total: float  # from the scheduler's nanoseconds


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """A process; times in seconds since its start."""

    pid: int
    parent: int
    started: int  # ticks since the boot, because process ids are reused
    name: str
    kind: Kind
    own: float  # of all its threads, including ended ones
    children: float  # of children that it has waited for, and of theirs
    is_exact: bool  # `own` is from the scheduler's nanoseconds


@dataclass(frozen=True, slots=True)
class LedgerReading:
    """One reading of a machine; everything counted since its boot."""

    at: Moment  # its clocks
    is_irq_apart: bool  # IRQ_TIME_ACCOUNTING: the times of threads do not include interrupts
    cpus: int
    reader: int  # process id of the shell that read
    idle: float  # over all CPUs, like the others; includes waiting for disks
    loose: Mapping[str, float]  # by LOOSE
    tasks: float | None  # CPU time of all tasks, including the interrupts that they took; None: no schedstat
    processes: Mapping[tuple[int, int], ProcessTimes]  # by process id and start
    threads: Mapping[tuple[int, int], Mapping[int, ThreadTimes]]  # by the same, for QEMUs -> threads


class HostLedger:
    """The host's entries in core-seconds; none for a machine without sh or grep. Void if the clocks disagree."""

    name: ClassVar[str] = "ledger"
    at: ClassVar[At] = "hosts"
    command: ClassVar[tuple[str, ...]] = COMMAND

    def __init__(self, qemus: Mapping[str, int] = MappingProxyType({})) -> None:
        """`qemus`: path of a machine -> the process there of a QEMU that others started, and that is measured."""
        self._qemus = qemus
        self._before: dict[str, LedgerReading | None] = {}  # by machine path

    def before(self, machine: Reader) -> None:
        self._before[machine.path] = self._look(machine)

    def _look(self, machine: Reader) -> LedgerReading | None:
        pid = self._qemus.get(machine.path)
        return _look(machine, COMMAND if pid is None else (*COMMAND, "sh", str(pid)))

    def after(self, machine: Reader, works: Sequence[MeteredCommand]) -> Readings:
        before, after = self._before[machine.path], self._look(machine)
        if before is None or after is None:
            return Readings()
        if void := moment.disagreement(machine.path, before.at, after.at):
            return Readings(void=void)
        if moment.elapsed(before.at, after.at) <= 0:
            return Readings()
        rows = reckon(before, after)
        operations = [work.operations for work in works]
        if operations and None not in operations:
            rows["operations"] = sum(filter(None, operations))
        return Readings(rows)


def _look(machine: Reader, command: tuple[str, ...]) -> LedgerReading | None:
    try:
        outcome, at = moment.look(machine, command)
    except MachineLost:
        return None  # whoever uses the machine next gets the error
    reading = parse(outcome.stdout)
    return replace(reading, at=at) if reading and at else None


def parse(text: str) -> LedgerReading | None:
    """Parse PROGRAM's output; None if it is incomplete or was not understood."""
    at = moment.parse(text)
    reader = re.search(r"^reader (\d{1,9})$", text, re.MULTILINE | re.ASCII)
    # user nice system idle iowait irq softirq steal
    stat = re.search(r"^/proc/stat:cpu +((?:\d{1,18} ){7}\d{1,18})\b", text, re.MULTILINE | re.ASCII)
    cpus = len(re.findall(r"^/proc/stat:cpu\d", text, re.MULTILINE | re.ASCII))
    if not (at and reader and stat and cpus):
        return None
    counted = [int(word) * TICK for word in stat[1].split()]
    # The seventh number is the time of the tasks that ran on the CPU, in nanoseconds.
    tasks = re.findall(r"^/proc/schedstat:cpu\d{1,6}(?: \d{1,20}){6} (\d{1,20})\b", text, re.MULTILINE | re.ASCII)
    ours = set(map(int, re.findall(r"^ours (\d{1,9})$", text, re.MULTILINE | re.ASCII)))
    processes: dict[tuple[int, int], ProcessTimes] = {}
    threads: dict[int, dict[int, ThreadTimes]] = defaultdict(dict)
    for path, one in _tasks(parse_files(text)):
        if len(path) == 1:
            process = _process(path[0], one, ours)
            processes[process.pid, process.started] = process
        else:
            threads[path[0]][path[1]] = ThreadTimes(one.name, one.user, one.system, one.guest, one.ran or 0.0)
    return LedgerReading(
        at=at,
        is_irq_apart="\n/proc/pressure/irq:" in text,
        cpus=cpus,
        reader=int(reader[1]),
        idle=counted[3] + counted[4],
        loose=dict(zip(LOOSE, counted[5:8], strict=True)),
        tasks=sum(map(int, tasks)) / 1e9 if tasks else None,
        processes=processes,
        threads={key: threads[key[0]] for key in processes if key[0] in threads},
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """A line of /proc/PID/stat or /proc/PID/task/TID/stat, in seconds, with the scheduler's nanoseconds."""

    name: str
    state: str
    parent: int
    started: int
    user: float
    system: float
    children: float
    guest: float
    ran: float | None  # None: the kernel has no schedstat


_PATH = re.compile(r"/proc/(\d{1,9})(?:/task/(\d{1,9}))?/stat", re.ASCII)
_NUMBERS = re.compile(r"(?: -?\d{1,20}){41,}", re.ASCII)  # ppid to guest_time and beyond


def _tasks(files: Files) -> Iterator[tuple[tuple[int, ...], _Task]]:
    """Each task with the numbers in its path: the process id, for a thread followed by the thread id."""
    for path, line in files.items():
        head, _, tail = line.rpartition(") ")  # a name may contain anything
        where = _PATH.fullmatch(path)
        if where is None or not _NUMBERS.fullmatch(tail[1:]):
            continue
        numbers = [int(word) for word in tail[2:].split()]
        user, system, *children = (number * TICK for number in numbers[10:14])
        ran = re.match(r"\d{1,20}\b", files.get(path.replace("/stat", "/schedstat"), ""), re.ASCII)
        yield (
            tuple(int(number) for number in where.groups() if number),
            _Task(
                name=" ".join(head.partition("(")[2].split()),
                state=tail[0],
                parent=numbers[0],
                started=numbers[18],
                user=user,
                system=system,
                children=sum(children),
                guest=numbers[39] * TICK,
                ran=int(ran[0]) / 1e9 if ran else None,
            ),
        )


def _process(pid: int, task: _Task, ours: Collection[int]) -> ProcessTimes:
    is_kernel = 2 in (pid, task.parent)
    kind: Kind = "kernel" if is_kernel else "ours" if pid in ours else "ended" if task.state == "Z" else "else"
    ticks = task.user + task.system
    # The nanoseconds are those of the first thread; they are the process's total if the ticks agree.
    if task.ran is not None and 0 <= task.ran - ticks <= TICKS_OF_ERROR * TICK:
        return ProcessTimes(pid, task.parent, task.started, task.name, kind, task.ran, task.children, is_exact=True)
    return ProcessTimes(pid, task.parent, task.started, task.name, kind, ticks, task.children, is_exact=False)


def reckon(before: LedgerReading, after: LedgerReading) -> dict[str, float]:
    """Entries in core-seconds, none below zero; together with `remainder` they add up to `busy`.

    Additionally `seconds` that elapsed, and `error`: how far off the entries can be in total. A remainder below zero
    means that more was counted than the CPUs were busy.
    """
    wall = max(0.0, moment.elapsed(before.at, after.at))
    busy = max(0.0, after.cpus * wall - (after.idle - before.idle))
    entries, error = _of_threads(before, after)
    loose = {name: max(0.0, after.loose[name] - before.loose[name]) for name in LOOSE}
    # ksoftirqd runs only soft interrupts, which /proc/stat counts as such.
    apart = entries.pop("ksoftirqd", 0.0)
    loose["soft_irq"] = max(loose["soft_irq"], apart)
    _take_out(entries, loose, busy, after)
    rows = {**entries, **loose}
    unexplained = busy - sum(rows.values())
    if before.tasks is not None and after.tasks is not None and not after.is_irq_apart:
        # Neither idle nor a task's: interrupts that woke an idle CPU. A task that still runs at a reading is not in
        # `tasks` since it was last switched to, so this is at most what nothing else explains. With accounting of their
        # own, `loose` has these interrupts.
        rows["idle_irq"] = max(0.0, min(unexplained, busy - max(0.0, after.tasks - before.tasks)))
    rows["remainder"] = unexplained - rows.get("idle_irq", 0.0)
    ticks = 2 * TICK * (len(LOOSE) + 1)
    return {**rows, "busy": busy, "seconds": wall, "error": error + ticks}


def of_qemus(rows: Mapping[str, float]) -> float:
    """Core-seconds of the threads of QEMUs, and of the kernel's for their cards; `rows`: of `reckon`"""
    return sum(rows.get(entry, 0.0) for entry in OF_QEMUS)


def split_by_samples(rows: Mapping[str, float], samples: Mapping[str, float]) -> dict[str, float]:
    """The rows with the time of vCPUs split by `samples`, not by the kernel's ticks; unchanged without samples.

    rows: of `reckon`
    samples: how many found the vCPUs in `guest` mode, in the host's `kernel` and in QEMU's own code (`user`)
    """
    counted = {entry: samples.get(name, 0.0) for entry, name in SPLIT.items()}
    total = sum(counted.values())
    if not total:
        return dict(rows)
    seconds = sum(rows.get(entry, 0.0) for entry in SPLIT)
    return {**rows, **{entry: seconds * count / total for entry, count in counted.items()}, "samples": total}


def _take_out(entries: dict[str, float], loose: Mapping[str, float], busy: float, at: LedgerReading) -> None:
    """Subtract interrupts and stolen time from the threads that they interrupted, so that they are counted only once.

    The kernel does not report which threads these were, so the same share is subtracted from each. The total follows
    from the sum: time that exceeds the busy time of the CPUs was counted twice.
    """
    inside = sum(seconds for name, seconds in loose.items() if name == "steal" or not at.is_irq_apart)
    threads = sum(entries.values())
    twice = min(inside, max(0.0, threads + sum(loose.values()) - busy), threads)
    for name in entries:
        entries[name] *= 1 - twice / threads if threads else 1


def _of_threads(before: LedgerReading, after: LedgerReading) -> tuple[dict[str, float], float]:
    """Entry -> seconds of its threads; and how far off these can be."""
    entries: dict[str, float] = defaultdict(float)
    error = 0.0
    launcher = _launcher(before, after)
    ended = _ended(before, after)
    names = _names(after, launcher)
    for key, process in after.processes.items():
        was = before.processes.get(key)
        grown = max(0.0, process.own - (was.own if was else 0.0))
        children = max(0.0, process.children - (was.children if was else 0.0) - ended[key])
        if process.kind == "ours" and process.name.startswith(QEMUS):
            found = _of_qemu(before.threads.get(key, {}), after.threads.get(key, {}), key[0])
            rest = grown - sum(found.values())
            if rest > 2 * TICKS_OF_ERROR * TICK:
                found["qemu_other"] = found.get("qemu_other", 0.0) + rest  # of threads that have ended
            for name, seconds in found.items():
                entries[name] += seconds
        elif grown:
            entries[names[key]] += grown
            error += 0.0 if process.is_exact and (was is None or was.is_exact) else TICKS_OF_ERROR * TICK
        if children:
            entries["workload" if key == launcher else names[key]] += children
            error += TICKS_OF_ERROR * TICK
    return dict(entries), error


def _of_qemu(before: Mapping[int, ThreadTimes], after: Mapping[int, ThreadTimes], pid: int) -> dict[str, float]:
    """Entry -> seconds. The kernel splits a vCPU's time by ticks; only the sum is in nanoseconds."""
    entries: dict[str, float] = defaultdict(float)
    for tid, thread in after.items():
        was = before.get(tid, ThreadTimes("", 0, 0, 0, 0))
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


def _names(after: LedgerReading, launcher: tuple[int, int] | None) -> dict[tuple[int, int], str]:
    """The entry of each process: by its own name, or by the process that started it."""
    by_pid = {process.pid: process for process in after.processes.values()}
    return {key: _name(process, by_pid, launcher, after.reader) for key, process in after.processes.items()}


def _name(
    process: ProcessTimes, by_pid: Mapping[int, ProcessTimes], launcher: tuple[int, int] | None, reader: int
) -> str:
    if process.kind == "kernel":
        if owner := re.match(r"vhost-(\d{1,9})", process.name, re.ASCII):
            other = by_pid.get(int(owner[1]))
            return "vhost" if other is None or other.kind == "ours" else "other"
        kind = re.match(r"[A-Za-z_]{1,30}", process.name)
        return "ksoftirqd" if kind and kind[0] == "ksoftirqd" else KERNEL + (kind[0].rstrip("_") if kind else "others")
    if process.pid == reader or (process.kind == "ours" and process.name == "ssh"):
        return "vmtax"
    if process.kind == "ours":
        return "workload"
    seen: ProcessTimes | None = process
    for _ in range(len(by_pid)):
        if seen is None:
            break
        if (seen.pid, seen.started) == launcher:
            return "vmtax"
        seen = by_pid.get(seen.parent)
    return "other"


def _launcher(before: LedgerReading, after: LedgerReading) -> tuple[int, int] | None:
    """The process that starts our commands there and waits for them: vmtax, or its login."""
    by_pid = {process.pid: process for process in after.processes.values()}
    process = by_pid.get(after.reader)
    for _ in range(len(by_pid)):
        if process is None:
            return None
        process = by_pid.get(process.parent)
        if process and (key := (process.pid, process.started)) in before.processes and process.pid > 1:
            return key
    return None


def _ended(before: LedgerReading, after: LedgerReading) -> Mapping[tuple[int, int], float]:
    """Process -> seconds that its children, which have ended since, had used before: these are in its time of
    children.
    """
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
