"""A Windows without a login, as vmtax sees it by its guest agent: a real qemu-ga on Linux, whose commands for cmd.exe
go to Wine's, whose paths are those of Wine's drive C, and which says of its system what Windows' agent says.

Between it and `virsh` of tests/windows/virsh.py stands a server of ours, in this process. It proves nothing about how
the agent starts programs on Windows, nor about PowerShell.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from tests.command import HANGS
from tests.windows_host import QUIET, SOURCES, wine

# As qga/commands-win32.c fills it in.
SYSTEM = {
    **{"id": "mswindows", "name": "Microsoft Windows", "pretty-name": "Windows 11 Pro", "version-id": "11"},
    **{"version": "Microsoft Windows 11", "variant": "client", "variant-id": "client", "machine": "x86_64"},
    **{"kernel-release": "22631", "kernel-version": "10.0"},
}
Message = dict[str, Any]


@dataclass
class WindowsGuest:
    """A domain win1, whose agent is asked at `socket`."""

    directory: Path
    environment: dict[str, str]  # in which its virsh is found
    asked: list[str] = field(default_factory=list)  # names of commands, in order
    largest: int = 0  # bytes of the largest answer
    before: Callable[[Message], None] = lambda message: None  # called before a command is handed on
    agent: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.directory / "agent"

    @property
    def drive(self) -> Path:
        """Its drive C."""
        return self.directory / "prefix/drive_c"

    @property
    def home(self) -> Path:
        return self.drive / "users/root"

    @property
    def left(self) -> list[str]:
        """Directories and tasks of vmtax."""
        tasks = (self.drive / "windows/system32/tasks").glob("vmtax-*")
        return sorted(path.name for path in (*self.home.glob("vmtax-*"), *tasks))

    def start_agent(self, *words: str) -> None:
        """The real one, with these further options."""
        real = self.directory / "qemu-ga"
        program = shutil.which("qemu-ga", path="/usr/sbin:/usr/bin")
        assert program, "qemu-guest-agent is installed"
        state = self.directory / "state"
        state.mkdir(exist_ok=True)
        real.unlink(missing_ok=True)
        argv = [program, "-m", "unix-listen", "-p", str(real), "-t", str(state), "-f", str(state / "pid"), *words]
        self.agent = subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + HANGS
        while not real.exists():
            assert time.monotonic() < limit and self.agent.poll() is None, "qemu-ga listens"
            time.sleep(0.02)

    def end_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait(HANGS)

    def as_linux(self, message: Message) -> Message:
        """A command for the real agent, which does the same."""
        arguments = dict(message.get("arguments", {}))
        if message["execute"] == "guest-file-open":
            parts = PureWindowsPath(arguments["path"]).parts
            arguments["path"] = str(self.drive.joinpath(*parts[1:]))
        elif message["execute"] == "guest-exec":
            program, words = arguments["path"], arguments["arg"]
            # In a session of its own, by which taskkill finds what belongs to it.
            path, arg = "setsid", ["wine", program, *words]
            if program == "taskkill.exe":
                assert words[:3] == ["/f", "/t", "/pid"]
                path, arg = "pkill", ["-KILL", "-s", words[3]]
            arguments |= {"path": path, "arg": arg}
        return {**message, **({"arguments": arguments} if arguments else {})}

    def answer(self, line: bytes) -> bytes:
        """What its agent says."""
        message = json.loads(line.lstrip(b"\xff"))
        self.asked.append(message["execute"])
        self.before(message)
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(HANGS)
            link.connect(str(self.directory / "qemu-ga"))
            link.sendall(json.dumps(self.as_linux(message)).encode() + b"\n")
            said = link.makefile("rb").readline()
        self.largest = max(self.largest, len(said))
        if message["execute"] == "guest-get-osinfo":
            return json.dumps({"return": SYSTEM}).encode() + b"\n"
        return said

    def serve(self, listening: socket.socket) -> None:
        """One command at a time, as a serial port carries them."""
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            with link, link.makefile("rb") as stream:
                for line in stream:
                    try:
                        said = self.answer(line)
                    except OSError:
                        break
                    if not said:
                        break
                    with contextlib.suppress(OSError):
                        link.sendall(said)


@contextlib.contextmanager
def windows_guest(directory: Path) -> Iterator[WindowsGuest]:
    """Its agent answers when the context begins."""
    programs = directory / "bin"
    programs.mkdir()
    virsh = programs / "virsh"
    virsh.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {SOURCES}/virsh.py {directory}/agent "$@"\n')
    virsh.chmod(0o755)
    with wine(directory / "prefix") as environment:
        # Wine's services start with the first program and stay: with the agent's pipes, they would keep these open.
        first = ("setsid", "--wait", "wine", "cmd.exe", "/c", "ver")
        subprocess.run(first, env=environment, check=True, timeout=HANGS, stdin=subprocess.DEVNULL, **QUIET)
        guest = WindowsGuest(directory, {**environment, "PATH": f"{programs}:{os.environ['PATH']}"})
        guest.start_agent()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(guest.socket))
            listening.listen(8)
            thread = threading.Thread(target=guest.serve, args=(listening,), daemon=True)
            thread.start()
            try:
                yield guest
            finally:
                listening.shutdown(socket.SHUT_RDWR)
                thread.join(HANGS)
                guest.end_agent()
