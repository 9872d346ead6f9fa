"""Reach a host under test by its name: `local`, `ssh://[user@]host[:port]` or `lab[:NAME]`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vmtax.lab.home import Lab, LabError, lab
from vmtax.lab.reach import reach
from vmtax.lab.reach import route as lab_route
from vmtax.lab.standing import lab_standing
from vmtax.machine import Reader
from vmtax.machine.local import LocalMachine
from vmtax.machine.reader import LocalReader, SshReader
from vmtax.machine.ssh import SshMachine, SshRoute, connect_host, ssh_route


def lab_of(host: str) -> Lab | None:
    """The lab of that name; None if the host is no lab."""
    scheme, _, name = host.partition(":")
    return lab(name) if scheme == "lab" else None


def route(host: str) -> SshRoute:
    """How ssh reaches a host that is not `local`. Raises LabError if it is a lab that is off."""
    one = lab_of(host)
    return lab_route(one) if one else ssh_route(host)


def connect(local: LocalMachine, host: str, path: str) -> SshMachine:
    """Log in to a host that is not `local`, as the machine `path`. Raises MachineLost, and LabError if a lab stands
    still.
    """
    one = lab_of(host)
    if one and (why := lab_standing(one)):
        raise LabError(f"lab {one.name} {why}")
    return reach(local, one, path) if one else connect_host(local, ssh_route(host), path=path)


@contextlib.contextmanager
def open_reader(host: str) -> Iterator[Reader]:
    """A connection that can only read there. Raises MachineLost."""
    if host == "local":
        yield LocalReader()
        return
    reader = SshReader(route(host))
    try:
        reader.log_in()
        yield reader
    finally:
        reader.close()
