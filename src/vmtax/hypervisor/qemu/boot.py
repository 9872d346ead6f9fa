"""Boot a guest with QEMU on any machine, and so at any depth."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.machines import first_line, last_words
from vmtax.hypervisor.base import AWAITED, BootFailed, BootPatience, GuestSpec, Lasting
from vmtax.hypervisor.console import FLOODED, PANIC, READY, Console
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.qemu.cycles import Cycles
from vmtax.hypervisor.qemu.exit_trace import ExitTrace
from vmtax.hypervisor.qemu.guest import QemuGuest
from vmtax.hypervisor.qemu.kvm import KvmCounters
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError, Socket
from vmtax.hypervisor.qemu.samples import Samples
from vmtax.machine import Machine, MachineLost, Process
from vmtax.machine.answer import counts_of, number_of
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine

KERNEL_SECONDS = "/run/vmtax/kernel_seconds"  # written by the guest's init
QMP_SECONDS = 30.0
LOAD_SECONDS = 300.0  # for a saved state, which may be as large as the guest's memory
MOST_TIMES = 10  # the patience, however busy the machine is
# How long each thread of the process and of its descendants ran and waited for a CPU, in ns: QEMU may be a child of the
# program that gives it its libraries. Constant text, the process id is an argument.
WAITED = (
    *("sh", "-c"),
    'while [ -n "$1" ]; do next=; for pid in $1; do cat "/proc/$pid/task/"*/schedstat; '
    'next="$next $(cat "/proc/$pid/task/"*/children)"; done; set -- "${next# }"; done',
    "sh",
)
# cat joins the run's credentials (standard input) and the image's initramfs. Constant text, paths stay arguments.
JOIN = 'umask 077; mkdir "$1" && cat - "$2" > "$1/initrd" && shift 2 && for file; do : > "$file" || exit 1; done'
# QEMU's last messages survive it. Constant text, the arguments stay arguments.
KEEPING_WORDS = ("sh", "-c", 'log=$1; shift; exec "$@" 2>>"$log"', "sh")
# For a guest, its initrd and its console
CommandLine = Callable[[GuestSpec, PurePosixPath, PurePosixPath], tuple[str, ...]]
SCHEDSTAT = ("ran", "waited", "turns")  # Documentation/scheduler/sched-stats.rst
_numbers = itertools.count(1)


@contextlib.contextmanager
def boot(
    parent: Machine,
    spec: GuestSpec,
    command_line: CommandLine,
    credentials: Credentials,
    local: LocalMachine,
    patience: BootPatience,
    attach: Callable[[], None] | None,
) -> Iterator[QemuGuest]:
    """Implements `vmtax.hypervisor.boot`."""
    with contextlib.ExitStack() as stack:
        ends = stack.enter_context(contextlib.ExitStack())
        directory = spec.lasting.runtime if spec.lasting else parent.scratch / f"{spec.name}-{next(_numbers)}"
        console_file = spec.lasting.console if spec.lasting else directory / "console"
        ends.callback(_remove, parent, directory)
        written = (console_file, *((spec.lasting.log,) if spec.lasting else ()))
        names = map(str, (directory, spec.initrd, *written))
        joined = parent.try_run("sh", "-c", JOIN, "sh", *names, input=credentials.archive.decode("ascii"))
        path = f"{parent.path}/{spec.name}"
        if not joined.ok:
            words = first_line(joined.stderr)
            cure = "; make room there" if os.strerror(errno.ENOSPC) in words else ""
            raise BootFailed(f"{path}: what boots it cannot be written to {directory}: {words}{cure}")
        console, *log = (_followed(parent, path, stack) for path in written)
        argv = command_line(spec, directory / "initrd", console_file)

        launched = time.monotonic()
        process = parent.start(*((*KEEPING_WORDS, str(spec.lasting.log)) if spec.lasting else ()), *argv)
        ends.callback(process.stop)
        for each in (console, *log):
            each.bound(process)
        try:
            qmp = _connected(spec.lasting, process, stack)
            if attach is not None:
                attach()
            ports = qmp.forwarded_ports()
            if spec.incoming not in (None, AWAITED):
                _load(qmp)
        except QmpError as error:
            raise died(path, process, console, str(error)) from error
        if spec.incoming is None:
            wait_until_ready(path, process, console, patience, launched, lambda: waited_for_a_cpu(parent, process))
        options = (*credentials.options(), *parent.reach(ports[22]))
        machine = SshMachine(path, local, "root@127.0.0.1", options, is_guest=True)
        stack.callback(machine.close)
        guest = QemuGuest(path, spec, argv, process, qmp, console, ports, machine, ends)
        if spec.incoming != AWAITED:
            machine.connect(patience.ready)
        if spec.incoming is None:
            guest.kernel_seconds = number_of(machine, KERNEL_SECONDS, machine.read_text(KERNEL_SECONDS), most=1e10)
        guest.ready_seconds = time.monotonic() - launched
        guest.kvm = KvmCounters(qmp) if spec.accelerator == "kvm" else None
        guest.trace = _traced(parent, guest, stack)
        guest.cycles = _counted(parent, guest, stack)
        _prepare_samples(parent, guest)
        yield guest


def _traced(parent: Machine, guest: QemuGuest, stack: contextlib.ExitStack) -> ExitTrace | None:
    """The histogram of its exits, if its settings ask for one. Raises BootFailed if that is impossible."""
    if not guest.spec.settings.exit_trace:
        return None
    with _obtaining("guest.exit_trace=on", guest):
        trace = ExitTrace(parent, f"{parent.scratch.name}-{guest.directory.name}", guest.vcpus(parent))
    stack.callback(trace.end)
    return trace


def _counted(parent: Machine, guest: QemuGuest, stack: contextlib.ExitStack) -> Cycles | None:
    """The cycles of its QEMU, if its settings ask for them. Raises BootFailed if they cannot be counted."""
    if not guest.spec.settings.cycles:
        return None
    with _obtaining("guest.cycles=on", guest):
        cycles = Cycles(parent, [thread.id for thread in guest.threads(parent)])
    stack.callback(cycles.end)
    return cycles


def _prepare_samples(parent: Machine, guest: QemuGuest) -> None:
    """Start what can sample its vCPUs, unless it is emulated, outlives us, or its parent does not let us sample."""
    if guest.kvm is None or guest.spec.lasting is not None:
        return
    try:
        guest.samples = Samples(parent, guest.directory, guest.vcpus(parent))
    except MachineLost:
        raise
    except CannotDo as error:
        guest.unsampled = str(error)


@contextlib.contextmanager
def _obtaining(level: str, guest: QemuGuest) -> Iterator[None]:
    """Raises BootFailed if what is done here fails, or if the guest has no KVM, which this level takes."""
    try:
        if guest.kvm is None:
            raise CannotDo("no KVM here, it is emulated")
        yield
    except CannotDo as error:
        raise BootFailed(f"{guest.path}: {level} was not obtained: {error}") from error


def _followed(parent: Machine, path: PurePosixPath, stack: contextlib.ExitStack) -> Console:
    console = Console(parent, path)
    stack.callback(console.stop)
    return console


def _connected(lasting: Lasting | None, process: Process, stack: contextlib.ExitStack) -> Qmp:
    """QMP over QEMU's pipes, or over its socket; if QEMU ends before it creates the socket, the wait ends too."""
    if lasting is None:
        return Qmp(process, QMP_SECONDS)
    deadline = time.monotonic() + QMP_SECONDS
    while True:
        try:
            socket = Socket(str(lasting.socket), 0.0)
            break
        except QmpError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    stack.callback(socket.close)
    return Qmp(socket, QMP_SECONDS)


def _load(qmp: Qmp) -> None:
    """Wait until the incoming state is loaded, and resume."""
    deadline = time.monotonic() + LOAD_SECONDS
    while qmp.execute("query-status")["status"] == "inmigrate":
        if time.monotonic() > deadline:
            raise QmpError(f"the saved state is not loaded after {LOAD_SECONDS:.0f} s")
        time.sleep(0.02)
    qmp.execute("cont")


def waited_for_a_cpu(machine: Machine, process: Process) -> float:
    """How long a thread of it or of a descendant was ready to run but got no CPU, in seconds, for the one that waited
    longest; 0 if the kernel does not say it.
    """
    lines = machine.try_run(*WAITED, str(process.pid)).stdout.splitlines()
    return max((counts_of(line, SCHEDSTAT).get("waited", 0.0) for line in lines), default=0.0) / 1e9


def wait_until_ready(
    path: str,
    process: Process,
    console: Console,
    patience: BootPatience,
    launched: float,
    waited: Callable[[], float] = lambda: 0.0,
) -> None:
    """Wait until the guest's init prints that it is ready. Raises BootFailed. `launched`: monotonic clock, in
    seconds. `waited`: for how many of them QEMU got no CPU since then: they are not the guest's.
    """
    spoke = time.monotonic()
    without = 0.0
    while True:
        line = console.next_line(0.2)
        now = time.monotonic()
        if line is not None:
            spoke = now
            if READY in line:
                return
        elif process.poll() is not None:
            raise died(path, process, console, "QEMU ended before the guest was ready")
        silence = patience.silence if line is None and patience.silence is not None else math.inf
        if now - spoke - without > silence or now - launched - without > patience.ready:
            without = waited() if now - launched <= MOST_TIMES * patience.ready else 0.0
        if silent := now - spoke - without > silence:
            why = f"its console has been silent for {silence:.0f} s"
        elif now - launched - without > patience.ready:
            why = f"it was not ready within {patience.ready:.0f} s"
        else:
            continue
        besides = f", besides {without:.0f} s in which QEMU got no CPU" if without >= 1 else ""
        raise BootFailed(_not_ready(path, f"{why}{besides}", console), silent=silent)


def _not_ready(path: str, why: str, console: Console) -> str:
    """An error whose first line is complete, because lists and trials show only that line."""
    return f"{path}: {why}; {console.end()}\nconsole:\n{console.last_lines()}"


def died(path: str, process: Process, console: Console, what: str) -> BootFailed:
    """QEMU is gone: after a panic if the guest had printed something, else with an error of QEMU's own."""
    words = last_words(process)
    time.sleep(0.3)  # its last console output may still be arriving
    code = process.poll()
    panicked = PANIC in console.text()
    is_flooded = console.is_flooded.is_set()
    cause = FLOODED if is_flooded else "the guest kernel panicked" if panicked else what
    last = f": {words.splitlines()[-1]}" if words and not panicked else ""
    lines = [f"{path}: {cause} (QEMU's exit code: {code}){last}"]
    if words:
        lines.append(words)
    lines.append(f"console:\n{console.last_lines()}")
    return BootFailed("\n".join(lines), qemu_died=not panicked and not is_flooded and was_killed(code))


def was_killed(code: int | None) -> bool:
    """Whether a process with that exit code died by a signal. Over ssh, the code is 128 + the signal."""
    return code is not None and (code < 0 or code > 128)


def _remove(parent: Machine, directory: PurePosixPath) -> None:
    with contextlib.suppress(MachineLost):
        parent.try_run("rm", "-rf", "--one-file-system", str(directory))
