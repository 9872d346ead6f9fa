"""What a Windows machine does when something is wrong there: each is one line. The other side is scripted."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from typing import cast

import pytest

from vmtax.machine import MachineError, MachineLost
from vmtax.machine.local import BytesOutcome
from vmtax.machine.ssh import SshMachine, ssh_route
from vmtax.machine.windows import machine as windows
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.machine.windows.transport import SshTransport
from vmtax.plan import rules

HOME = PureWindowsPath("C:\\Users\\me")
Answer = tuple[bytes, bytes, int | None]  # stdout, stderr, exit code; None: it does not come to an end


@dataclass
class FarWindows:
    """An `SshMachine` behind which a Windows answers by these rules; whatever they do not know succeeds silently."""

    scratch: Path
    rules: dict[str, Answer | Exception] = field(default_factory=dict)  # a part of a line -> what comes back
    batches: dict[str, BytesOutcome] = field(default_factory=dict)  # a part of a batch for sftp -> what comes back
    lines: list[str] = field(default_factory=list)
    path: str = "host/existing"
    clock: datetime = datetime(2031, 2, 28, 23, 0, tzinfo=UTC)  # when its files are written

    @property
    def local(self) -> object:
        return SimpleNamespace(scratch=self.scratch)

    sent: list[bytes] = field(default_factory=list)  # files that were put there

    def bytes_of(self, line: str, given: bytes, timeout: float) -> BytesOutcome:
        self.lines.append(line)
        answer = next((found for part, found in self.rules.items() if part in line), (b"", b"", 0))
        if isinstance(answer, Exception):
            raise answer
        stdout, stderr, code = answer
        word = re.findall(r"vmtax-[0-9a-f]{24}-w", line)[0].encode()
        end = b"" if code is None else b"%b %d\r\n" % (word, code)
        return BytesOutcome(0, word + b"\r\n" + stdout + end, word + b"\r\n" + stderr)

    def transfer(self, batch: str, timeout: float) -> BytesOutcome:
        self.lines.append(batch)
        if put := re.search(r'put "([^"]*)"', batch):
            self.sent.append(Path(put[1]).read_bytes())
        if got := re.search(r'get (-p )?"[^"]*" "([^"]*)"', batch):
            Path(got[2]).touch()
            if got[1]:
                os.utime(got[2], (0, self.clock.timestamp()))
        return next((found for part, found in self.batches.items() if part in batch), BytesOutcome(0, b"", b""))

    def hang_up(self) -> None:
        self.lines.append("hung up")


@pytest.fixture
def far(tmp_path: Path) -> FarWindows:
    return FarWindows(tmp_path)


def machine(far: FarWindows, programs: tuple[str, ...] = ()) -> WindowsMachine:
    one = WindowsMachine(SshTransport(cast("SshMachine", far), "cmd.exe"))
    one.set_up(HOME, [one.file(name) for name in programs])
    far.lines.clear()
    return one


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((b"half", b"", None), "fio.exe did not end in order: does the machine sleep, or restart?"),
        (MachineLost("host/existing: the connection is gone: no answer"), "the connection is gone"),
    ],
)
def test_a_machine_that_goes_away_is_lost(far: FarWindows, answer: Answer | Exception, words: str) -> None:
    one = machine(far)
    far.rules["fio.exe"] = answer
    with pytest.raises(MachineLost) as lost:
        one.try_run("fio.exe")
    assert words in str(lost.value)
    assert len(str(lost.value).splitlines()) == 1


def test_a_program_that_is_gone_was_perhaps_taken_away(far: FarWindows) -> None:
    one = machine(far, ("fio",))
    far.rules["fio-"] = (b"", b"'fio' is not recognized as an internal or external command\r\n", 9009)
    assert "an antivirus program may have removed it: exclude its folder" in one.try_run(one.os.program("fio")).stderr
    far.rules["nothing"] = (b"", b"", 9009)
    assert "antivirus" not in one.try_run("nothing.exe").stderr, "that was not ours"


def test_a_program_that_is_taken_away_while_it_is_copied(far: FarWindows, tmp_path: Path) -> None:
    """A virus scanner may empty a file, or put another in its place."""
    one, file = machine(far, ("fio",)), tmp_path / "fio.exe"
    file.write_bytes(b"MZ")
    with pytest.raises(MachineError, match=r"has another content than fio\.exe a moment after it was written"):
        one.push(file, PureWindowsPath(one.os.program("fio")))
    far.batches["get"] = BytesOutcome(1, b"", b'remote open "/C:/x": No such file or directory\n')
    with pytest.raises(MachineError, match=r"fio-\w+\.exe cannot be read: remote open"):
        one.push(file, PureWindowsPath(one.os.program("fio")))


def test_what_no_line_can_say_is_an_outcome(far: FarWindows) -> None:
    """Meters of Linux ask every machine: they get no answer here, and no exception."""
    done = machine(far).try_run("sh", "-c", "printf '%s'")
    assert (done.ok, done.code) == (False, 126)
    assert "percent signs" in done.stderr
    assert far.lines == [], "nothing was executed"


def test_a_filtered_token_is_said(far: FarWindows) -> None:
    far.rules["schtasks /create"] = (b"", b"ERROR: Access is denied.\r\n", 1)
    one = WindowsMachine(SshTransport(cast("SshMachine", far), "cmd.exe"))
    with pytest.raises(MachineError) as refused:
        one.set_up(HOME)
    assert "cannot be scheduled (ERROR: Access is denied.): log in as a member of Administrators" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    one.close()
    assert any("rmdir /s /q" in line for line in far.lines), "the directory was made before that"


def test_a_server_without_sftp_is_said(far: FarWindows) -> None:
    far.batches["mkdir"] = BytesOutcome(255, b"", b"")
    one = WindowsMachine(SshTransport(cast("SshMachine", far), "cmd.exe"))
    with pytest.raises(MachineError, match="the ssh server there must have its sftp subsystem"):
        one.set_up(HOME)


def test_the_task_is_made_before_anything_of_ours_is_copied(far: FarWindows) -> None:
    one = WindowsMachine(SshTransport(cast("SshMachine", far), "cmd.exe"))
    one.set_up(HOME, ["fio-1.exe"])
    order = [re.sub(r".*(mkdir|put|schtasks /create).*", r"\1", line, flags=re.DOTALL) for line in far.lines]
    assert [line for line in order if "get -p" not in line] == ["mkdir", "put", "put", "schtasks /create"]
    assert far.sent[0] == b"", "only when it was written is asked"
    assert b"fio-1.exe".decode().encode("utf-16-le") in far.sent[1]


def test_the_deadline_is_by_the_clock_of_that_windows(far: FarWindows) -> None:
    """Ours may be years off; then the task would come at once, in the middle of the run, or never."""
    machine(far)
    assert "<StartBoundary>2031-03-03T23:00:00Z<".encode("utf-16-le") in far.sent[-1]


def test_a_run_of_days_puts_its_deadline_off(far: FarWindows, monkeypatch: pytest.MonkeyPatch) -> None:
    one, now = machine(far, ("fio",)), time.monotonic()
    for hours, made in ((23.9, 0), (24.1, 1), (47.0, 0), (72.5, 1)):
        monkeypatch.setattr(windows.time, "monotonic", lambda hours=hours: now + 3600 * hours)
        far.lines.clear()
        far.clock = datetime(2031, 3, 1, tzinfo=UTC)
        assert one.answers()
        assert sum("schtasks /create" in line for line in far.lines) == made, hours
    assert "<StartBoundary>2031-03-04T00:00:00Z<".encode("utf-16-le") in far.sent[-1]
    assert "fio-".encode("utf-16-le") in far.sent[-1]


def test_a_command_that_does_not_end_is_ended_by_its_name(far: FarWindows) -> None:
    one = machine(far, ("fio",))
    far.rules[f"{one.os.program('fio')} "] = TimeoutError()
    done = one.try_run(one.os.program("fio"), "--x", timeout=3)
    assert done.timed_out
    assert f"taskkill /f /im {one.file('fio')}&" in far.lines[-1]


def test_what_cannot_be_removed_is_said_and_left_to_the_task(far: FarWindows, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine(far, ("fio",))
    seconds = iter(range(0, 1000, 4))
    monkeypatch.setattr(windows.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(windows.time, "sleep", lambda wait: None)
    far.rules["if exist"] = (b"directory\r\ntask\r\n", b"", 0)
    one.close()
    assert one.left == [
        f"C:\\Users\\me\\{one.name}, task {one.name}; a scheduled task removes it within 72 hours",
    ]
    assert not any("schtasks /delete" in line for line in far.lines), "it still has something to do"
    assert sum("rmdir" in line for line in far.lines) > 1, "a virus scanner may hold a file for a moment"
    assert far.lines[-1] == "hung up"


def test_a_lost_connection_at_the_end_is_no_traceback(far: FarWindows) -> None:
    one = machine(far)
    far.rules["rmdir"] = MachineLost("host/existing: the connection is gone")
    one.close()
    assert one.left == [
        f"C:\\Users\\me\\{one.name}, which a scheduled task removes: host/existing: the connection is gone"
    ]
    assert far.lines[-1] == "hung up"


@pytest.mark.parametrize(
    ("listing", "size"),
    [
        (b"sftp> ls -ln\n-rw-rw-rw-    1 -        -        67108864 Nov 27 14:42 /C:/x/disk.bin\n", 67108864),
        (b"-rw-r--r--    1 0        0               0 Nov 27 2025 disk.bin\n", 0),
    ],
)
def test_the_size_of_a_file_is_its_servers(far: FarWindows, listing: bytes, size: int) -> None:
    far.batches["ls -ln"] = BytesOutcome(0, listing, b"")
    assert machine(far).size(HOME / "disk.bin") == size


@pytest.mark.parametrize("listing", [b"", b"-rw 1 2 3\n", b"-rw 1 2 3 many Nov\n"])
def test_another_listing_is_refused(far: FarWindows, listing: bytes) -> None:
    far.batches["ls -ln"] = BytesOutcome(0, listing, b"")
    with pytest.raises(MachineError, match="sftp server"):
        machine(far).size(HOME / "disk.bin")


def test_a_user_of_a_domain_is_named_with_a_backslash() -> None:
    name = "ssh://CORP\\me@win:2222"
    assert rules.host(name) == name
    assert ssh_route(name).destination == "CORP\\me@win"
    for bad in ("ssh://\\me@win", "ssh://CORP\\-me@win", "ssh://CORP\\@win", "ssh://a\\b\\c@win"):
        with pytest.raises(ValueError, match="must be local"):
            rules.host(bad)
