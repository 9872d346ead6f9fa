"""Connect to a lab that is up, which then is an ordinary machine."""

from __future__ import annotations

from pathlib import Path

from vmtax.hypervisor import Credentials
from vmtax.lab.home import Lab, LabError, Up
from vmtax.lab.monitor import why_still
from vmtax.machine.local import LocalMachine
from vmtax.machine.ssh import SshMachine, SshRoute, connect_host


def route(one: Lab) -> SshRoute:
    """How ssh reaches it. Raises LabError if it is off."""
    return _route(one.running())


def _route(up: Up) -> SshRoute:
    credentials = Credentials(Path(up.key), Path(up.known_hosts))
    return SshRoute("root@127.0.0.1", (*credentials.options(), "-p", str(up.port)))


def reach(local: LocalMachine, one: Lab, path: str = "host", *, guarded: bool = True) -> SshMachine:
    """Log in; `guarded`: with a guard there, which is necessary to set anything up."""
    machine = connect_host(local, route(one), path=path, guarded=guarded)
    machine.why_gone = lambda: why_gone(one)
    return machine


def why_gone(one: Lab) -> str:
    """Why a lab that was reached no longer answers: it is paused, or off; empty if neither."""
    try:
        up = one.up()
        still = why_still(one, up) if up else ""
        return f"lab {one.name} {still}" if still else ("" if one.up() else one.why_off())
    except LabError as error:
        return str(error)
