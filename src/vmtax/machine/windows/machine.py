"""A machine with Windows. No guard runs there: all that is ours lies in one directory, which a scheduled task removes
if we never come back, and which is looked for once more after we removed it.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import NoReturn

from vmtax.core.machines import DEFAULT_TIMEOUT, Machine, MachineError, MachineLost, Outcome, Process, Undoing
from vmtax.machine.local import LocalMachine, to_bytes
from vmtax.machine.login_shell import LoginShell, WindowsThere
from vmtax.machine.ssh import LOGIN_SECONDS, SshMachine, SshRoute
from vmtax.machine.windows import room, task
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.command_line import BadCommandLine, quoted
from vmtax.machine.windows.transport import SMALL_SECONDS, SshTransport, Transport

ENDING_SECONDS = 10.0  # for files to be let go of by programs that were ended, and by a virus scanner
NO_SERVER = (  # added to ssh's words
    "; does an OpenSSH server run there? In a Windows, as an administrator in PowerShell: Add-WindowsCapability -Online"
    " -Name OpenSSH.Server~~~~0.0.1.0; Start-Service sshd"
)
ENDED_HERE, CANNOT_START = -1, 126  # as exit codes
_NOT_THERE = 9009  # exit code of cmd.exe if there is no such program


@dataclass(frozen=True, slots=True)
class Windows:
    """An `Os`. Programs are those of the pack, in a directory, under names of this run's alone, by which they are
    ended.
    """

    directory: PureWindowsPath
    token: str  # "": they have their own names, and nobody else's are ended
    name: str = "Windows"

    def program(self, name: str) -> str:
        return str(self.directory / self.file(name))

    def file(self, name: str) -> str:
        """The name of a program's file: "fio-0123456789abcdef.exe"."""
        return f"{PurePosixPath(name).name}{f'-{self.token}' if self.token else ''}.exe"

    def fio_engine(self, *, waits: bool) -> tuple[str, ...]:
        return ("--ioengine=windowsaio", "--thread")  # with a depth of 1, it waits for each operation


class WindowsMachine(Machine):
    """A Windows, and the way to it."""

    def __init__(self, transport: Transport) -> None:
        self.path = transport.path
        self.left: list[str] = []  # what could not be removed, one line each
        self.token = secrets.token_hex(8)
        self._way = transport
        self._home: PureWindowsPath | None = None  # the parent of our directory, once that is there
        self._programs: list[str] = []  # files of ours that may run
        self._scheduled = 0.0  # when our task was, by our steady clock

    @property
    def shell(self) -> LoginShell:
        return self._way.shell

    @property
    def code_page(self) -> int | None:
        """Of its console; None: not known."""
        return self._way.code_page

    @property
    def name(self) -> str:
        """Of our directory and our task."""
        return f"vmtax-{self.token}"

    @property
    def directory(self) -> PureWindowsPath:
        """Ours; it is there after `set_up`."""
        if self._home is None:
            raise MachineError(f"{self.path}: nothing of ours is on that Windows yet")
        return self._home / self.name

    @property
    def os(self) -> Windows:
        return Windows(self.directory, self.token)

    def answers(self) -> bool:
        if self._home and time.monotonic() - self._scheduled > 3600 * task.RENEWED_HOURS:
            self._schedule()
        return self.succeeds("cmd", "/c", "ver")

    def file(self, program: str) -> str:
        """The name of a program's file there, also before that is there."""
        return f"{program}-{self.token}.exe"

    def size(self, path: PurePath) -> int:
        """Bytes of a file there. Raises MachineError."""
        return self._way.size(path)

    def free_bytes(self, directory: PureWindowsPath) -> int | None:
        """Bytes that are free there for us; None: not known. Raises MachineLost."""
        listed = self.carry(room.listing(directory))
        return room.free_bytes(listed.stdout) if listed.code == 0 else None

    def carry(self, line: str, timeout: float = SMALL_SECONDS) -> WindowsOutcome:
        """What cmd.exe makes of a line that prints little. Raises MachineLost."""
        try:
            return self._way.carry(line, timeout)
        except TimeoutError:
            raise MachineLost(f"{self.path}: a command did not end within {timeout:.0f} s") from None

    def set_up(self, home: PureWindowsPath, programs: Sequence[str] = ()) -> None:
        """Make our directory in `home`, and the task that removes it and ends these programs, before anything else.

        Raises MachineError.
        """
        quoted([str(home)])
        self._home, self._programs = home, list(programs)
        self._way.make_directory(self.directory)
        self._schedule()

    def _schedule(self) -> None:
        """Schedule the task, or put it off. Raises MachineError."""
        file = self.directory / "task.xml"
        now = self._way.clock(file)
        self.write_bytes(file, task.removal_task(self.directory, self._programs, now))
        made = self.try_run(*task.creation(self.name, file))
        if not made.ok:
            said = made.stderr.strip() or made.stdout.strip() or f"exit code {made.code}"
            raise MachineError(
                f"{self.path}: the task that removes what is ours cannot be scheduled ({said}): log in as a member of"
                " Administrators whose token is not filtered, such as ssh://Administrator@…"
            )
        self._scheduled = time.monotonic()

    def try_run(self, *argv: str, input: str | None = None, timeout: float = DEFAULT_TIMEOUT) -> Outcome:
        started = time.monotonic()
        try:
            ended = self._way.run(argv, self._home and self.directory, to_bytes(input or ""), timeout)
        except BadCommandLine as refusal:
            return Outcome(self.path, argv, CANNOT_START, "", f"{refusal}\n", 0.0)
        except TimeoutError:
            self._end_programs()
            return Outcome(self.path, argv, ENDED_HERE, "", "", time.monotonic() - started, timed_out=True)
        seconds = time.monotonic() - started
        if ended.code is None:
            raise MachineLost(f"{self.path}: {argv[0]} did not end in order: does the machine sleep, or restart?")
        stderr = ended.stderr
        if ended.code == _NOT_THERE and self._home and PureWindowsPath(argv[0]).name in self._programs:
            stderr = (
                f"{stderr.strip()}\n{argv[0]} is gone: an antivirus program may have removed it: exclude its folder\n"
            )
        return Outcome(self.path, argv, ended.code, ended.stdout, stderr, seconds)

    def push(self, source: Path, target: PurePath, timeout: float = 600.0) -> None:
        """Copy a file there, and read it back: a virus scanner may take it away."""
        self._way.put(source, target, timeout)
        want, have = _digest(source), self.digest(target, timeout)
        if want != have:
            raise MachineError(
                f"{self.path}: {target}: has another content than {source.name} a moment after it was written"
            )

    def digest(self, path: PurePath, timeout: float = 600.0) -> str:
        """The sha256 of a file there, which is copied here for that. Raises MachineError."""
        copy = self._fetched(path, timeout)
        try:
            return _digest(copy)
        finally:
            copy.unlink()

    def write_bytes(self, path: PurePath, data: bytes) -> None:
        """Create or replace a small file there. Raises MachineError."""
        copy = self._scratch_file()
        try:
            copy.write_bytes(data)
            self._way.put(copy, path)
        finally:
            copy.unlink()

    def read_bytes(self, path: PurePath) -> bytes:
        """A small file there. Raises MachineError."""
        copy = self._fetched(path, SMALL_SECONDS)
        try:
            return copy.read_bytes()
        finally:
            copy.unlink()

    def remove(self) -> None:
        """End our programs, remove the directory and the task, and look once more; `left` has what is still there.

        Raises MachineLost.
        """
        if self._home is None:
            return
        directory = self.directory
        deadline = time.monotonic() + ENDING_SECONDS
        while True:
            self._end_programs()
            self.carry(f'rmdir /s /q "{directory}"')
            if "directory" not in (still := self._still_there()) or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if "directory" not in still:  # otherwise the task still has something to do
            self._run_plainly(task.deletion(self.name))
            still = self._still_there()
        if still:
            when = f"a scheduled task removes it within {task.DEADLINE_HOURS} hours"
            rest = {"directory": str(directory), "task": f"task {self.name}"}
            self.left.append(f"{', '.join(rest[one] for one in still)}; {when}")
        self._home = None

    def close(self) -> None:
        try:
            self.remove()
        except MachineError as problem:
            self.left.append(f"{self._home}\\{self.name}, which a scheduled task removes: {problem}")
        finally:
            self._way.hang_up()

    def start(self, *argv: str) -> Process:
        self._refuse(f"{argv[0]} cannot be started in the background")

    def undo_later(self, *argv: str, lasting: bool = False) -> Undoing:
        self._refuse(f"{argv[0]} cannot be registered")

    def remove_later(self, path: PurePosixPath) -> Undoing:
        self._refuse(f"{path} cannot be registered")

    def reach(self, port: int) -> tuple[str, ...]:
        self._refuse("guests in it cannot be reached")

    def _refuse(self, what: str) -> NoReturn:
        raise MachineError(f"{self.path}: is Windows, which has no guard: {what}")

    def _end_programs(self) -> None:
        for program in self._programs:
            self._run_plainly(task.ending(program))

    def _run_plainly(self, argv: Sequence[str]) -> None:
        self.carry(quoted(argv))

    def _still_there(self) -> tuple[str, ...]:
        said = self.carry(task.leftovers(self.name, self.directory)).stdout.split()
        return tuple(word for word in ("directory", "task") if word in said)

    def _scratch_file(self) -> Path:
        return self._way.scratch / f"windows-{secrets.token_hex(8)}"

    def _fetched(self, path: PurePath, timeout: float) -> Path:
        copy = self._scratch_file()
        self._way.get(path, copy, timeout)
        return copy


class WindowsClone(WindowsMachine):
    """One whose disks are thrown away: nothing is scheduled or removed there, and its programs lie on a disc."""

    def __init__(self, transport: Transport, programs: PureWindowsPath) -> None:
        """`programs`: the directory in which they are"""
        super().__init__(transport)
        self._disc = programs

    @property
    def os(self) -> Windows:
        return Windows(self._disc, "")

    def close(self) -> None:
        self._way.hang_up()

    def _schedule(self) -> None:
        pass


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def connect_guest(
    local: LocalMachine, route: SshRoute, path: str, timeout: float = LOGIN_SECONDS
) -> SshMachine | WindowsMachine:
    """Log in to a VM of the user's, whatever its system is. Raises MachineLost, which says what to type in a Windows
    that refuses the connection.
    """
    ssh = SshMachine(path, local, route.destination, route.options, is_guest=False)
    try:
        ssh.connect(timeout)
        return ssh
    except WindowsThere as there:
        transport = SshTransport(ssh, there.shell)
        transport.ask_code_page()
        return WindowsMachine(transport)
    except MachineLost as problem:
        if "Connection refused" in str(problem):
            raise MachineLost(f"{problem}{NO_SERVER}") from problem
        raise
