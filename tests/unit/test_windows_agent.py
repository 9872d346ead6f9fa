"""The guest agent as the way to a Windows: what it is asked, and each way in which it refuses."""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.unit.test_attach import domain, host
from vmtax.attach import LibvirtVm, agent_transport
from vmtax.attach.agent import AgentRefused, AgentSilent, DomainAgent, asked
from vmtax.attach.agent_transport import LONGEST_PAUSE, NEEDED, PIECE, READ, AgentTransport
from vmtax.attach.pluggable import AgentAnswer, Pluggable
from vmtax.attach.proxmox.agent import ProxmoxAgent
from vmtax.core.machines import Machine, MachineError, MachineLost
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.testbed.session import windows_agent
from vmtax.testbed.session.windows_agent import windows_by_agent

HOME = PureWindowsPath("C:\\Windows\\system32\\config\\systemprofile")
SILENT = AgentAnswer("", "Guest agent is not responding", is_silent=True)
DISABLED = AgentAnswer("", "Command guest-exec has been disabled: the command is not allowed")
Said = tuple[bytes, bytes, int | None]  # what a command prints, and its exit code; None: it does not come to its end


@dataclass
class FarAgent:
    """The agent of a Windows that answers by these rules; what they do not know succeeds silently."""

    name: str = "libvirt:win1"
    rules: dict[str, Said] = field(default_factory=dict)  # a part of a line -> what comes of it
    instead: dict[str, list[AgentAnswer]] = field(default_factory=dict)  # command -> what comes first, in this order
    system: dict[str, str] = field(default_factory=lambda: {"id": "mswindows"})
    disabled: tuple[str, ...] = ()
    never: tuple[str, ...] = ()  # parts of lines of commands that do not end
    files: dict[str, bytearray] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    open: dict[int, list[Any]] = field(default_factory=dict)  # handle -> path, position
    running: dict[int, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def answer(self, request: str) -> AgentAnswer:
        message = json.loads(request)
        self.asked.append(message)
        name = message["execute"]
        if self.instead.get(name):
            return self.instead[name].pop(0)
        try:
            value = getattr(self, name.replace("-", "_"))(message.get("arguments", {}))
        except KeyError as error:
            return AgentAnswer("", f"failed to open file {error}: no such file")
        return AgentAnswer(json.dumps({"return": value}))

    def commands(self, name: str) -> list[dict[str, Any]]:
        """The arguments of all commands of that name."""
        return [each.get("arguments", {}) for each in self.asked if each["execute"] == name]

    @property
    def lines(self) -> list[str]:
        given = [each["input-data"] for each in self.commands("guest-exec") if "input-data" in each]
        return [base64.b64decode(each).decode() for each in given]

    def guest_fsfreeze_status(self, given: dict[str, Any]) -> str:
        return "thawed"

    def guest_info(self, given: dict[str, Any]) -> dict[str, Any]:
        commands = [{"name": name, "enabled": name not in self.disabled, "success-response": True} for name in NEEDED]
        return {"version": "8.2.0", "supported_commands": commands}

    def guest_get_osinfo(self, given: dict[str, Any]) -> dict[str, str]:
        return self.system

    def guest_get_time(self, given: dict[str, Any]) -> int:
        return 1_930_000_000_123_456_700

    def guest_exec(self, given: dict[str, Any]) -> dict[str, int]:
        pid = 100 + len(self.running)
        if given["path"] == "taskkill.exe":
            self.ended.append(" ".join(given["arg"]))
            self.running[pid] = ("taskkill", {"exited": True, "exitcode": 0})
            return {"pid": pid}
        line = base64.b64decode(given["input-data"]).decode()
        stdout, stderr, code = next((said for part, said in self.rules.items() if part in line), (b"", b"", 0))
        word = re.findall(r"vmtax-[0-9a-f]{24}-w", line)[0].encode()
        if files := re.search(r'>"([^"]+)" 2>"([^"]+)"', line):
            self.files |= {files[1]: bytearray(stdout), files[2]: bytearray(stderr)}
            stdout = stderr = b""
        if "mkdir" in line and not stdout:
            stdout = b"made\r\n"
        end = b"" if code is None else b"%b %d\r\n" % (word, code)
        printed = b"Microsoft Windows [Version 10.0.22631]\r\n" + word + b"\r\n" + stdout + end
        status = {"exited": True, "exitcode": 0, "out-data": base64.b64encode(printed).decode()}
        complained = base64.b64encode(word + b"\r\n" + stderr).decode()
        self.running[pid] = (line, {**status, "err-data": complained})
        return {"pid": pid}

    def guest_exec_status(self, given: dict[str, Any]) -> dict[str, Any]:
        line, status = self.running[given["pid"]]
        return {"exited": False} if any(part in line for part in self.never) else status

    def guest_file_open(self, given: dict[str, Any]) -> int:
        if given["mode"] == "wb":
            self.files[given["path"]] = bytearray()
        _ = self.files[given["path"]]
        self.open[1000 + len(self.asked)] = [given["path"], 0]
        return 1000 + len(self.asked)

    def guest_file_close(self, given: dict[str, Any]) -> dict[str, Any]:
        del self.open[given["handle"]]
        return {}

    def guest_file_write(self, given: dict[str, Any]) -> dict[str, Any]:
        data = base64.b64decode(given["buf-b64"])
        self.files[self.open[given["handle"]][0]] += data
        return {"count": len(data), "eof": False}

    def guest_file_read(self, given: dict[str, Any]) -> dict[str, Any]:
        """As Windows' agent does it: nothing is the end, and has no `buf-b64`."""
        path, at = self.open[given["handle"]]
        piece = self.files[path][at : at + given["count"]]
        self.open[given["handle"]][1] += len(piece)
        data = {"buf-b64": base64.b64encode(piece).decode()} if piece else {}
        return {"count": len(piece), "eof": not piece, **data}

    def guest_file_seek(self, given: dict[str, Any]) -> dict[str, Any]:
        assert (given["offset"], given["whence"]) == (0, "end")
        return {"position": len(self.files[self.open[given["handle"]][0]]), "eof": False}


@pytest.fixture
def far() -> FarAgent:
    return FarAgent(
        rules={"PROCESSOR_ARCHITECTURE": (b"AMD64\r\n", b"", 0), "chcp&": (b"Active code page: 437\r\n", b"", 0)}
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between questions; time passes only in them."""
    pauses: list[float] = []
    monkeypatch.setattr(agent_transport.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(agent_transport.time, "sleep", pauses.append)
    return pauses


def way(far: FarAgent, tmp_path: Path) -> AgentTransport:
    return AgentTransport(far, "host/existing", tmp_path)


def machine(far: FarAgent, tmp_path: Path) -> WindowsMachine:
    one = WindowsMachine(way(far, tmp_path))
    one.set_up(HOME, [one.file("fio")])
    far.asked.clear()
    return one


def test_a_line_is_standard_input_of_cmd(far: FarAgent, tmp_path: Path) -> None:
    """On a command line, the agent would quote it anew, with a backslash before each quotation mark."""
    far.rules['echo "a b"'] = (b'"a b"\r\n', b"", 0)
    said = way(far, tmp_path).carry('echo "a b"', 60)
    assert (said.stdout, said.stderr, said.code) == ('"a b"\n', "", 0)
    assert far.commands("guest-exec")[0]["path"] == "cmd.exe"
    assert far.commands("guest-exec")[0]["arg"] == ["/d", "/q"]
    assert far.lines[0].endswith("\r\n") and far.lines[0].count("\n") == 1


def test_what_a_program_prints_goes_to_files_of_ours(far: FarAgent, tmp_path: Path) -> None:
    one = machine(far, tmp_path)
    text = b"x" * (3 * READ) + b"\r\n"
    far.rules["fio-"] = (text, b"fio: warning\r\n", 3)
    done = one.try_run(one.os.program("fio"), "--x y")
    assert (done.stdout, done.stderr, done.code) == ("x" * (3 * READ) + "\n", "fio: warning\n", 3)
    sizes = [len(json.dumps(status)) for _, status in far.running.values()]
    assert max(sizes) < 1000, "a few MB in one answer break the agent"
    assert max(each["count"] for each in far.commands("guest-file-read")) == READ
    assert far.open == {}, "no handle stays open"
    paths = [each["path"] for each in far.commands("guest-file-open")]
    assert all(path.startswith(f"{one.directory}\\") for path in paths), "all that is ours lies in one directory"
    one.try_run(one.os.program("fio"))
    assert len({each["path"] for each in far.commands("guest-file-open")}) == 4, "commands may run at the same time"


@pytest.mark.parametrize(
    ("data", "text"),
    [("Gerät".encode("cp437"), "Gerät"), ("name=ü".encode("utf-16"), "name=ü"), ("電源".encode(), "電源")],
)
def test_encodings(far: FarAgent, tmp_path: Path, data: bytes, text: str) -> None:
    one = way(far, tmp_path)
    one.look()
    assert one.code_page == 437
    far.rules["echo x"] = (data, b"", 0)
    assert one.carry("echo x", 60).stdout == text


def test_files_go_in_pieces_that_are_awaited(far: FarAgent, tmp_path: Path) -> None:
    one, file = way(far, tmp_path), tmp_path / "fio.exe"
    file.write_bytes(bytes(range(256)) * (PIECE // 64) + b"end")
    there = HOME / "fio.exe"
    one.put(file, there)
    assert far.files[str(there)] == file.read_bytes()
    pieces = [each["buf-b64"] for each in far.commands("guest-file-write")]
    assert len(pieces) == 5 and max(map(len, pieces)) + 100 < 128 * 2**10, "a word of virsh's command line"
    one.get(there, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == file.read_bytes()
    assert one.size(there) == file.stat().st_size
    assert far.open == {}


def test_a_file_that_is_not_written_whole(far: FarAgent, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"12345")
    far.instead["guest-file-write"] = [AgentAnswer('{"return":{"count":3,"eof":false}}')]
    with pytest.raises(MachineError, match="3 of 5 bytes were written"):
        way(far, tmp_path).put(file, HOME / "x")
    assert far.open == {}, "it is closed all the same"


@pytest.mark.parametrize("data", ["%%%", "=", "ä"])
def test_what_is_no_base64(far: FarAgent, tmp_path: Path, data: str) -> None:
    far.files["C:\\x"] = bytearray(b"1")
    far.instead["guest-file-read"] = [AgentAnswer(json.dumps({"return": {"count": 1, "eof": False, "buf-b64": data}}))]
    with pytest.raises(MachineError, match="base64 must stand there"):
        way(far, tmp_path).get(PureWindowsPath("C:\\x"), tmp_path / "copy")


def test_a_file_that_is_not_there(far: FarAgent, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"C:\\x cannot be read: libvirt:win1: failed to open file"):
        way(far, tmp_path).size(PureWindowsPath("C:\\x"))


def test_the_pause_between_questions_grows(far: FarAgent, tmp_path: Path, clock: list[float]) -> None:
    """Each question costs time of the guest that is measured."""
    far.instead["guest-exec-status"] = [AgentAnswer('{"return":{"exited":false}}')] * 20
    way(far, tmp_path).carry("x", 600)
    assert len(clock) == 20
    assert clock == sorted(clock) and clock[0] < 0.2 and clock[-1] == LONGEST_PAUSE


def test_a_silent_agent_is_asked_again_how_a_command_ended(far: FarAgent, tmp_path: Path, clock: list[float]) -> None:
    """A guest whose disk is measured may be late."""
    far.instead["guest-exec-status"] = [SILENT, SILENT, SILENT]
    assert way(far, tmp_path).carry("x", 600).code == 0


def test_a_silent_agent_is_no_evidence_that_a_command_began(far: FarAgent, tmp_path: Path) -> None:
    far.instead["guest-exec"] = [SILENT]
    with pytest.raises(MachineLost, match="its guest agent does not answer"):
        way(far, tmp_path).carry("x", 60)
    assert far.commands("guest-exec-status") == []


@pytest.mark.parametrize("words", ["PID ld does not exist", "Invalid parameter 'pid'"])
def test_an_agent_that_was_restarted_does_not_know_the_command(far: FarAgent, tmp_path: Path, words: str) -> None:
    far.instead["guest-exec-status"] = [AgentAnswer("", words)]
    with pytest.raises(MachineLost, match=rf"{words}: was it restarted"):
        way(far, tmp_path).carry("x", 60)


def test_what_does_not_end_is_ended_with_all_that_it_started(far: FarAgent, tmp_path: Path, clock: list[float]) -> None:
    one = machine(far, tmp_path)
    far.never = ("--x",)
    pid = 100 + len(far.running)
    done = one.try_run(one.os.program("fio"), "--x", timeout=3.0)
    assert done.timed_out
    assert far.ended == [f"/f /t /pid {pid}"]
    assert f"taskkill /f /im {one.file('fio')}&" in far.lines[-1], "and by its name, if its parent was gone"


def test_an_output_that_was_cut_is_no_output(far: FarAgent, tmp_path: Path) -> None:
    far.instead["guest-exec-status"] = [AgentAnswer('{"return":{"exited":true,"exitcode":0,"out-truncated":true}}')]
    with pytest.raises(MachineError, match="a command printed more than"):
        way(far, tmp_path).carry("x", 60)


def test_a_file_that_is_too_large_for_an_output(far: FarAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_transport, "MOST_BYTES", 100)
    one = machine(far, tmp_path)
    far.rules["fio-"] = (b"x" * 101, b"", 0)
    with pytest.raises(MachineError, match="a command printed more than"):
        one.try_run(one.os.program("fio"))
    assert far.open == {}


@pytest.mark.parametrize("status", [{"exitcode": 0}, {"signal": 0xC0000005}, {"exitcode": 1}])
def test_a_cmd_that_did_not_come_to_its_end(far: FarAgent, tmp_path: Path, status: dict[str, int]) -> None:
    """The exit code is in its last line: that of the agent is cmd.exe's own, or the exception that ended it."""
    one = machine(far, tmp_path)
    far.rules["fio-"] = (b"", b"", None)
    with pytest.raises(MachineLost, match="did not end in order"):
        one.try_run(one.os.program("fio"))
    far.instead["guest-exec-status"] = [AgentAnswer(json.dumps({"return": {"exited": True, **status}}))]
    with pytest.raises(MachineLost, match="a command did not begin"):
        one.try_run(one.os.program("fio"))


@pytest.mark.parametrize(
    ("argv", "given", "words"),
    [
        (("fio.exe", "ä"), None, "ASCII only"),
        (("fio.exe",), "text", "standard input"),
        (("fio.exe", "x" * 7950), None, "characters"),
        (("fio.exe", "%x%"), None, "percent signs"),
    ],
)
def test_what_no_line_can_say_is_an_outcome(
    far: FarAgent, tmp_path: Path, argv: tuple[str, ...], given: str | None, words: str
) -> None:
    one = machine(far, tmp_path)
    done = one.try_run(*argv, input=given)
    assert (done.ok, done.code) == (False, 126)
    assert words in done.stderr
    assert far.lines == []


@pytest.mark.parametrize(
    ("disabled", "words"),
    [
        (("guest-exec",), "(guest-exec)"),
        (("guest-exec-status", "guest-file-open"), "(guest-exec-status, guest-file-open)"),
        (NEEDED, "guest-get-osinfo)"),
    ],
)
def test_what_the_agent_may_not_do_is_said_before_it_is_asked(
    far: FarAgent, tmp_path: Path, disabled: tuple[str, ...], words: str
) -> None:
    far.disabled = disabled
    with pytest.raises(MachineError) as refused:
        way(far, tmp_path).look()
    assert f"{words}: allow that in the command line of its service" in str(refused.value)
    assert "--guest ssh://Administrator@ADDRESS" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not far.commands("guest-exec")


def test_a_frozen_guest_is_not_called_a_forbidden_one(far: FarAgent, tmp_path: Path) -> None:
    """While it is frozen, its agent says of most commands that they are disabled."""
    far.disabled = NEEDED
    far.instead["guest-fsfreeze-status"] = [AgentAnswer('{"return":"frozen"}')]
    with pytest.raises(MachineError, match="libvirt:win1: its file systems are frozen, as for a backup"):
        way(far, tmp_path).look()


@pytest.mark.parametrize(("system", "words"), [({}, "says ''"), ({"id": "debian"}, "says 'debian'")])
def test_an_agent_that_does_not_say_windows(far: FarAgent, tmp_path: Path, system: dict[str, str], words: str) -> None:
    far.system = system
    with pytest.raises(MachineError, match=words):
        way(far, tmp_path).look()
    assert not far.commands("guest-exec")


def test_an_agent_of_32_bits_sees_other_files(far: FarAgent, tmp_path: Path) -> None:
    far.rules["PROCESSOR_ARCHITECTURE"] = (b"x86\r\n", b"", 0)
    with pytest.raises(MachineError, match="install the 64-bit one"):
        way(far, tmp_path).look()


@pytest.mark.parametrize("now", [-1, 2**63])
def test_its_clock(far: FarAgent, tmp_path: Path, now: int) -> None:
    assert way(far, tmp_path).clock(HOME) == datetime.fromtimestamp(1_930_000_000, UTC).replace(microsecond=123456)
    far.instead["guest-get-time"] = [AgentAnswer(json.dumps({"return": now}))]
    with pytest.raises(MachineError, match="says that the time is"):
        way(far, tmp_path).clock(HOME)


def test_a_directory_is_made_alone(far: FarAgent, tmp_path: Path) -> None:
    """cmd.exe would make those above it, too, and nobody would remove these."""
    one = way(far, tmp_path)
    one.make_directory(PureWindowsPath("D:\\vmtax-1"))
    assert '(if exist "D:\\" mkdir "D:\\vmtax-1")& (if exist "D:\\vmtax-1\\" echo made)' in far.lines[-1]
    far.rules["mkdir"] = (b"no\r\n", b"Access is denied.\r\n", 1)
    with pytest.raises(MachineError, match=r"no directory can be made in C:\\x: Access is denied\."):
        one.make_directory(PureWindowsPath("C:\\x\\vmtax-1"))


def test_one_request_at_a_time(far: FarAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, answer = [0], [0], far.answer

    def slowly(request: str) -> AgentAnswer:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        threading.Event().wait(0.002)
        at_once[0] -= 1
        return answer(request)

    monkeypatch.setattr(far, "answer", slowly)
    one = way(far, tmp_path)
    threads = [threading.Thread(target=one.clock, args=(HOME,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


WORDS = "error: internal error: unable to execute QEMU agent command 'guest-exec-status': PID ld does not exist"


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (WORDS, AgentRefused, r"libvirt:web1: PID ld does not exist$"),
        ("error: Guest agent disappeared while executing command", AgentSilent, "does not answer"),
        (
            "error: internal error: unable to execute QEMU agent command 'x': handle '7' has not been found",
            AgentRefused,
            "handle",
        ),
        ("error: Requested operation is not valid: domain is not running", AgentRefused, "domain is not running"),
    ],
)
def test_an_agents_own_words_are_no_silence(said: str, kind: type[AgentRefused], words: str) -> None:
    one = DomainAgent(domain(host(qemu_agent_command=Reply(stderr=said, code=1))))
    with pytest.raises(AgentRefused, match=words) as refused:
        asked(one, "guest-exec-status", {"pid": 7}, dict)
    assert type(refused.value) is kind


COMMAND_LINE = "/usr/bin/kvm\0-chardev\0socket,path=/var/run/qemu-server/101.qga,server=on,wait=off,id=qga0\0-device\0"


def proxmox(said: Reply, line: str = COMMAND_LINE) -> ProxmoxAgent:
    answers: Any = {("cat", "/proc/77/cmdline"): line, lambda argv: argv[0] == "/usr/bin/python3": said}
    return ProxmoxAgent(FakeMachine("host", answers), "proxmox:101", 77)


def test_the_agent_of_proxmox_is_asked_at_its_socket() -> None:
    one = proxmox(Reply('{"return": {"pid": 5}}\n'))
    assert asked(one, "guest-exec", {"path": "x"}, dict) == {"pid": 5}
    argv, given = cast("FakeMachine", one.host).inputs[0]
    assert argv[-2:] == ("/var/run/qemu-server/101.qga", "20")
    assert json.loads(given) == {"execute": "guest-exec", "arguments": {"path": "x"}}


@pytest.mark.parametrize(
    ("said", "line", "words"),
    [
        (Reply(stderr="it gave no answer at /run/x: timed out\n", code=1), COMMAND_LINE, "does not answer (it gave no"),
        (Reply('{"error": {"class": "GenericError", "desc": "failed to open file"}}'), COMMAND_LINE, "failed to open"),
        (Reply('{"return": {}}'), "", "its QEMU is gone"),
        (Reply("junk"), COMMAND_LINE, "answered 'junk'"),
        (Reply('{"error": {"desc": "Command x has been disabled"}}'), COMMAND_LINE, "may not start programs"),
    ],
)
def test_an_agent_of_proxmox_that_refuses(said: Reply, line: str, words: str) -> None:
    with pytest.raises(AgentRefused) as refused:
        asked(proxmox(said, line), "guest-get-osinfo", {}, dict)
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_windows_is_what_its_agent_says_or_else_its_definition() -> None:
    defined = '<domain><libosinfo:os id="http://microsoft.com/win/11"/></domain>'
    for os, xml, is_windows in (
        ("os.id : mswindows\n", "<domain/>", True),
        ("os.id : debian\n", defined, False),
        ("", defined, True),  # an agent that does not say it
        ("", "<domain/>", False),
    ):
        machine = host(guestinfo=os, dumpxml=xml)
        assert LibvirtVm(domain(machine)).is_windows is is_windows
        assert not any("qemu-agent-command" in word for argv in machine.calls for word in argv), "it taints nothing"


def test_the_way_is_announced_and_asks_nothing_before() -> None:
    here = LibvirtVm(domain(host()))
    one = windows_by_agent(here, Path("/x"))
    assert "commands and files go by its guest agent" in one.announced
    assert "tainted (custom-ga-command)" in one.announced and "never run on Windows itself" in one.announced
    assert one.size().vcpus == 2 and one.measures == ("chess", "disk")
    assert (
        one.why_not({"disk.cache": "none"}) == "disk.cache: its disk tests are on a file in that Windows: leave it out"
    )
    assert one.why_not({"cpu.model": "x"}) is None
    assert not cast("FakeMachine", here.host).calls


def test_it_is_entered_after_it_was_looked_at(far: FarAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far.rules |= {"%USERPROFILE%": (f"{HOME}\r\n".encode(), b"", 0)}
    seen: list[str] = []

    class Vm:
        name, uuid, vcpus, memory, qemu, agent, asked = "libvirt:win1", "u", 3, 2**31, 7, far, "it is tainted"

        def remember(self) -> None:
            seen.append("remembered")
            assert not far.asked

    monkeypatch.setattr(windows_agent, "brought", lambda there, home, local, emit: seen.append(str(home)) or {})
    one = windows_by_agent(cast("Pluggable", Vm()), tmp_path)
    inside = one.enter(cast("LocalMachine", None), cast("Any", None), cast("Any", None), lambda event: None)
    assert seen == ["remembered", str(HOME)]
    assert (inside.facts.cpus, inside.facts.memory_bytes, inside.facts.is_vm, inside.qemu) == (3, 2**31, True, 7)
    assert any("guest agent" in note and "it is tainted" in note for note in inside.notes)
    assert isinstance(inside.machine, Machine)
