"""A Windows by its guest agent, as far as it can be had here: a real qemu-ga, whose programs Wine runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

import pytest

from tests.command import HANGS
from tests.unit.test_windows import PRINTABLE, WORDS
from tests.windows_agent import WindowsGuest, windows_guest
from tests.windows_host import ENCODED, EXIT_CODES, compile_program, measured
from vmtax.attach import LibvirtVm
from vmtax.attach.agent import asked
from vmtax.attach.agent_transport import READ, AgentTransport
from vmtax.attach.proxmox.agent import ProxmoxAgent
from vmtax.machine import MachineError, MachineLost
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows.machine import WindowsMachine

pytestmark = pytest.mark.machines
HOME = PureWindowsPath("C:\\users\\root")


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WindowsGuest]:
    with windows_guest(tmp_path_factory.mktemp("windows-agent")) as one:
        compile_program("program.c", one.directory / "program.exe")
        path = os.environ["PATH"]
        os.environ["PATH"] = one.environment["PATH"]  # of its virsh
        try:
            yield one
        finally:
            os.environ["PATH"] = path


def way_to(guest: WindowsGuest, local: LocalMachine) -> AgentTransport:
    return AgentTransport(LibvirtVm.found(local, "win1").agent, "host/existing", Path(local.scratch))


@pytest.fixture(scope="module")
def machine(guest: WindowsGuest, shared_local: LocalMachine) -> Iterator[WindowsMachine]:
    """With the test's program in its directory; afterwards, nothing may be left."""
    transport = way_to(guest, shared_local)
    transport.look()
    one = WindowsMachine(transport)
    one.set_up(HOME, [one.file("program")])
    one.push(guest.directory / "program.exe", PureWindowsPath(one.os.program("program")))
    yield one
    one.close()
    assert (one.left, guest.left) == ([], [])


def test_its_agent_says_that_it_is_windows(guest: WindowsGuest, shared_local: LocalMachine) -> None:
    assert LibvirtVm.found(shared_local, "win1").is_windows


def test_every_argument_arrives(machine: WindowsMachine) -> None:
    words = [word for word in (*WORDS, "".join(PRINTABLE), *PRINTABLE) if word not in ("exit", "wait")]
    words = [word for word in words if word.isascii()]
    said = machine.run(machine.os.program("program"), *words)
    assert said.splitlines() == [f"[{word}]" for word in words]


@pytest.mark.parametrize("code", EXIT_CODES)
def test_exit_codes_have_all_their_bits(machine: WindowsMachine, code: int) -> None:
    assert machine.try_run(machine.os.program("program"), "exit", str(code)).code == code


@pytest.mark.parametrize(("data", "text"), ENCODED)
def test_encodings(machine: WindowsMachine, data: bytes, text: str) -> None:
    assert machine.run(machine.os.program("program"), "bytes", data.hex()) == text


def test_files_there_and_back(machine: WindowsMachine, tmp_path: Path) -> None:
    data = os.urandom(2**20) + b"\r\n\x1a\0\n"
    file = tmp_path / "a file.bin"
    file.write_bytes(data)
    there = machine.directory / "a (b) c.bin"
    machine.push(file, there)
    assert machine.read_bytes(there) == data
    assert machine.size(there) == len(data)
    machine.write_bytes(there, b"")
    assert (machine.read_bytes(there), machine.size(there)) == (b"", 0)
    with pytest.raises(MachineError, match=r"nothing\.bin cannot be read"):
        machine.read_bytes(machine.directory / "nothing.bin")


def test_a_large_output_is_never_in_one_answer(machine: WindowsMachine, guest: WindowsGuest) -> None:
    """An answer of a few MB breaks the agent for its owner's backups."""
    lines = "".join(f"{number:>62}\n" for number in range(50_000))
    machine.write_bytes(machine.directory / "large.txt", lines.replace("\n", "\r\n").encode())
    guest.largest = 0
    assert machine.run("cmd", "/c", "type", str(machine.directory / "large.txt")) == lines
    assert guest.largest < READ * 4 / 3 + 1024


def test_what_does_not_end_is_ended_with_all_that_it_started(machine: WindowsMachine, guest: WindowsGuest) -> None:
    late = machine.try_run("cmd", "/c", machine.os.program("program"), "wait", timeout=-15.0)
    assert late.timed_out
    assert machine.succeeds(machine.os.program("program"), "exit", "0")


def waits(folder: Path) -> None:
    limit = time.monotonic() + HANGS
    while not (folder / "waits").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_an_agent_that_is_restarted_in_mid_command(guest: WindowsGuest, local: LocalMachine) -> None:
    """It does not know then what it started; systemd ends that with it on Linux, Windows does not."""
    one, before = WindowsMachine(way_to(guest, local)), guest.left
    one.set_up(HOME, [one.file("program")])
    program = one.os.program("program")
    one.push(guest.directory / "program.exe", PureWindowsPath(program))
    lost: list[str] = []

    def work() -> None:
        try:
            one.try_run(program, "wait", timeout=60)
        except MachineLost as error:
            lost.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    waits(guest.home / one.name)
    guest.end_agent()
    guest.start_agent()
    thread.join(HANGS)
    assert len(lost) == 1 and "was it restarted" in lost[0]
    one.close()
    assert (one.left, guest.left) == ([], before)


def test_a_directory_that_cannot_be_made_makes_none_above_it(guest: WindowsGuest, local: LocalMachine) -> None:
    one = WindowsMachine(way_to(guest, local))
    with pytest.raises(MachineError, match=r"no directory can be made in C:\\nowhere"):
        one.set_up(PureWindowsPath("C:\\nowhere"))
    assert not (guest.drive / "nowhere").exists()
    one.close()
    assert one.left == []


@pytest.mark.parametrize("forbidden", ["guest-exec", "guest-file-open,guest-file-read"])
def test_commands_that_the_agent_may_not_do(guest: WindowsGuest, local: LocalMachine, forbidden: str) -> None:
    guest.end_agent()
    guest.start_agent("-b", forbidden)
    try:
        with pytest.raises(MachineError) as refused:
            way_to(guest, local).look()
    finally:
        guest.end_agent()
        guest.start_agent()
    assert f"may not do what takes a Windows ({forbidden.replace(',', ', ')}): allow that" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_its_agent_at_the_socket_of_proxmox(guest: WindowsGuest, local: LocalMachine) -> None:
    """Only the command line of a QEMU is a stand-in's."""
    words = ["sleep", "600", "-chardev", f"socket,path={guest.socket},server=on,wait=off,id=qga0"]
    with subprocess.Popen(["/bin/sh", "-c", "read -r line; exit", "sh", *words], stdin=subprocess.PIPE) as qemu:
        agent = ProxmoxAgent(local, "proxmox:101", qemu.pid)
        transport = AgentTransport(agent, "host/existing", Path(local.scratch))
        transport.look()
        assert transport.carry("echo %OS%", 60).stdout.strip() == "Windows_NT"
        with pytest.raises(MachineError, match=r"cannot be read: proxmox:101: .*nothing"):
            transport.size(HOME / "nothing")
        assert asked(agent, "guest-get-time", {}, int) > 0
        qemu.communicate(b"\n")


PLAN = """\
name: windows
layers: [host, existing]
rounds: {min: 1, max: 1}
workloads:
  - chess: {depth: 8}
  - transfer: {seconds: 1}
  - disk: {size: 64MiB, seconds: 1, patterns: [randread-4k-qd1, randwrite-4k-qd32]}
"""


def vmtax(guest: WindowsGuest, directory: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vmtax", *argv]
    return subprocess.run(
        command, cwd=directory, env=guest.environment, capture_output=True, text=True, timeout=3 * HANGS
    )


def test_nothing_is_asked_of_its_agent_before_the_user_was(guest: WindowsGuest, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    guest.asked.clear()
    done = vmtax(guest, tmp_path, "plan", "check", "plan.yaml", "--guest", "libvirt:win1")
    assert done.returncode == 0, done.stderr
    assert {*guest.asked} == {"guest-get-osinfo"}, "by virsh guestinfo, which taints nothing"
    said = " ".join(done.stdout.split())
    assert "commands and files go by its guest agent" in said and "tainted (custom-ga-command)" in said
    assert "never run on Windows itself" in said


def test_a_plan_becomes_a_report(guest: WindowsGuest, tmp_path: Path) -> None:
    before: list[str] = guest.left
    (tmp_path / "plan.yaml").write_text(PLAN)
    options = ("--guest", "libvirt:win1", "--yes", "--json", "-o", "report.html", "--wait")
    done = vmtax(guest, tmp_path, "run", "plan.yaml", *options)
    measured(done, "chess", "disk")
    assert "libvirt:win1 is defined as before, and running" in done.stderr
    assert "left out, because libvirt:win1 has no programs for it: transfer" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "Commands and files go by its guest agent" in page and "never run on Windows" in page
    assert guest.left == before
