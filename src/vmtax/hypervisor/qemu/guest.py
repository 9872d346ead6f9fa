"""A guest that QEMU runs: its end, its move to another QEMU, and what can be read of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax.core.machines import first_line
from vmtax.core.notices import recorded
from vmtax.core.records import Moved
from vmtax.core.stopwatch import Stopwatch
from vmtax.design.disk import During
from vmtax.design.migration import Mode
from vmtax.hypervisor.base import GuestSpec, Thread
from vmtax.hypervisor.console import FLOODED, Console
from vmtax.hypervisor.move import Move, MoveFailed
from vmtax.hypervisor.qemu.cards import primary_options
from vmtax.hypervisor.qemu.copying import COPIES, BlockCopy
from vmtax.hypervisor.qemu.cycles import Cycles
from vmtax.hypervisor.qemu.exit_trace import ExitTrace
from vmtax.hypervisor.qemu.kvm import KvmCounters
from vmtax.hypervisor.qemu.memory import memory_readings
from vmtax.hypervisor.qemu.migrate import Late, Split, differs, migrate
from vmtax.hypervisor.qemu.qmp import Qmp, QmpError
from vmtax.hypervisor.qemu.samples import Samples
from vmtax.hypervisor.qemu.threads import threads
from vmtax.hypervisor.spec import Nic, Passed
from vmtax.machine import Machine, MachineError, MachineLost, Process
from vmtax.machine.ssh import SshMachine

KILLED = (-9, 137)  # SIGKILL, as reported to a parent and by a shell
SSH_FAILED = 255  # of ssh, which starts QEMU on another machine
SHUTDOWN_SECONDS = 30.0
KILL_SECONDS = 10.0
# Kills one QEMU and the program that starts it. $1: an argument that only they and our own shell have. Constant text.
KILL = (
    *("sh", "-c"),
    'for file in $(grep -lsF -e "$1" /proc/[0-9]*/cmdline); do pid=${file#/proc/}; pid=${pid%/cmdline}; '
    'test "$pid" = $$ || kill -KILL "$pid" 2> /dev/null; done; true',
    "sh",
)
CONNECT_SECONDS = 20.0  # to a guest that just migrated; ssh to a paused guest waits for up to 30 s
QUIT_SECONDS = 5.0
PLUG_SECONDS = 60.0  # to pass a device of the host: all of the guest's memory is mapped for it
LOST = "the guest is lost: during a postcopy its newest memory is at the destination"
LAST_WORDS_SECONDS = 1.0  # a QEMU whose connection just broke may still be ending


@dataclass
class QemuGuest:
    """A guest that QEMU runs."""

    path: str
    spec: GuestSpec
    argv: tuple[str, ...]
    process: Process
    qmp: Qmp
    console: Console
    ports: dict[int, int]
    machine: SshMachine
    ends: contextlib.ExitStack  # callbacks for its end, unless it is left running
    ready_seconds: float = 0.0
    kernel_seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    obtained: dict[str, float] = field(default_factory=dict)
    kvm: KvmCounters | None = None  # None: it is emulated
    trace: ExitTrace | None = None  # None: its exits are not traced
    cycles: Cycles | None = None  # None: its cycles are not counted
    samples: Samples | None = None  # None: its vCPUs are not sampled
    unsampled: str = ""  # why they cannot be, though it runs on KVM

    def cause_of_death(self) -> str | None:
        """QEMU's last message if it is gone, or why it has paused the guest; None while the guest runs."""
        code = self.process.poll()
        if self.console.is_flooded.is_set():
            return f"{self.path}: {FLOODED}"
        if code is None:
            return self._why_paused()
        words = self.process.stderr_tail().strip().splitlines()
        killed = "killed from outside, or by a host out of memory: see `dmesg`"
        lost = "the connection to the machine that it ran on was lost, or it was killed there"
        if panic := self.console.panic():
            return f"the kernel of {self.path} ended: {panic}"
        silent = {**dict.fromkeys(KILLED, killed), SSH_FAILED: lost}
        last = words[-1] if words else silent.get(code, "it said nothing")
        return f"QEMU of {self.path} ended with {code}: {last}"

    def is_paused(self) -> bool:
        """Whether it is paused: by a failed write (werror=enospc, if its bus supports that), until somebody resumes
        it.
        """
        return bool(self.qmp.execute("query-status").get("status") == "io-error")

    def go_on(self) -> None:
        self.qmp.execute("cont")

    def memory_readings(self, parent: Machine) -> dict[str, float]:
        return memory_readings(parent, self.qmp, self.unique, self.spec.memory_bytes)

    def threads(self, parent: Machine) -> tuple[Thread, ...]:
        return threads(parent, self.qmp, self.unique)

    def sample(self, on: bool) -> str:
        return self.samples.switch(on) if self.samples else self.unsampled

    def counters(self) -> dict[str, float]:
        counted = self.kvm.read() if self.kvm else {}
        reasons = self.trace.read() if self.trace else {}
        cycles = self.cycles.read() if self.cycles else {}
        samples = self.samples.read() if self.samples else {}
        return {
            **counted,
            **{f"reason.{name}": count for name, count in reasons.items()},
            **{f"cycles.{name}": count for name, count in cycles.items()},
            **{f"samples.{name}": count for name, count in samples.items()},
        }

    @property
    def unique(self) -> str:
        """An argument that only its QEMU has: its console, in a directory of its own."""
        return self.argv[self.argv.index("-serial") + 1]

    @property
    def directory(self) -> PurePosixPath:
        """A directory of its own, on the machine that it runs on."""
        return PurePosixPath(self.unique.partition(":")[2]).parent

    def vcpus(self, parent: Machine) -> list[int]:
        """The threads that run its vCPUs, as `parent` counts them; [] if they cannot be read. Raises QmpError."""
        return [thread.id for thread in self.threads(parent) if thread.vcpu is not None]

    def move_to(self, destination: QemuGuest, how: Move, arrived: Callable[[], None] = lambda: None) -> Moved:
        if unlike := differs(self.spec, destination.spec):
            destination.process.stop()
            raise MoveFailed(f"{self.path} was not migrated: {unlike}; the guest runs on at the source")
        try:
            moved = migrate(self.qmp, destination.qmp, how)
            arrived()
            destination.log_in()
        except (QmpError, MachineError) as error:
            words = "" if isinstance(error, Late) else destination.first_words()
            destination.process.stop()  # first, so that there are never two instances of one guest
            where = LOST if isinstance(error, Split) else self._where_it_is(how.settings.mode)
            raise MoveFailed(f"{self.path} was not migrated: {first_line(str(error))}{words}; {where}") from error
        self.machine.close()
        self._end()
        here = ("spec", "argv", "process", "qmp", "console", "ports", "machine", "kvm", "trace", "cycles", "samples")
        for name in here:
            setattr(self, name, getattr(destination, name))
        return moved

    def plug(self, device: Passed) -> None:
        (card,) = (card for card in self.spec.cards if isinstance(card, Nic) and card.stands_by)
        self.qmp.execute("device_add", PLUG_SECONDS, primary_options(card, device))

    def balloon_to(self, size: int) -> None:
        self.qmp.execute("balloon", value=size)

    def ballooned(self) -> int:
        return int(self.qmp.execute("query-balloon")["actual"])

    def copying(self, disk: str, what: During) -> BlockCopy:
        (drive,) = (each for each in self.spec.disks if each.name == disk)
        return COPIES[what](self.qmp, drive)

    def log_in(self) -> None:
        """Log in after its arrival. Raises MachineError. The first attempt may be reset by a guest that just
        arrived.
        """
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                return self.machine.connect(max(1.0, deadline - time.monotonic()))
            except MachineLost:
                if self.process.poll() is not None:  # a panic ends it as well
                    raise MachineLost(f"at its destination {self.cause_of_death()}") from None
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def first_words(self) -> str:
        """The first error of its QEMU, as part of a sentence; "" if there is none. Later lines are consequences."""
        with contextlib.suppress(TimeoutError):
            self.process.wait(LAST_WORDS_SECONDS)
        words = [line for line in self.process.stderr_tail().splitlines() if line.strip() and "warning:" not in line]
        return f"; its destination says: {words[0]}" if words else ""

    def _where_it_is(self, mode: Mode) -> str:
        """Where the guest is after a failed migration, once the destination has ended: here, unless a part of it was
        there.
        """
        try:
            status = str(self.qmp.execute("query-migrate").get("status"))
            if status.startswith("postcopy") or (mode is Mode.POSTCOPY and status == "completed"):
                return LOST
            if self.qmp.execute("query-status")["status"] == "running":
                return "the guest runs on at the source"
            self.qmp.execute("cont")
            return "the guest goes on at the source"
        except QmpError as error:
            return f"the guest is lost: {error}"

    def _end(self) -> None:
        """End its QEMU, which the guest has left."""
        with contextlib.suppress(QmpError, TimeoutError):
            self.qmp.execute("quit")
            self.process.wait(QUIT_SECONDS)
        self.process.stop()

    def leave(self) -> None:
        assert self.spec.lasting is not None
        self.ends.pop_all()

    def _why_paused(self) -> str | None:
        try:
            if not self.is_paused():
                return None
        except QmpError:
            return None
        full = any(event.get("data", {}).get("nospace") for event in self.qmp.events)
        return f"QEMU has paused {self.path}: the storage of its disk {'is full' if full else 'failed'}"

    def kill(self, parent: Machine) -> None:
        parent.try_run(*KILL, self.unique)
        try:
            self.process.wait(KILL_SECONDS)
        except TimeoutError as error:
            raise MachineError(f"QEMU of {self.path} could not be killed: {error}") from error

    def shut_down(self) -> float | None:
        """Shut it down; returns the seconds until QEMU was gone, None if QEMU had to be killed or failed.

        Power-off by QMP, then kill, are the last resorts; a warning reports them.
        """
        watch = Stopwatch()
        with contextlib.suppress(MachineError):
            self.machine.try_run("/usr/lib/vmtax/poweroff", timeout=SHUTDOWN_SECONDS)
        try:
            if self.process.wait(SHUTDOWN_SECONDS) != 0:
                self.warnings.append(recorded("shutdown", f"QEMU crashed in the shutdown: {self.cause_of_death()}"))
                return None
        except TimeoutError:
            late = f"{self.path} did not shut down within {SHUTDOWN_SECONDS:.0f} s and was powered off"
            self.warnings.append(recorded("shutdown", late))
            with contextlib.suppress(QmpError, TimeoutError):
                self.qmp.execute("quit")
                self.process.wait(5.0)
            return None
        took = watch.seconds
        if watch.void:
            self.warnings.append(recorded("shutdown", watch.void))
            return None
        return took
