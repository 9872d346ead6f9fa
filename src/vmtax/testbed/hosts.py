"""Where a host under test is, by its name: `local`, `ssh://[user@]host[:port]` or `lab[:NAME]`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from vmtax.lab.home import lab
from vmtax.lab.reach import reach
from vmtax.lab.reach import route as lab_route
from vmtax.machine import Reader
from vmtax.machine.local import LocalMachine
from vmtax.machine.reader import LocalReader, SshReader
from vmtax.machine.ssh import Route, SshMachine, connect_host, ssh_route


def route(host: str) -> Route:
    """How ssh reaches a host that is not `local`; raises LabError where it is a lab that is off."""
    scheme, _, name = host.partition(":")
    return lab_route(lab(name)) if scheme == "lab" else ssh_route(host)


def connect(local: LocalMachine, host: str, path: str) -> SshMachine:
    """Log in to a host that is not `local`; it is machine `path`. Raises MachineLost."""
    scheme, _, name = host.partition(":")
    return reach(local, lab(name), path) if scheme == "lab" else connect_host(local, ssh_route(host), path=path)


@contextlib.contextmanager
def open_reader(host: str) -> Iterator[Reader]:
    """What only reads there. Raises MachineLost."""
    if host == "local":
        yield LocalReader()
        return
    reader = SshReader(route(host))
    try:
        reader.log_in()
        yield reader
    finally:
        reader.close()
