"""Cut the power of the host under test, with a command of the user's that cuts it and restores it.

The command runs on the machine that runs vmtax, under `machine/supervisor.py`, which bounds its output, and ends it and
all that it started when the time for the host to come back is over. It may end before the power is gone (a power strip
with a delay) or after the host is back. The host itself shows whether its power was cut: it has a new boot id, and has
been up for less time than has passed since the command began.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path, PurePosixPath

from vmtax.core.errors import CannotDo
from vmtax.core.events import Event, Step
from vmtax.core.machines import first_line, how_ended
from vmtax.core.records import Json, Treatment
from vmtax.core.stopwatch import Stopwatch
from vmtax.core.units import count_of, format_duration
from vmtax.machine import Machine, MachineError
from vmtax.machine.answer import json_or_none, number_of
from vmtax.machine.local import ISOLATED, PYTHON, LocalMachine
from vmtax.machine.reader import LocalReader, SshReader
from vmtax.machine.ssh import SshMachine, connect_host
from vmtax.meter.disk import disk_facts
from vmtax.meter.facts import present_boot
from vmtax.plan.schema import Plan
from vmtax.storage import DISK_DIRECTORY, Target
from vmtax.testbed.host import hosts
from vmtax.testbed.host.disks import backing_of
from vmtax.workload.durability import NAME

BACK_WITHIN = 900.0  # seconds that a host may take to come back, unless the command line says otherwise
GONE_SECONDS = 60.0  # seconds after the command succeeded by which the power must be gone
LOGIN_SECONDS = 30.0  # for one attempt
BETWEEN_SECONDS = 2.0  # seconds between two attempts
UPTIME = "/proc/uptime"
UPTIME_SLACK = 5.0  # seconds by which the clocks of two machines may differ
# Nobody is asked for a passphrase while the host comes back, and a host that is off delays us little.
UNATTENDED = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
IN_MEMORY = ("tmpfs", "ramfs", "overlay")  # file systems that may lose their contents with the power
EMPTIED = ("/tmp", "/run", "/dev/shm")  # directories that many systems empty when they start


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The power cut that the command line describes."""

    command: tuple[str, ...]  # its words
    back_within: float = BACK_WITHIN  # seconds

    @staticmethod
    def parse(command: str, back_within: float) -> PowerCut:
        """Split the command into words as a shell would; no shell runs it. Raises ValueError, with a message for the
        user, if it cannot be started.
        """
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise ValueError(f"{command!r}: {str(error).lower()}") from None
        if not words:
            raise ValueError("is empty: name a command that takes the power from the host and gives it back")
        program = shutil.which(words[0])
        if program is None:
            raise ValueError(f"{words[0]}: no such program here, or it cannot be executed")
        return PowerCut((str(Path(program).absolute()), *words[1:]), back_within)

    def to_json(self) -> Json:
        return {"command": list(self.command), "back_within": self.back_within}

    @property
    def words(self) -> str:
        return shlex.join(self.command)


class NotCut(CannotDo):
    """The power was not cut or not restored as agreed; the run ends."""


@dataclass
class Power:
    """Control of the power of the host under test in one session of a run; a session ends with the power cut."""

    host: str  # as the plan names it
    order: PowerCut
    is_over: bool = False  # the session has ended: the host was rebooted, or its state is unknown
    problem: BaseException | None = None  # why the run cannot be resumed in another session; None: it can

    @contextlib.contextmanager
    def ends_session(self) -> Iterator[None]:
        """Mark the session as over; remember an exception that prevents another session."""
        self.is_over = True
        try:
            yield
        except (NotCut, KeyboardInterrupt) as problem:
            self.problem = problem
            raise

    @contextlib.contextmanager
    def cutting(self, local: LocalMachine) -> Iterator[Cutting]:
        """Start the command. It goes on if vmtax ends, because it must restore the power, until its time is over."""
        source = resources.files("vmtax.machine").joinpath("supervisor.py").read_text(encoding="utf-8")
        answer = Path(local.scratch) / "power-cut"
        with answer.open("wb") as file:
            process = subprocess.Popen(
                (PYTHON, *ISOLATED, source, str(self.order.back_within), *self.order.command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        yield Cutting(self, local, process, answer, Stopwatch())


@dataclass(frozen=True, slots=True)
class Ended:
    """How the command ended, as `machine/supervisor.py` says it."""

    code: int = 0  # exit status; negative: killed by that signal
    words: str = ""  # the end of what it printed
    error: str = ""  # why it could not be started


@dataclass
class Cutting:
    """A power cut in progress."""

    power: Power
    local: LocalMachine
    process: subprocess.Popen[bytes]  # of `machine/supervisor.py`
    answer: Path  # what that prints
    watch: Stopwatch  # since the start of the command
    ended: float | None = None  # when the command was seen to have ended

    @property
    def is_late(self) -> bool:
        """Whether the power should be gone by now. Raises NotCut if the command failed."""
        is_gone = self.process.poll() is not None  # before its answer is read, so that it is complete
        ended = json_or_none(self.answer.read_bytes(), Ended)
        if ended is None:
            if is_gone:
                raise NotCut(f"{self.power.order.words}: what watches over it was killed; nothing counts")
            return False
        if ended.error:
            raise NotCut(f"{self.power.order.words}: {ended.error}; no power was cut")
        self.ended = self.ended or time.monotonic()
        if ended.code != 0:
            last = ended.words.strip().rpartition("\n")[2]
            said = f": {last}" if last else " and said nothing"
            raise NotCut(f"{self.power.order.words} ended with {how_ended(ended.code)}{said}; nothing counts")
        return time.monotonic() - self.ended > GONE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the host should be back by now."""
        return self.watch.seconds >= self.power.order.back_within

    def wait(self, boot_id: str, path: PurePosixPath, emit: Callable[[Event], None]) -> SshMachine:
        """Wait for the host to be back with the file `path`, in a boot other than `boot_id`; no guard runs there.

        Raises NotCut.
        """
        limit, what = self.power.order.back_within, f"waiting for {self.power.host}"
        while True:
            waited = self.watch.seconds
            share = min(1.0, waited / limit)
            emit(Step(what, f"{waited:.0f} s since the cut, {format_duration(limit)} at most", share))
            is_late = self.is_late
            try:
                machine = self._logged_in()
                try:
                    why = self._why_not_back(machine, boot_id, path, is_late=is_late)
                    if not why:
                        return machine
                except BaseException:
                    machine.close()
                    raise
                machine.close()
            except NotCut:
                raise
            except CannotDo as error:
                why = first_line(str(error))
            if self.is_over:
                break
            time.sleep(BETWEEN_SECONDS)
        command = "" if self.ended else f", and {self.power.order.words} has not ended"
        raise NotCut(
            f"{self.power.host} was not back in another boot within {format_duration(limit)}{command}: {why}; nothing"
            " counts of this cut"
        )

    def _logged_in(self) -> SshMachine:
        route = hosts.route(self.power.host)
        route = replace(route, options=(*UNATTENDED, *route.options))
        return connect_host(self.local, route, LOGIN_SECONDS, guarded=False)

    def _why_not_back(self, machine: Machine, boot_id: str, path: PurePosixPath, *, is_late: bool) -> str:
        """Why the host is not back yet; "" if it is. Raises NotCut if it was never off, or is another machine."""
        up = number_of(machine, UPTIME, machine.read_text(UPTIME).partition(" ")[0])
        if present_boot(machine) == boot_id:
            if is_late:
                raise NotCut(
                    f"{self.power.order.words} ended well, and {self.power.host} is up in the same boot as before, for"
                    f" {format_duration(up)}: its power was not cut within {format_duration(GONE_SECONDS)}; nothing"
                    " counts"
                )
            return "it is up in the same boot as before"
        if up > self.watch.elapsed + UPTIME_SLACK:
            raise NotCut(
                f"{self.power.host} is another machine since the cut, or was rebooted before it: it is up for"
                f" {format_duration(up)}; nothing counts"
            )
        if self.ended is None:
            return "it is up, and may be cut again"
        return "" if machine.succeeds("test", "-e", str(path)) else f"it is up, and {path} is not there"


def why_not(plan: Plan, target: Target, interleaved: str | None) -> str | None:
    """Why the power of the plan's host cannot be cut, judging by plan and options only, in one line; None if it can."""
    names = [choice.name for choice in plan.workloads]
    if plan.host == "local":
        return "the host under test is the machine that runs vmtax, which would end with it: name another with --host"
    if NAME not in names:
        return f"plan {plan.name} has no workload durability: vmtax run durability"
    if others := [name for name in names if name != NAME]:
        return f"the host is booted anew after each guest, so nothing is compared with {others[0]}: leave it out"
    if interleaved is not None:
        return "one host's power is cut: leave out --interleave-with"
    named = {"--disk-device": target.devices, "--disk-group": target.group, "--disk-pool": target.pool}
    if given := [option for option, value in named.items() if value]:
        return f"disks are tried that are there again after a reboot, files in a directory: leave out {given[0]}"
    return None


def one_state(plan: Plan) -> Plan:
    """The same plan with one state per disk: that is what a power cut leaves."""
    (choice,) = plan.workloads
    parameters = {**choice.parameters, "states": 1}
    return plan.model_copy(update={"workloads": (choice.model_copy(update={"parameters": parameters}),)})


def announced_cuts(host: str, order: PowerCut, cuts: int) -> list[str]:
    """What is done to the host, for the person who is asked to agree."""
    return [
        f"the power of {host}, {count_of(cuts, 'time')}, by running {order.words} here: whatever runs on that host then"
        " ends, and what has not reached its disks is lost",
        f"waits up to {format_duration(order.back_within)} for it to come back each time, and stops where it does not",
    ]


def not_there_again(treatments: Sequence[Treatment]) -> dict[str, str]:
    """Treatments whose disk would not exist any more when the host is back -> why."""
    found = {}
    for one in treatments:
        if one.layer == "nested":
            found[one.name] = "--power-cut takes the power from the host itself, not from an outer VM: leave nested out"
        elif one.layer == "vm" and not backing_of(one).lies_in_directory:
            found[one.name] = (
                "--power-cut takes a disk that is there again when the host is back, a file in a directory of it:"
                " disk.volume=plain, disk.filesystem=as-is"
            )
    return found


def refuse_cuts(host: str, machine: Machine, target: Target) -> None:
    """Raises CannotDo if a power cut would end vmtax, or destroy the disks under test. Only reads."""
    if present_boot(machine) == present_boot(LocalReader()):
        raise CannotDo(f"{host} is the machine that runs vmtax, which --power-cut would end: run it on another")
    directory = target.directory or DISK_DIRECTORY
    if any(directory.is_relative_to(each) for each in EMPTIED):
        raise CannotDo(f"{host}: {directory} is empty after a reboot: name another directory with --disk-dir")
    system = disk_facts(machine, directory)["file_system"]
    if system in IN_MEMORY:
        raise CannotDo(
            f"{host}: {directory} lies in {system}, whose contents end with the power: name another directory with"
            " --disk-dir"
        )
    route = hosts.route(host)
    try:
        reader = SshReader(replace(route, options=(*UNATTENDED, *route.options)))
        try:
            reader.log_in()
        finally:
            reader.close()
    except MachineError as error:
        raise CannotDo(
            f"{host}: --power-cut logs in repeatedly without a user at the terminal, which fails:"
            f" {first_line(str(error))}; ssh-add gives the key to an agent"
        ) from error
