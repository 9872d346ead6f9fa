"""Servers at the network peer get their secrets through a pipe, their memory is bounded, and they say that they are
ready.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.machine import MachineError
from vmtax.machine.local import LocalMachine
from vmtax.storage import page_cache
from vmtax.testbed.session.base import RunningSubject
from vmtax.testbed.subjects import servers
from vmtax.workload.site import Access, Link, PeerServer, Site

ACCESS = Access.random()
SAYS = ("sh", "-c", 'read -r user password; printf "%s %s\\n" "$(cat /proc/$$/cmdline | tr -d "\\0")" "$password"; cat')


@pytest.fixture
def local() -> Iterator[LocalMachine]:
    machine = LocalMachine()
    yield machine
    machine.close()


def peer(at: Any, *each: PeerServer) -> Any:
    def at_peer(argv: Sequence[str], capabilities: object, room: object) -> tuple[str, ...]:
        return ("env", f"ROOM={room}", *argv)

    return SimpleNamespace(
        network=SimpleNamespace(at=at), peer_servers=lambda number=1: each, at_peer=at_peer, access=ACCESS
    )


def subject(**link: Any) -> RunningSubject:
    machine = FakeMachine()
    return RunningSubject(Site(machine, "vm", 1, (), link=Link(machine, (), "10.77.0.1", 5201, **link)))


def test_what_a_client_must_know_comes_through_pipes_both_ways(local: LocalMachine) -> None:
    on = peer(local, PeerServer(("true",)), PeerServer(SAYS, ACCESS.line, answers=True))
    with contextlib.ExitStack() as stack:
        serving = servers.start(on, 1, stack)
        link = servers.linked(on, subject(), serving).site.link
        assert link is not None and link.access is ACCESS
        command, _, password = link.answer.rpartition(" ")
        assert password == ACCESS.password and ACCESS.password not in command
    assert all(process.poll() is not None for _, process in serving), "they end with the treatment"


@pytest.mark.parametrize(
    ("script", "why"), [("echo no room >&2; exit 3", "no room"), ("exit 0", "it says nothing"), ("printf half", "")]
)
def test_a_server_that_is_not_ready_is_one_line(local: LocalMachine, script: str, why: str) -> None:
    on = peer(local, PeerServer(("sh", "-c", script), ACCESS.line, answers=True))
    with contextlib.ExitStack() as stack:
        serving = servers.start(on, 1, stack)
        with pytest.raises(MachineError, match=f"^host: a server at the network peer did not start: .*{why}") as caught:
            servers.linked(on, subject(), serving)
        assert ACCESS.password not in str(caught.value)


def test_one_that_is_on_the_layer_itself_needs_nothing() -> None:
    before = subject(at_peer=True)
    assert servers.linked(peer(FakeMachine()), before, []) is before


@pytest.mark.parametrize("has", [True, False])
def test_the_memory_of_a_server_with_files_is_limited_where_that_can_be(has: bool) -> None:
    where = "/sys/fs/cgroup memory.max\n"
    at = FakeMachine(
        answers={
            page_cache.HIERARCHY: where if has else Reply(code=1),
            lambda argv: argv[0] in ("mkdir", "tee", "env") or argv[: len(page_cache.ENTER)] == page_cache.ENTER: "",
        }
    )
    on = peer(at, PeerServer(("keeps",), room=4096, memory=8192), PeerServer(("iperf3",)))
    with contextlib.ExitStack() as stack:
        servers.start(on, 1, stack)
        keeps, plain = at.processes
        assert plain.argv == ("env", "ROOM=None", "iperf3")
        assert keeps.argv[-3:] == ("env", "ROOM=4096", "keeps") and (keeps.argv[:3] == page_cache.ENTER[:3]) is has
        assert [text for argv, text in at.inputs if PurePosixPath(argv[-1]).name == "memory.max"] == ["8192"] * has
    assert not at.undo_list, "the cgroup is removed with the treatment"
    assert bool(servers.notes(on)) is not has
