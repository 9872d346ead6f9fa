"""The guest agent of a VM of Proxmox VE, at the socket where Proxmox asks it too: `qm` takes no command with arguments
but guest-exec, and the API writes no file of more than 60 KiB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from vmtax.attach.agent import PATIENCE
from vmtax.attach.pluggable import AgentAnswer
from vmtax.core.machines import Machine, first_line
from vmtax.machine.answer import object_or_none
from vmtax.machine.local import ISOLATED, PYTHON

SOCKET = re.compile(r"socket,path=([^,\0]+),[^\0]*id=qga0(?:[,\0]|\Z)")  # on the command line of its QEMU
LATE_SECONDS = 10.0  # for a host that works hard to start the program that asks


@dataclass(frozen=True, slots=True)
class ProxmoxAgent:
    """The agent of one VM."""

    host: Machine
    name: str
    qemu: int  # the process of its QEMU

    def answer(self, request: str) -> AgentAnswer:
        socket = SOCKET.search(self.host.try_run("cat", f"/proc/{self.qemu}/cmdline").stdout)
        if socket is None:
            return AgentAnswer("", "its QEMU is gone, or has no socket for a guest agent")
        source = resources.files("vmtax.attach.proxmox").joinpath("ask_agent.py").read_text(encoding="utf-8")
        argv = (PYTHON, *ISOLATED, source, socket[1], str(PATIENCE))
        said = self.host.try_run(*argv, input=f"{request}\n", timeout=PATIENCE + LATE_SECONDS)
        if not said.ok:
            return AgentAnswer("", first_line(said.stderr), is_silent=True)
        error = (object_or_none(said.stdout) or {}).get("error")
        return AgentAnswer(said.stdout, str(error.get("desc", error)) if isinstance(error, dict) else "")
