"""The two ends of workload `transfer`: of a Windows VM of the user's and its host, and of the host alone.

host layer:      end namespace --veth-- bridge --veth-- peer namespace, which has a server
the VM:          its own card --- the host's address, as the VM's login shows it, which has another
a Windows host:  its own card --- this machine's address, as that host's login shows it, which has a server
a VM on that:    its own card --- the same of the VM's login
"""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from typing_extensions import TypedDict

from vmtax.core.machines import first_line, last_words
from vmtax.machine import Machine
from vmtax.machine.answer import json_or_none
from vmtax.machine.local import LocalMachine
from vmtax.machine.pipes import TooMuch, read_line
from vmtax.machine.windows.machine import WindowsMachine
from vmtax.network import END_ADDRESS, PEER_ADDRESS, Segment
from vmtax.testbed.session import examine
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.session import CannotMeasure
from vmtax.workload.site import TIMED, Link
from vmtax.workload.transfer import PROGRAM, Transfer

READY_SECONDS = 30.0
SHORTEST = "0.1"  # seconds that a client works at least
UNKNOWN = "its login does not say from which IPv4 address it comes: name it by its IPv4 address"
LOOPBACK = "127.0.0.1"  # to which QEMU's user networking brings what is sent to the host


class _Ready(TypedDict):
    port: int


@dataclass(frozen=True, slots=True)
class Ends:
    """How the client reaches its server, on both layers."""

    host: Link
    vm: Link


def refuse(name: str, host: Machine, there: WindowsMachine) -> None:
    """Raises CannotMeasure if the VM of that name, and its host, cannot be two ends."""
    why = ""
    if not isinstance(host, LocalMachine):
        why = "the VM's host must be the machine that runs vmtax, whose address its login shows: run vmtax there"
    elif not examine.is_root(host):
        why = f"only root of {host.path} makes the two network namespaces of the host's own ends"
    elif _address(there) is None:
        why = UNKNOWN
    _refuse(name, why)


def refuse_nowhere(name: str, there: WindowsMachine) -> None:
    """Raises CannotMeasure if a Windows cannot have its far end on the machine that runs vmtax."""
    _refuse(name, "" if _address(there) else UNKNOWN)


def _refuse(name: str, why: str) -> None:
    if why:
        raise CannotMeasure(f"{name}, {Transfer.name}: {why}; or leave {Transfer.name} out of the plan")


def open_ends(on: Examined, there: WindowsMachine, program: Path) -> Ends:
    """Start both servers; the host's guard ends them. Raises CannotMeasure and MachineError.

    on: the host; program: the sender for Linux, on the machine that runs vmtax
    """
    host, address = on.host, _address(there)
    assert address is not None, "`refuse` asked for it"
    own = host.scratch / PROGRAM
    host.push(program, own)
    host.run("chmod", "755", str(own))
    segment = Segment(host, on.session.local.token[:6])
    peer, end = segment.add_end("peer", PEER_ADDRESS), segment.add_end("end", END_ADDRESS)
    inside = ("ip", "netns", "exec")
    port = _serve(host, (*inside, peer), own, PEER_ADDRESS)
    client = (*inside, end, *on.kept(), "env", f"PATH={own.parent}")
    try:
        found = _serve(host, (), own, address)
    except CannotMeasure:
        found = _serve(host, (), own, LOOPBACK)
    return Ends(Link(host, client, PEER_ADDRESS, port), Link(there, (), address, found))


def open_far_end(name: str, there: WindowsMachine, local: LocalMachine, program: Path) -> Link:
    """Start a server on the machine that runs vmtax, at the address from which it logs in to that Windows, which
    reaches it. The guard ends it. Raises CannotMeasure and MachineError.

    program: the sender for Linux, on the machine that runs vmtax
    """
    address = _address(there)
    assert address is not None, "`refuse_nowhere` asked for it"
    local.run("chmod", "755", str(program))
    try:
        port = _serve(local, (), PurePosixPath(program), address)
    except CannotMeasure as error:
        _refuse(name, f"its login comes from {address}, where this machine has no server ({error})")
    link = Link(there, (), address, port)
    refuse_unreached(name, link, "this machine")
    return link


def refuse_unreached(name: str, link: Link, server: str = "its host") -> None:
    """Raises CannotMeasure if a client in the Windows of that name does not reach the server on that machine: before
    anything is measured, and whatever lies between.
    """
    program = link.machine.os.program(PROGRAM)
    said = link.machine.try_run(program, "receive", link.address, str(link.port), SHORTEST)
    if not said.ok:
        words = first_line(said.stderr) or "it says nothing"
        raise CannotMeasure(
            f"{name}, {Transfer.name}: {PROGRAM} there does not reach {server} at {link.address}, port {link.port}"
            f" ({words}), from where its login came: a firewall, or a jump host on the way; or leave {Transfer.name}"
            " out of the plan"
        )


def _address(there: WindowsMachine) -> str | None:
    """The host's address, as that Windows sees it; None: it does not say."""
    words = there.carry("echo %SSH_CONNECTION%").stdout.split()
    try:
        return str(ipaddress.IPv4Address(words[0])) if words else None
    except ValueError:
        return None


def _serve(host: Machine, prefix: tuple[str, ...], program: PurePosixPath, address: str) -> int:
    """Start a server; its port."""
    process = host.start(*prefix, *TIMED, str(program), "serve", address, "0")
    try:
        line = read_line(process.stdout, time.monotonic() + READY_SECONDS)
    except (TimeoutError, TooMuch):
        line = b""
    said = json_or_none(line.decode(errors="replace"), _Ready)
    if said is None:
        raise CannotMeasure(f"{host.path}: {PROGRAM} does not serve at {address}: {first_line(last_words(process))}")
    return said["port"]
