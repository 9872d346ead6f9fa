"""A VM of the user's with Windows and without a login: a `Way` by its guest agent, to which libvirt or Proxmox VE
leads. Nothing is plugged in, and the agent is asked for nothing before the user was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vmtax.attach import LIBVIRT, Pluggable
from vmtax.attach.agent_transport import AgentTransport
from vmtax.core.events import Event
from vmtax.core.layers import EXISTING_PATH
from vmtax.design.factors import FACTORS
from vmtax.design.settings import PLUGGED
from vmtax.image.cache import Image
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.meter.windows import read_windows
from vmtax.storage import DISK_DIRECTORY
from vmtax.testbed.session.ways import RunByHost
from vmtax.testbed.session.windows_way import NOTES, WindowsInside, brought, entering, home_in
from vmtax.workload.chess import Chess
from vmtax.workload.fio import Disk

BY_AGENT = "commands and files go by its guest agent, in small pieces: copying the programs takes minutes"


@dataclass(frozen=True, slots=True)
class WindowsByAgent(RunByHost):
    """How that Windows is entered. Only who runs it was asked so far, and to leave it, what is ours is removed when its
    machine is closed.
    """

    there: WindowsMachine
    transport: AgentTransport  # of that machine
    machine: None = None
    path: str = EXISTING_PATH
    verb: str = "enter"
    measures: tuple[str, ...] = (Chess.name, Disk.name)  # a login shows the address of the other end for `transfer`

    @property
    def announced(self) -> str:
        return f"{BY_AGENT}; {self.vm.asked}; {entering()}"

    @property
    def takes_root(self) -> bool:
        return not self.name.startswith(LIBVIRT)  # who may use libvirt may ask the agent

    def why_not(self, levels: Mapping[str, str]) -> str | None:
        named = [name for name in levels if FACTORS[name].layers == PLUGGED]
        return f"{', '.join(named)}: its disk tests are on a file in that Windows: leave it out" if named else None

    def enter(self, local: LocalMachine, host: Placed, image: Image, emit: Callable[[Event], None]) -> WindowsInside:
        self.vm.remember()
        self.transport.look()
        # What its agent starts has all rights: nobody else must be able to write beside it, as in its own profile.
        home = home_in(self.name, self.there, DISK_DIRECTORY)
        digests = brought(self.there, home, local, emit)
        facts = replace(read_windows(self.there), cpus=self.vm.vcpus, memory_bytes=self.vm.memory, is_vm=True)
        notes = (*NOTES, f"{BY_AGENT[0].upper()}{BY_AGENT[1:]}; {self.vm.asked}.")
        nowhere = Placed(root="", kernel="", initrd="")
        return WindowsInside(self.there, nowhere, None, notes, self.uuid, self.vm.qemu, facts, digests)


def windows_by_agent(vm: Pluggable, scratch: Path) -> WindowsByAgent:
    """`scratch`: here, for copies of files"""
    transport = AgentTransport(vm.agent, EXISTING_PATH, scratch)
    return WindowsByAgent(vm, WindowsMachine(transport), transport)
