"""The servers at the network peer: who may use them, their memory, and what they say when they are ready."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

from vmtax.core.machines import first_line, last_words
from vmtax.machine import Machine, MachineError, Process
from vmtax.machine.local import to_bytes
from vmtax.machine.pipes import TooMuch, read_line
from vmtax.storage import page_cache
from vmtax.storage.page_cache import Bound
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.workload.site import PeerServer

READY_SECONDS = 300.0  # for a server that makes a file of 64 GiB
_numbers = itertools.count()


def start(on: Provisioned, number: int, stack: contextlib.ExitStack) -> list[tuple[PeerServer, Process]]:
    """Start the servers of the machine of that number; `stack` ends them."""
    assert on.network is not None
    at, found = on.network.at, []
    for server in on.peer_servers(number):
        command = (*_bounded(at, server, stack), *on.at_peer(server.argv, server.capabilities, server.room))
        process = at.start(*command)
        stack.callback(process.stop)
        if server.input:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and says why
                process.stdin.write(to_bytes(server.input))
                process.stdin.flush()
        found.append((server, process))
    return found


def notes(on: Provisioned) -> list[str]:
    """What a reader must know of the servers of that run, a line each."""
    assert on.network is not None
    keeps_files = any(server.memory is not None for server in on.peer_servers())
    if not keeps_files or page_cache.has_cgroups(on.network.at):
        return []
    return [
        f"The memory of the share's server at {on.network.at.path} is limited only by the size of its file system:"
        " there are no memory cgroups, or not for children of the root."
    ]


def _bounded(at: Machine, server: PeerServer, stack: contextlib.ExitStack) -> tuple[str, ...]:
    """The prefix that limits the memory of a server that keeps files, where the machine has memory cgroups; without
    them, the size of its file system is the only limit.
    """
    if server.memory is None or not page_cache.has_cgroups(at):
        return ()
    bound = Bound.make(at, f"vmtax-{at.scratch.name.removeprefix('vmtax-')[:8]}-server-{next(_numbers)}")
    stack.callback(bound.undoing.undo)
    bound.set_most(server.memory)
    return bound.enter


def linked(on: Provisioned, subject: RunningSubject, serving: Sequence[tuple[PeerServer, Process]]) -> RunningSubject:
    """The subject with what it must know to use its servers. Raises MachineError if one is not ready in time."""
    link = subject.site.link
    if link is None or link.at_peer:
        return subject
    answer = next((_answer(on, process) for server, process in serving if server.answers), "")
    return replace(subject, site=replace(subject.site, link=replace(link, access=on.access, answer=answer)))


def _answer(on: Provisioned, process: Process) -> str:
    assert on.network is not None
    try:
        line = read_line(process.stdout, time.monotonic() + READY_SECONDS)
        why = "" if line.endswith(b"\n") else first_line(last_words(process))
    except (TimeoutError, TooMuch):
        why = "it says nothing"
    if why:
        raise MachineError(f"{on.network.at.path}: a server at the network peer did not start: {why}")
    return line.decode(errors="replace").strip()
