"""How commands and files get to a Windows: by an OpenSSH server there, or by QEMU's guest agent (`attach/`)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePath, PureWindowsPath
from typing import Protocol

from vmtax.core.machines import MachineError, MachineLost
from vmtax.machine.answer import whole_of, words_of
from vmtax.machine.local import BytesOutcome
from vmtax.machine.login_shell import LoginShell
from vmtax.machine.pipes import MOST_BYTES, TooMuch, excerpt
from vmtax.machine.ssh import SshMachine
from vmtax.machine.windows.command import WindowsCommand, WindowsOutcome
from vmtax.machine.windows.text import code_page_of

LATE_SECONDS = 20.0  # beyond a command's limit, for its line to get there and its output to get here
SMALL_SECONDS = 120.0  # for commands and files that are small


class Transport(Protocol):
    """Carries commands and files. All raise MachineLost if nothing gets there any more."""

    path: str  # of the machine, "host/existing"
    shell: LoginShell  # what takes the commands' lines
    code_page: int | None  # of its console, before UTF-8 is asked for; None: not known

    @property
    def scratch(self) -> Path:
        """A directory here for copies of files."""
        ...

    def carry(self, line: str, timeout: float) -> WindowsOutcome:
        """What cmd.exe makes of a line that prints little. Raises TimeoutError and BadCommandLine."""
        ...

    def run(
        self, argv: Sequence[str], directory: PureWindowsPath | None, given: bytes, timeout: float
    ) -> WindowsOutcome:
        """How a command ends in that directory, which is ours; None: where a login begins. Raises TimeoutError,
        BadCommandLine, and MachineError if it prints too much.
        """
        ...

    def make_directory(self, path: PurePath) -> None:
        """Raises MachineError."""
        ...

    def put(self, source: Path, target: PurePath, timeout: float = SMALL_SECONDS) -> None:
        """Create or replace a file there. Raises MachineError."""
        ...

    def get(self, path: PurePath, target: Path, timeout: float = SMALL_SECONDS) -> None:
        """Copy a file here. Raises MachineError."""
        ...

    def size(self, path: PurePath) -> int:
        """Bytes of a file there. Raises MachineError."""
        ...

    def clock(self, file: PurePath) -> datetime:
        """What its clock says, in UTC; may write that file, which is ours. Raises MachineError."""
        ...

    def hang_up(self) -> None:
        """Carry nothing any more."""
        ...


class SshTransport:
    """By an OpenSSH server with its sftp subsystem."""

    def __init__(self, ssh: SshMachine, shell: LoginShell) -> None:
        self.path = ssh.path
        self.shell: LoginShell = shell
        self.code_page: int | None = None
        self._ssh = ssh

    @property
    def scratch(self) -> Path:
        return Path(self._ssh.local.scratch)

    def ask_code_page(self) -> None:
        """Read which code page the console has; what is not UTF-8 is in that one."""
        chcp = WindowsCommand("chcp", self.shell, keeps_page=True)
        self.code_page = code_page_of(self._ended(chcp, SMALL_SECONDS).stdout)

    def carry(self, line: str, timeout: float) -> WindowsOutcome:
        return self._ended(WindowsCommand(line, self.shell), timeout)

    def run(
        self, argv: Sequence[str], directory: PureWindowsPath | None, given: bytes, timeout: float
    ) -> WindowsOutcome:
        return self._ended(WindowsCommand.of(argv, self.shell, directory), timeout, given)

    def make_directory(self, path: PurePath) -> None:
        self._sftp(f"mkdir {_remote(path)}", f"no directory can be made in {path.parent}")

    def put(self, source: Path, target: PurePath, timeout: float = SMALL_SECONDS) -> None:
        self._sftp(f"put {_local(source)} {_remote(target)}", f"{target} cannot be written", timeout)

    def get(self, path: PurePath, target: Path, timeout: float = SMALL_SECONDS) -> None:
        self._sftp(f"get -p {_remote(path)} {_local(target)}", f"{path} cannot be read", timeout)

    def size(self, path: PurePath) -> int:
        listing = self._sftp(f"ls -ln {_remote(path)}", f"{path} cannot be read")
        words = words_of(self, "the listing of its sftp server", listing)
        return whole_of(self, "the size in the listing of its sftp server", words[4] if len(words) > 4 else "")

    def clock(self, file: PurePath) -> datetime:
        """When the file was written: sftp hands seconds since 1970 over."""
        copy = self.scratch / f"clock-{secrets.token_hex(8)}"
        copy.touch()
        try:
            self.put(copy, file)
            self.get(file, copy)
            return datetime.fromtimestamp(copy.stat().st_mtime, UTC)
        finally:
            copy.unlink()

    def hang_up(self) -> None:
        self._ssh.hang_up()

    def _ended(self, command: WindowsCommand, timeout: float, given: bytes = b"") -> WindowsOutcome:
        try:
            done = self._ssh.bytes_of(command.line, given, timeout + LATE_SECONDS)
        except TooMuch:
            raise too_much(self.path) from None
        return outcome_of(command, done, self.path, self.code_page)

    def _sftp(self, line: str, what: str, timeout: float = SMALL_SECONDS) -> str:
        """What sftp prints. Raises MachineError that begins with `what`."""
        try:
            done = self._ssh.transfer(f"{line}\n", timeout)
        except TimeoutError:
            raise MachineLost(f"{self.path}: {what}: sftp did not end within {timeout:.0f} s") from None
        if done.code:
            said = done.stderr.decode(errors="replace").strip() or "the ssh server there must have its sftp subsystem"
            raise MachineError(f"{self.path}: {what}: {' '.join(said.split())}")
        return "\n".join(line for line in done.stdout.decode(errors="replace").splitlines() if "sftp>" not in line)


def outcome_of(command: WindowsCommand, done: BytesOutcome, path: str, page: int | None) -> WindowsOutcome:
    """How a command ended, from what was printed there. Raises MachineLost if it did not begin."""
    ended = command.ended(done.stdout, done.stderr, page)
    if ended is None:
        raise MachineLost(f"{path}: a command did not begin: instead came {excerpt(done.stdout or done.stderr)}")
    return ended


def too_much(path: str) -> MachineError:
    """A command there printed more than is read."""
    return MachineError(f"{path}: a command printed more than {MOST_BYTES >> 20} MiB")


def _local(path: Path) -> str:
    return _in_batch(str(path))


def _remote(path: PurePath) -> str:
    """A path of Windows for its sftp server: /C:/vmtax/file."""
    return _in_batch(f"/{PureWindowsPath(path).as_posix()}")


def _in_batch(text: str) -> str:
    """A word for sftp's batch mode, which takes a backslash from the next character, and patterns for what they are."""
    return '"' + "".join(f"\\{each}" if each in '"\\*?[' else each for each in text) + '"'
