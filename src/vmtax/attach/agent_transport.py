"""The guest agent of a Windows as the way of commands and files to it, one request at a time, each awaited.

A line for cmd.exe is its standard input: what stands on a command line, the agent quotes anew, by rules that are not
those of cmd.exe. What a program prints goes to a file of ours and is read in pieces, because a few MB in one answer
break the agent for everybody. Tried with a real agent on Linux whose programs Wine runs; never run on Windows itself.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePath, PureWindowsPath
from typing import Literal, TypeVar

from typing_extensions import TypedDict

from vmtax.attach.agent import FROZEN, AgentRefused, AgentSilent, Started, asked
from vmtax.attach.pluggable import Agent
from vmtax.core.machines import MachineError, MachineLost
from vmtax.machine.answer import base64_of
from vmtax.machine.local import BytesOutcome
from vmtax.machine.login_shell import LoginShell
from vmtax.machine.pipes import MOST_BYTES
from vmtax.machine.windows.command import WindowsCommand, WindowsOutcome
from vmtax.machine.windows.command_line import BadCommandLine, quoted, shortened
from vmtax.machine.windows.text import code_page_of, decoded
from vmtax.machine.windows.transport import LATE_SECONDS, SMALL_SECONDS, outcome_of, too_much

SHELL = ("cmd.exe", "/d", "/q")  # reads lines; without what a user has it begin with, and without echo
MOST_CHARACTERS = 8190  # of a line that it reads
PIECE = 90 * 2**10  # bytes of a file in one request: a word of virsh's command line has at most 128 KiB
READ = 512 * 2**10  # bytes of a file in one answer; libvirt takes 4 MiB with what base64 adds
FIRST_PAUSE, PAUSE_GROWS, LONGEST_PAUSE = 0.1, 1.5, 5.0  # between questions whether a program has ended: each costs
ENDING_SECONDS = 30.0  # for taskkill
NEEDED = (
    *("guest-exec", "guest-exec-status", "guest-file-open", "guest-file-close", "guest-file-read", "guest-file-write"),
    *("guest-file-seek", "guest-get-time", "guest-get-osinfo"),
)
LOG_IN = "log in to the VM: --guest ssh://Administrator@ADDRESS"
FORBIDDEN = (
    "its guest agent may not do what takes a Windows ({}): allow that in the command line of its service, which `sc.exe"
    f" qc qemu-ga` shows there (--block-rpcs, --allow-rpcs), and restart it; or {LOG_IN}"
)
T = TypeVar("T")


class _Known(TypedDict):
    name: str
    enabled: bool


# What answers have, each some of it.
_Answer = TypedDict(
    "_Answer",
    {
        "supported_commands": list[_Known],
        "id": str,
        "exited": bool,
        "out-data": str,
        "err-data": str,
        "out-truncated": bool,
        "err-truncated": bool,
        "count": int,
        "position": int,
        "eof": bool,
        "buf-b64": str,
    },
    total=False,
)


class AgentTransport:
    """A Windows without a login. Nothing is asked of its agent before the first command, or `look`."""

    def __init__(self, agent: Agent, path: str, scratch: Path) -> None:
        """`scratch`: here, for copies of files"""
        self.path, self.scratch = path, scratch
        self.shell: LoginShell = "cmd.exe"
        self.code_page: int | None = None
        self._agent = agent
        self._asking = threading.Lock()
        self._runs = itertools.count(1)

    def look(self) -> None:
        """Raises MachineError unless that is a 64-bit agent of a Windows, and may do what takes it."""
        frozen = ""
        with contextlib.suppress(MachineError):  # one that knows no such command is not frozen
            frozen = self._ask("guest-fsfreeze-status", {}, str)
        if frozen == "frozen":  # which disables its commands for a time
            raise MachineError(f"{self._agent.name}: {FROZEN}")
        known = self._ask("guest-info", {}, _Answer).get("supported_commands", [])
        enabled = {each["name"] for each in known if each["enabled"]}
        if lacking := [name for name in NEEDED if name not in enabled]:
            raise MachineError(f"{self._agent.name}: {FORBIDDEN.format(', '.join(lacking))}")
        system = self._ask("guest-get-osinfo", {}, _Answer).get("id", "")
        if system != "mswindows":
            raise MachineError(f"{self._agent.name}: is defined as a Windows, and its agent says {shortened(system)}")
        chcp = WindowsCommand("chcp", self.shell, keeps_page=True)
        self.code_page = code_page_of(self._ended(chcp, SMALL_SECONDS).stdout)
        if (kind := self.carry("echo %PROCESSOR_ARCHITECTURE%", SMALL_SECONDS).stdout.strip()) != "AMD64":
            raise MachineError(
                f"{self._agent.name}: its guest agent is a program for {shortened(kind)}, which sees other files than"
                f" ours, for AMD64: install the 64-bit one (qemu-ga-x86_64.msi); or {LOG_IN}"
            )

    def carry(self, line: str, timeout: float) -> WindowsOutcome:
        return self._ended(WindowsCommand(line, self.shell), timeout)

    def run(
        self, argv: Sequence[str], directory: PureWindowsPath | None, given: bytes, timeout: float
    ) -> WindowsOutcome:
        if given:
            raise BadCommandLine(f"{shortened(argv[0])}: its standard input is where the guest agent puts the command")
        if directory is None:
            return self.carry(quoted(argv), timeout)
        number = next(self._runs)
        out, err = (directory / f"{stream}-{number}.txt" for stream in ("stdout", "stderr"))
        line = f'{quoted(argv)} >"{out}" 2>"{err}"'
        ended = self._ended(WindowsCommand(line, self.shell, directory), timeout)
        if ended.code is None:
            return ended
        printed, complained = (b"".join(self._pieces(file, MOST_BYTES)) for file in (out, err))
        return WindowsOutcome(decoded(printed, self.code_page), decoded(complained, self.code_page), ended.code)

    def make_directory(self, path: PurePath) -> None:
        """Alone: cmd.exe would make those above it, too, which nobody would remove."""
        above = str(path.parent).rstrip("\\")  # of a drive, it has one
        line = f'(if exist "{above}\\" mkdir "{path}")& (if exist "{path}\\" echo made)'
        made = self.carry(line, SMALL_SECONDS)
        if made.stdout.strip() != "made":
            words = " ".join(made.stderr.split()) or "it is not there"
            raise MachineError(f"{self.path}: no directory can be made in {path.parent}: {words}")

    def put(self, source: Path, target: PurePath, timeout: float = SMALL_SECONDS) -> None:
        """Each piece is awaited, however long all of them take."""
        with source.open("rb") as stream, self._opened(target, "wb", f"{target} cannot be written") as handle:
            while piece := stream.read(PIECE):
                data = {"handle": handle, "buf-b64": base64.b64encode(piece).decode()}
                written = self._ask("guest-file-write", data, _Answer).get("count")
                if written != len(piece):
                    raise MachineError(f"{self.path}: {target}: {written} of {len(piece)} bytes were written")

    def get(self, path: PurePath, target: Path, timeout: float = SMALL_SECONDS) -> None:
        """Each piece is awaited, however long all of them take."""
        with target.open("wb") as stream:
            for piece in self._pieces(path):
                stream.write(piece)

    def size(self, path: PurePath) -> int:
        with self._opened(path, "rb", f"{path} cannot be read") as handle:
            end = {"handle": handle, "offset": 0, "whence": "end"}
            position = self._ask("guest-file-seek", end, _Answer).get("position")
        if position is None:
            raise MachineError(f"{self.path}: its guest agent does not say how long {path} is")
        return position

    def clock(self, file: PurePath) -> datetime:
        now = self._ask("guest-get-time", {}, int)
        if not 0 <= now < 2**63:
            raise MachineError(f"{self.path}: its guest agent says that the time is {now} ns since 1970")
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now // 1000)

    def hang_up(self) -> None:
        """No connection is kept."""

    def _ended(self, command: WindowsCommand, timeout: float) -> WindowsOutcome:
        """How a command ended, whose output is in the agent's answer."""
        if not command.line.isascii():
            raise BadCommandLine(f"{shortened(command.line)}: the guest agent is given lines of ASCII only")
        if len(command.line) > MOST_CHARACTERS:
            raise BadCommandLine(
                f"{shortened(command.line)}: has {len(command.line)} characters, cmd.exe takes {MOST_CHARACTERS}"
            )
        pid = self._started(SHELL, f"{command.line}\r\n".encode())
        status = self._status(pid, timeout + LATE_SECONDS)
        if status is None:
            self._status(self._started(("taskkill.exe", "/f", "/t", "/pid", str(pid))), ENDING_SECONDS)
            raise TimeoutError
        if status.get("out-truncated") or status.get("err-truncated"):
            raise too_much(self.path)
        out = base64_of(self, "guest-exec-status", status.get("out-data", ""))
        err = base64_of(self, "guest-exec-status", status.get("err-data", ""))
        return outcome_of(command, BytesOutcome(0, out, err), self.path, self.code_page)

    def _started(self, argv: Sequence[str], given: bytes = b"") -> int:
        """The process id there of a program that prints little."""
        wanted: dict[str, object] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        if given:
            wanted["input-data"] = base64.b64encode(given).decode()
        return self._ask("guest-exec", wanted, Started).pid

    def _status(self, pid: int, timeout: float) -> _Answer | None:
        """How a program ended; None if it has not by then. Raises MachineLost."""
        deadline, pause = time.monotonic() + timeout, FIRST_PAUSE
        while True:
            try:
                status = self._says("guest-exec-status", {"pid": pid}, _Answer)
                if status.get("exited"):
                    return status
            except AgentSilent:
                pass  # a guest that works hard may be late, and this can be asked again
            except AgentRefused as refused:
                raise MachineLost(f"{refused}: was it restarted, which ends what it started?") from refused
            if time.monotonic() > deadline:
                return None
            time.sleep(pause)
            pause = min(pause * PAUSE_GROWS, LONGEST_PAUSE)

    def _pieces(self, path: PurePath, most: int | None = None) -> Iterator[bytes]:
        """What a file there has. Raises MachineError, also if that is more than `most` bytes."""
        with self._opened(path, "rb", f"{path} cannot be read") as handle:
            length = 0
            while True:
                read = self._ask("guest-file-read", {"handle": handle, "count": READ}, _Answer)
                piece = base64_of(self, "guest-file-read", read.get("buf-b64", ""))
                length += len(piece)
                if most is not None and length > most:
                    raise too_much(self.path)
                yield piece
                if read.get("eof") or not piece:
                    return

    @contextlib.contextmanager
    def _opened(self, path: PurePath, mode: Literal["rb", "wb"], otherwise: str) -> Iterator[int]:
        """Raises MachineError that begins with `otherwise`, if it cannot be opened."""
        try:
            handle = self._says("guest-file-open", {"path": str(path), "mode": mode}, int)
        except AgentRefused as refused:
            raise MachineError(f"{self.path}: {otherwise}: {refused}") from refused
        try:
            yield handle
        except BaseException:
            with contextlib.suppress(MachineError):
                self._ask("guest-file-close", {"handle": handle}, _Answer)
            raise
        self._ask("guest-file-close", {"handle": handle}, _Answer)

    def _ask(self, command: str, arguments: Mapping[str, object], kind: type[T]) -> T:
        """Raises MachineError, and MachineLost if it does not answer."""
        try:
            return self._says(command, arguments, kind)
        except AgentSilent as silent:
            raise MachineLost(str(silent)) from silent
        except AgentRefused as refused:
            raise MachineError(str(refused)) from refused

    def _says(self, command: str, arguments: Mapping[str, object], kind: type[T]) -> T:
        """Raises AgentRefused."""
        with self._asking:
            return asked(self._agent, command, arguments, kind)
