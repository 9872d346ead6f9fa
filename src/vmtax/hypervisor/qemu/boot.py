"""boot(parent, spec): a guest on any machine, hence to any depth."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.hypervisor.credentials import Credentials
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.hypervisor.spec import READY, GuestSpec, command_line
from vmtax.machine import Machine, MachineError, MachineLost, Process
from vmtax.machine.answer import number_of
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine

CONSOLE_LINES = 15  # how much of the console a failure shows
MOST_LINES, LONGEST_LINE = 10_000, 4096  # of a console; the second in bytes
MOST_CONSOLE = 64 * 2**20  # bytes that a guest may print: QEMU writes them to a file of its parent
FLOODED = f"the guest was ended: it printed more than {MOST_CONSOLE >> 20} MiB on its console"
KERNEL_SECONDS = "/run/vmtax/kernel_seconds"  # in a guest, by its init
PANIC = "Kernel panic"
KILLED = (-9, 137)  # SIGKILL, as a parent sees it and as a shell tells it
QMP_SECONDS = 30.0
SHUTDOWN_SECONDS = 30.0
# cat joins the run's credentials (standard input) and the image's initramfs: constant text, paths stay arguments.
JOIN = 'umask 077 && mkdir "$1" && cat - "$2" > "$1/initrd" && : > "$1/console"'

_numbers = itertools.count(1)


class BootFailed(CannotDo):
    """A guest did not come up; the text holds QEMU's words and the last console lines."""

    def __init__(self, text: str, *, qemu_died: bool = False, silent: bool = False) -> None:
        super().__init__(text)
        self.qemu_died = qemu_died  # QEMU itself ended by a signal, not the guest
        self.silent = silent  # the console said nothing for too long


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds."""

    ready: float = 120.0  # from launch to sshd
    silence: float | None = None  # of a talkative console, before the guest is taken for hung


@dataclass
class Guest:
    """A running guest."""

    path: str
    spec: GuestSpec
    argv: tuple[str, ...]
    process: Process
    qmp: Qmp
    console: Console
    ports: dict[int, int]  # guest TCP port -> port on the parent's loopback
    machine: SshMachine
    ready_seconds: float = 0.0
    kernel_seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def cause_of_death(self) -> str | None:
        """QEMU's last word where it is gone, or why it has paused the guest; None while that runs."""
        code = self.process.poll()
        if self.console.is_flooded.is_set():
            return f"{self.path}: {FLOODED}"
        if code is None:
            return self._why_paused()
        words = self.process.stderr_tail().strip().splitlines()
        killed = "killed from outside, or by a host out of memory: `dmesg` tells"
        last = words[-1] if words else killed if code in KILLED else "it said nothing"
        return f"QEMU of {self.path} ended with {code}: {last}"

    def _why_paused(self) -> str | None:
        """A write that failed pauses a guest (werror=enospc, where its bus has it) until somebody lets it go on."""
        try:
            if self.qmp.execute("query-status", timeout=5.0).get("status") != "io-error":
                return None
        except QmpError:
            return None
        full = any(event.get("data", {}).get("nospace") for event in self.qmp.events)
        return f"QEMU has paused {self.path}: what its disk lies on {'is full' if full else 'failed'}"

    def shut_down(self) -> float | None:
        """Orderly end; the seconds until QEMU was gone, None where it did not end by itself and well.

        Power-off by QMP, then kill, are the last resorts; a warning says so.
        """
        started = time.monotonic()
        with contextlib.suppress(MachineError):
            self.machine.try_run("/usr/lib/vmtax/poweroff", timeout=SHUTDOWN_SECONDS)
        try:
            if self.process.wait(SHUTDOWN_SECONDS) != 0:
                self.warnings.append(f"QEMU crashed in the shutdown: {self.cause_of_death()}")
                return None
        except TimeoutError:
            self.warnings.append(f"did not shut down within {SHUTDOWN_SECONDS:.0f} s; it was powered off")
            with contextlib.suppress(QmpError, TimeoutError):
                self.qmp.execute("quit")
                self.process.wait(5.0)
            return None
        return time.monotonic() - started


class Console:
    """The guest's serial console, followed line by line while it lasts, and kept."""

    def __init__(self, parent: Machine, path: PurePosixPath, most: int = MOST_CONSOLE) -> None:
        """`most`: bytes; a guest that prints more is ended."""
        self._tail = parent.start("tail", "-c", "+1", "-f", str(path))
        # A guest may print for ever: the last lines are kept, and those that nobody has waited for are not.
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._arrived: queue.Queue[str] = queue.Queue(MOST_LINES)
        self._most = most
        self.is_flooded = threading.Event()
        self._flooding: list[Process] = []
        self._parent = parent
        threading.Thread(target=self._follow, name="console", daemon=True).start()

    def _follow(self) -> None:
        size = 0
        with contextlib.suppress(OSError, ValueError, MachineError):
            while raw := self._tail.stdout.readline(LONGEST_LINE):
                size += len(raw)
                if size > self._most:
                    self.is_flooded.set()
                    self._end_flood()
                    return
                line = raw.decode(errors="replace").rstrip()
                self._lines.append(line)
                with contextlib.suppress(queue.Full):
                    self._arrived.put_nowait(line)

    def bound(self, process: Process) -> None:
        """Say which QEMU prints here, so that it is ended where it prints too much."""
        self._flooding.append(process)
        if self.is_flooded.is_set():
            self._end_flood()

    def _end_flood(self) -> None:
        for process in list(self._flooding):
            self._parent.try_run("kill", "-KILL", str(process.pid), timeout=10.0)

    def next_line(self, timeout: float) -> str | None:
        """The next line not yet seen here, or None after `timeout` seconds."""
        try:
            return self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None

    def text(self) -> str:
        return "\n".join(list(self._lines))

    def last_lines(self) -> str:
        """The end of it; after a panic the lines around the panic's own, the rest is a stack trace."""
        lines = list(self._lines)
        end = next((number + 3 for number, line in enumerate(lines) if PANIC in line), len(lines))
        return "\n".join(f"  {line}" for line in lines[max(0, end - CONSOLE_LINES) : end]) or "  (nothing)"

    def stop(self) -> None:
        self._tail.stop()


@contextlib.contextmanager
def boot(
    parent: Machine,
    spec: GuestSpec,
    credentials: Credentials,
    local: LocalMachine,
    *,
    patience: Patience | None = None,
    attach: Callable[[], None] | None = None,
) -> Iterator[Guest]:
    """Boot `spec` on `parent`; ends the guest at exit, whatever happened. Raises BootFailed or MachineError.

    `attach` is called when QEMU runs and holds its tap.
    """
    with contextlib.ExitStack() as stack:
        yield _start(parent, spec, credentials, local, patience or Patience(), attach, stack)


def _start(
    parent: Machine,
    spec: GuestSpec,
    credentials: Credentials,
    local: LocalMachine,
    patience: Patience,
    attach: Callable[[], None] | None,
    stack: contextlib.ExitStack,
) -> Guest:
    directory = parent.scratch / f"{spec.name}-{next(_numbers)}"
    stack.callback(_remove, parent, directory)
    parent.run("sh", "-c", JOIN, "sh", str(directory), spec.initrd, input=credentials.archive.decode("ascii"))
    console = Console(parent, directory / "console")
    stack.callback(console.stop)
    argv = command_line(spec, directory / "initrd", directory / "console")
    path = f"{parent.path}/{spec.name}"

    launched = time.monotonic()
    process = parent.start(*argv)
    stack.callback(process.stop)
    console.bound(process)
    try:
        qmp = Qmp(process, QMP_SECONDS)
        ports = qmp.forwarded_ports()
    except QmpError as error:
        raise died(path, process, console, str(error)) from error
    if attach is not None:
        attach()
    wait_until_ready(path, process, console, patience, launched)
    machine = SshMachine(
        path, local, "root@127.0.0.1", (*credentials.options(), *parent.reach(ports[22])), is_guest=True
    )
    stack.callback(machine.close)
    machine.connect(patience.ready)
    kernel_seconds = number_of(machine, KERNEL_SECONDS, machine.read_text(KERNEL_SECONDS), most=1e10)
    ready_seconds = time.monotonic() - launched
    return Guest(path, spec, argv, process, qmp, console, ports, machine, ready_seconds, kernel_seconds)


def wait_until_ready(path: str, process: Process, console: Console, patience: Patience, launched: float) -> None:
    """Until the guest's init says so on its console; raises BootFailed. `launched`: monotonic clock, in seconds."""
    spoke = time.monotonic()
    while True:
        line = console.next_line(0.2)
        now = time.monotonic()
        if line is not None:
            spoke = now
            if READY in line:
                return
        elif process.poll() is not None:
            raise died(path, process, console, "QEMU ended before the guest was ready")
        elif patience.silence is not None and now - spoke > patience.silence:
            words = f"{path}: the console has been silent for {patience.silence:.0f} s; it last said\n"
            raise BootFailed(words + console.last_lines(), silent=True)
        if now - launched > patience.ready:
            words = f"{path}: not ready within {patience.ready:.0f} s; its console last said\n"
            raise BootFailed(words + console.last_lines())


def died(path: str, process: Process, console: Console, what: str) -> BootFailed:
    """QEMU is gone: a panic when the guest had already spoken, else something QEMU says itself."""
    with contextlib.suppress(TimeoutError):
        process.wait(2.0)
    time.sleep(0.3)  # what it last wrote to the console is still on its way
    code = process.poll()
    words = process.stderr_tail().strip()
    panicked = PANIC in console.text()
    is_flooded = console.is_flooded.is_set()
    cause = FLOODED if is_flooded else "the guest kernel panicked" if panicked else what
    last = f": {words.splitlines()[-1]}" if words and not panicked else ""
    lines = [f"{path}: {cause} (QEMU's exit code: {code}){last}"]
    if words:
        lines.append(words)
    lines.append(f"console:\n{console.last_lines()}")
    # Behind ssh a death by signal is 128 + the signal.
    return BootFailed(
        "\n".join(lines), qemu_died=not panicked and not is_flooded and code is not None and (code < 0 or code > 128)
    )


def _remove(parent: Machine, directory: PurePosixPath) -> None:
    with contextlib.suppress(MachineLost):
        parent.try_run("rm", "-rf", "--one-file-system", str(directory))
