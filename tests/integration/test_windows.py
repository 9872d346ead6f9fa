"""Windows as far as it can be had here: Wine's cmd.exe behind a real sshd."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

import pytest

from tests.command import HANGS
from tests.unit.test_windows import PRINTABLE, WORDS
from tests.windows_host import ENCODED, EXIT_CODES, WindowsHost, compile_program, measured, windows_host
from vmtax.machine import MachineError
from vmtax.machine.local import LocalMachine
from vmtax.machine.login_shell import WindowsThere
from vmtax.machine.reader import SshReader
from vmtax.machine.ssh import connect_host
from vmtax.machine.windows.machine import WindowsMachine, connect_guest
from vmtax.meter.windows import QUESTIONS, parse_windows

pytestmark = pytest.mark.machines
HOME = PureWindowsPath("C:\\users\\root")


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsHost]:
    with windows_host(tmp_path_factory.mktemp("windows")) as host:
        compile_program("program.c", host.directory / "program.exe")
        yield host


def logged_in(windows: WindowsHost, local: LocalMachine) -> WindowsMachine:
    machine = connect_guest(local, windows.route, "host/existing")
    assert isinstance(machine, WindowsMachine)
    return machine


@pytest.fixture(scope="module")
def machine(windows: WindowsHost, shared_local: LocalMachine) -> Iterator[WindowsMachine]:
    """With the test's program in its directory; afterwards, nothing may be left."""
    one = logged_in(windows, shared_local)
    one.set_up(HOME, [f"program-{one.token}.exe"])
    one.push(windows.directory / "program.exe", PureWindowsPath(one.os.program("program")))
    yield one
    one.close()
    assert (one.left, windows.ours, windows.tasks) == ([], [], [])


def test_every_argument_arrives(machine: WindowsMachine) -> None:
    words = [word for word in (*WORDS, "".join(PRINTABLE), *PRINTABLE) if word not in ("exit", "wait")]
    said = machine.run(machine.os.program("program"), *words)
    assert said.splitlines() == [f"[{word}]" for word in words]


@pytest.mark.parametrize("code", EXIT_CODES)
def test_exit_codes_have_all_their_bits(machine: WindowsMachine, code: int) -> None:
    """ssh would carry the last byte: 256 would be a success."""
    assert machine.try_run(machine.os.program("program"), "exit", str(code)).code == code


@pytest.mark.parametrize(("data", "text"), [*ENCODED, (b"\xe4", "ä")])
def test_encodings(machine: WindowsMachine, data: bytes, text: str) -> None:
    assert machine.run(machine.os.program("program"), "bytes", data.hex()) == text


def test_files_there_and_back(machine: WindowsMachine, tmp_path: Path) -> None:
    data = os.urandom(3 * 2**20) + b"\r\n\x1a\0\n"
    file = tmp_path / "a file.bin"
    file.write_bytes(data)
    there = machine.directory / "a (b) c.bin"
    machine.push(file, there)
    assert machine.read_bytes(there) == data
    machine.write_bytes(there, b"\r\n")
    assert machine.read_bytes(there) == b"\r\n"
    with pytest.raises(MachineError, match=r"nothing\.bin cannot be read"):
        machine.read_bytes(machine.directory / "nothing.bin")


def test_standard_input_arrives_as_it_is(machine: WindowsMachine) -> None:
    assert machine.try_run(machine.os.program("program"), "input", input="a\r\n\x1a\0").stdout.endswith("\n5\n")


def test_what_does_not_end_is_ended(machine: WindowsMachine) -> None:
    late = machine.try_run(machine.os.program("program"), "wait", timeout=-15.0)
    assert late.timed_out
    assert machine.succeeds(machine.os.program("program"), "exit", "0")


def test_what_runs_when_it_is_closed_is_ended_and_nothing_stays(windows: WindowsHost, local: LocalMachine) -> None:
    before, tasks = windows.ours, windows.tasks
    one = logged_in(windows, local)
    one.set_up(HOME, [f"program-{one.token}.exe"])
    folder = windows.drive / "users/root" / one.name
    assert [path.name for path in folder.iterdir()] == ["task.xml"]
    assert one.name in windows.tasks, "the task is there before anything else"
    program = one.os.program("program")
    one.push(windows.directory / "program.exe", PureWindowsPath(program))
    ended: list[bool] = []

    def work() -> None:
        try:
            ended.append(one.try_run(program, "wait", timeout=60).seconds < 60)
        except MachineError:
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    limit = time.monotonic() + HANGS
    while not (folder / "waits").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    one.close()
    thread.join()
    assert ended == [True], "before its minute was over"
    assert (one.left, windows.ours, windows.tasks) == ([], before, tasks)


def for_cmd(line: str) -> str:
    """With a caret before what a cmd.exe would take for itself, outside of quotation marks, which it hands on."""
    parts = line.split('"')
    parts[::2] = [re.sub("([&>])", r"^\1", part) for part in parts[::2]]
    return '"'.join(parts)


def test_the_task_of_an_interrupted_run_removes_everything(windows: WindowsHost, local: LocalMachine) -> None:
    """Wine runs no task by itself, so what the task would execute is executed here. A second visit finds it before."""
    before, tasks = windows.ours, windows.tasks
    (windows.drive / "users/root/a & b (c)").mkdir()
    one, next_visit = logged_in(windows, local), logged_in(windows, local)
    one.set_up(PureWindowsPath("C:\\users\\root\\a & b (c)"), [f"program-{one.token}.exe"])
    program = one.os.program("program")
    one.push(windows.directory / "program.exe", PureWindowsPath(program))
    thread = threading.Thread(target=lambda: one.try_run(program, "wait", timeout=60))
    thread.start()
    folder = windows.drive / "users/root/a & b (c)" / one.name
    limit = time.monotonic() + HANGS
    while not (folder / "waits").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert one.name in parse_windows({"tasks": next_visit.carry(QUESTIONS["tasks"])}).tasks
    for action in ElementTree.parse(folder / "task.xml").iter():
        if action.tag.endswith("Exec"):
            next_visit.carry(f"{action[0].text} {for_cmd(str(action[1].text))}")
    thread.join()
    assert not folder.exists()
    assert (windows.ours, windows.tasks) == (before, tasks)
    one.close()
    next_visit.close()
    assert one.left == []


def test_free_room_of_a_drive(machine: WindowsMachine, windows: WindowsHost) -> None:
    there = os.statvfs(windows.drive)
    assert machine.free_bytes(HOME) == pytest.approx(there.f_bavail * there.f_frsize, rel=0.05)
    assert machine.free_bytes(PureWindowsPath("C:\\nowhere")) is None


def test_a_program_that_a_virus_scanner_took_away(windows: WindowsHost, local: LocalMachine) -> None:
    one = logged_in(windows, local)
    one.set_up(HOME, [f"program-{one.token}.exe"])
    failed = one.try_run(one.os.program("program"))
    one.close()
    assert not failed.ok
    assert "an antivirus program may have removed it" in failed.stderr
    assert one.left == []


def test_a_directory_that_cannot_be_made(windows: WindowsHost, local: LocalMachine) -> None:
    one = logged_in(windows, local)
    with pytest.raises(MachineError, match=r"no directory can be made in C:\\nowhere"):
        one.set_up(PureWindowsPath("C:\\nowhere"))
    one.close()
    assert one.left == []


def test_it_is_no_host(windows: WindowsHost, local: LocalMachine) -> None:
    with pytest.raises(WindowsThere, match=r"is Windows, whose shell is cmd\.exe: .*--guest"):
        connect_host(local, windows.route)
    reader = SshReader(windows.route)
    try:
        with pytest.raises(WindowsThere, match=r"is Windows, whose shell is cmd\.exe: .*--guest"):
            reader.log_in()
    finally:
        reader.close()


def test_the_self_test_records_everything_and_leaves_nothing(windows: WindowsHost, tmp_path: Path) -> None:
    before, tasks = windows.ours, windows.tasks
    done = windows.vmtax("doctor", "ssh://win", "--try", "--yes", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "vmtax-windows.json").read_text())
    assert {check["name"]: check["status"] for check in record["checks"]} == dict.fromkeys(
        ("characters", "exit codes", "directory and task", "files", "ending", "removal"), "ok"
    )
    assert len(record["lines"]) > 15
    assert "root" not in json.dumps(record).lower().replace("systemroot", "")
    assert "never run on Windows" in " ".join(done.stdout.split())
    assert (windows.ours, windows.tasks) == (before, tasks)


def test_no_guest_of_ours_is_started_on_it(windows: WindowsHost, tmp_path: Path) -> None:
    done = windows.vmtax("run", "quick", "--yes", "--host", "ssh://win", directory=tmp_path)
    assert done.returncode == 2
    assert "is Windows, where vmtax starts no VM, nested VM: name a VM of it with --guest ssh://" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_as_a_host_of_hyper_v_it_is_looked_at(windows: WindowsHost, tmp_path: Path) -> None:
    """Wine has no PowerShell, and no VMs."""
    done = windows.vmtax("doctor", "--host", "ssh://win", directory=tmp_path)
    said = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (1, "")
    assert "Hyper-V does not say which VMs it has" in said and "a login's shell is cmd.exe" in said
    assert "never run on Windows" in said


PLAN = """\
name: windows
layers: [host, existing]
rounds: {min: 1, max: 1}
workloads:
  - chess: {depth: 8}
  - memory
  - transfer: {seconds: 1}
  - disk: {size: 64MiB, seconds: 1, patterns: [randread-4k-qd1, randwrite-4k-qd32, randwrite-4k-fsync]}
"""


def test_a_plan_becomes_a_report(windows: WindowsHost, tmp_path: Path) -> None:
    """The other programs and the same work: one thread of stockfish searches as many positions, or it is refused."""
    before, tasks = windows.ours, windows.tasks
    (tmp_path / "plan.yaml").write_text(PLAN)
    options = ("--guest", "ssh://win", "--yes", "--json", "-o", "report.html", "--wait")
    done = windows.vmtax("run", "plan.yaml", *options, directory=tmp_path)
    measured(done, "chess", "disk", "transfer")
    assert "left out, because ssh://win has no programs for it: memory" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "a existing VM" not in page
    assert "Windows build against Linux build: disk and network compare; CPU does not." in page
    assert "never run on Windows" in page
    assert (windows.ours, windows.tasks) == (before, tasks)


def test_a_host_with_windows_and_its_vm_become_a_report(windows: WindowsHost, tmp_path: Path) -> None:
    """Both are this Windows. It runs the same builds twice, so that the CPU compares, too."""
    before, tasks = windows.ours, windows.tasks
    (tmp_path / "plan.yaml").write_text(PLAN)
    options = ("--host", "ssh://win", "--guest", "ssh://win", "--yes", "--json", "-o", "report.html", "--wait")
    done = windows.vmtax("run", "plan.yaml", *options, directory=tmp_path)
    run = measured(done, "chess", "disk", "transfer")
    assert "chess.nodes_per_second" in {each["metric"] for each in run["comparisons"]}
    assert "left out, because Windows has no programs for it: memory" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "The far end of `transfer` is the machine that ran vmtax" in page.replace("<code>", "`").replace(
        "</code>", "`"
    )
    assert "The same Windows builds on the host and in the VM." in page and "never run on Windows" in page
    assert (windows.ours, windows.tasks) == (before, tasks)
