"""The self-test of `vmtax doctor ssh://… --try` on a Windows: all that a run would do there, but measuring. Every line
and its raw outcome is recorded for a file that the user can send, without the names in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import PureWindowsPath

from vmtax import __version__
from vmtax.core.checks import Check, Diagnosis
from vmtax.core.machines import MachineError
from vmtax.core.records import Json
from vmtax.doctor.windows import diagnose_windows, open_windows
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows import room
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.hyper_v import HOST_QUESTIONS, names_in
from vmtax.meter.windows import read_windows

EVERY_BYTE = bytes(range(256)) * 16
EXIT_CODES = (0, 7, 255, 256, -1)
CHARACTERS = "a^&b ^| c^^ (d) ^<e^> !f!"  # as quoted for cmd.exe
END_AFTER = 1.0  # seconds of a program that goes on for a minute
ANNOUNCED = (
    "a directory of ours, vmtax-…, in the user's profile, with three small files",
    "a scheduled task, vmtax-…, that would remove it if the connection broke",
    "a copy of Windows' own ping.exe in it, started and ended",
)
_SID = re.compile(r"S-1-5-21(?:-\d{1,12}){3,4}")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[0-9A-Fa-f]{2}[-:]){5}[0-9A-Fa-f]{2}\b")
_NOBODY = ("127.0.0.1", "0.0.0.0")


@dataclass(frozen=True, slots=True)
class RecordedLine:
    """A line that cmd.exe executed there, and what came back."""

    line: str
    code: int | None
    stdout: str
    stderr: str


@dataclass(slots=True)
class Recording:
    """A `LineReader` that keeps what passes through it."""

    machine: WindowsMachine
    lines: list[RecordedLine] = field(default_factory=list)

    def carry(self, line: str) -> WindowsOutcome:
        done = self.machine.carry(line)
        self.lines.append(RecordedLine(line, done.code, done.stdout, done.stderr))
        return done


def redacted(text: str, names: Sequence[str]) -> str:
    """Without these names, whatever their case, and without addresses and identities of a domain."""
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "NAME", text, flags=re.IGNORECASE)
    text = _SID.sub("S-1-5-21-0-0-0-0", text)
    return _ADDRESS.sub(lambda match: match[0] if match[0] in _NOBODY else "ADDRESS", text)


def try_windows(name: str, emit: Callable[[str], None]) -> tuple[Diagnosis, Json]:
    """Make what ANNOUNCED says, use it and remove it; the diagnosis, and the record for a file. Raises MachineError."""
    local = LocalMachine("local")
    try:
        machine = open_windows(local, name)
        recording = Recording(machine)
        checks: list[Check] = []
        try:
            asked = machine.carry("echo %COMPUTERNAME%& echo %USERNAME%& echo %USERDOMAIN%& echo %USERPROFILE%")
            names = asked.stdout.splitlines()
            emit("reading what it says about itself")
            facts, now = read_windows(recording), datetime.now(UTC)
            asked_as_host = {name: recording.carry(line) for name, line in HOST_QUESTIONS.items()}
            theirs = names_in({name: said.stdout for name, said in asked_as_host.items()})
            emit("making a directory, a task and files")
            checks += _tries(recording, PureWindowsPath(names[-1] if names else "C:\\"))
        finally:
            machine.close()
        checks.append(_check("removal", not machine.left, "nothing is left", "; ".join(machine.left)))
        diagnosis = diagnose_windows(name, machine.shell, facts, now, tuple(checks))
        user, _, host = name.removeprefix("ssh://").rpartition("@")
        hidden = [*names[:-1], *theirs, *re.split(r"[\\@]", user), host.partition(":")[0]]
        record: Json = {
            "schema": "vmtax-windows/1",
            "vmtax": __version__,
            "shell": machine.shell,
            "code_page": machine.code_page,
            "lines": [{key: _hide(value, hidden) for key, value in asdict(one).items()} for one in recording.lines],
            "checks": [{key: _hide(value, hidden) for key, value in asdict(one).items()} for one in checks],
        }
        return diagnosis, record
    finally:
        local.close()


def _hide(value: object, names: Sequence[str]) -> object:
    return redacted(value, names) if isinstance(value, str) else value


def _tries(on: Recording, home: PureWindowsPath) -> Iterator[Check]:
    machine = on.machine
    for line in (
        "ver",
        "chcp",
        "echo %PROCESSOR_ARCHITECTURE% %NUMBER_OF_PROCESSORS%",
        "where powershell",
        room.listing(home),
    ):
        on.carry(line)
    said = on.carry(f"echo {CHARACTERS}").stdout.strip()
    wanted = re.sub(r"\^(.)", r"\1", CHARACTERS)
    yield _check("characters", said == wanted, "cmd.exe passes them as they are", f"{wanted} became {said}")
    codes = [on.carry(f"cmd /c exit {code}").code for code in EXIT_CODES]
    yield _check("exit codes", codes == [*EXIT_CODES], "they come back whole", f"{EXIT_CODES} became {codes}")
    program = f"ping-{machine.token}.exe"
    try:
        machine.set_up(home, [program])
    except MachineError as problem:
        yield Check("tried", "directory and task", "failed", str(problem))
        return
    yield Check("tried", "directory and task", "ok", "made")
    on.carry(f"schtasks /query /tn {machine.name} /xml")
    yield from _files(on)
    on.carry(f'copy "%SystemRoot%\\System32\\ping.exe" "{machine.directory}\\{program}"')
    ended = machine.try_run(str(machine.directory / program), "-n", "60", "127.0.0.1", timeout=END_AFTER)
    on.lines.append(RecordedLine("ping for a minute", ended.code, ended.stdout, ended.stderr))
    yield _check("ending", ended.timed_out, "a program of ours was ended by its name", f"exit code {ended.code}")


def _files(on: Recording) -> Iterator[Check]:
    file = on.machine.directory / "every byte.bin"
    try:
        on.machine.write_bytes(file, EVERY_BYTE)
        same = on.machine.read_bytes(file) == EVERY_BYTE
    except MachineError as problem:
        yield Check("tried", "files", "failed", str(problem))
        return
    on.carry(f'certutil -hashfile "{file}" SHA256')
    yield _check("files", same, "written and read back as they are", "another content was read back")


def _check(name: str, is_ok: bool, text: str, otherwise: str) -> Check:
    return Check("tried", name, "ok" if is_ok else "failed", text if is_ok else otherwise)
