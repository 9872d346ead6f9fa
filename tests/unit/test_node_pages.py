"""Huge pages of the nodes that a plan names: how many each node gives, and what is said where it does not."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine, Reply, Scripted
from tests.topologies import NODE, Cores, files, printed
from vmtax.core.records import Treatment
from vmtax.plan.schema import parse
from vmtax.plan.vary import varied
from vmtax.testbed.host.cpus import QUESTION
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.node_pages import NodePages
from vmtax.testbed.parts.numa import NumaMemory
from vmtax.testbed.parts.pages import Pages

TWO = (Cores(4, node=0, socket=0), Cores(4, node=1, socket=1))
PLAN = "{{name: x, layers: [vm], guest: {{vcpus: 2, memory: {}}}, workloads: [memory: {{cases: [stream]}}]}}"
ALL = "memory.node=local,remote,interleaved"


def pools(*counts: tuple[int, int], kb: int = 2048) -> str:
    """What the kernel says of each node's pages: how many there are, and how many are free."""
    return printed(
        {
            f"{NODE}/node{node}/hugepages/hugepages-{kb}kB/{name}_hugepages": str(value)
            for node, (total, free) in enumerate(counts)
            for name, value in (("nr", total), ("free", free), ("surplus", 0))
        }
    )


def host(*said: str, room: int = 64_000_000, user: str = "0", tee: Scripted = "", nodes: int = 2) -> FakeMachine:
    """Room: kB that each node has free."""
    return FakeMachine(
        "host",
        {
            QUESTION: printed(files(*TWO[:nodes], room=str(room))),
            lambda argv: "/hugepages/" in argv[-1] and argv[0] == "sh": [*said] if len(said) > 1 else said[0],
            lambda argv: argv[0] == "tee": tee,
            lambda argv: argv[-1] == "true": "",
            ("id", "-u"): user,
            lambda argv: argv[0] == "grep": "",
            lambda argv: argv[:2] == ("sh", "-c") and "GIVE" not in argv[2]: "",
        },
    )


def asked(machine: FakeMachine, *changes: str, memory: str = "1GiB") -> Request:
    plan = varied(parse(PLAN.format(memory), "x"), changes)
    treatments: list[Treatment] = plan.treatments()[0]
    return Request(machine, plan, treatments)


def settings(machine: FakeMachine) -> list[tuple[str, str]]:
    """Which settings were written, with what."""
    return [(argv[1].removeprefix(NODE), text) for argv, text in machine.inputs if argv[0] == "tee"]


def test_each_node_is_asked_for_what_its_guests_take_at_most() -> None:
    request = asked(host(pools((0, 0), (0, 0))), ALL, "memory.backing=2MiB")
    assert NodePages().announced(request) == [
        f"512 pages of 2MiB (1.0 GiB) of NUMA node {node}, for the whole run; given back" for node in (0, 1)
    ]
    assert Pages().announced(request) == [], "none is surplus, of any node"
    assert NodePages().lacking(request) == {} and NumaMemory().lacking(request) == {}
    only = asked(host(pools((0, 0), (0, 0))), "memory.node=interleaved", "memory.backing=2MiB", "guest.count=2")
    assert [line.split()[0] for line in NodePages().announced(only)] == ["512", "512"]
    without = asked(host(pools((0, 0), (0, 0))), "memory.backing=2MiB")
    assert NodePages().announced(without) == [] and len(Pages().announced(without)) == 1


def test_pages_are_added_to_those_that_others_have_and_given_back() -> None:
    machine = host(pools((10, 4), (0, 0)), pools((518, 512), (0, 0)))
    assert NodePages().take(asked(machine, "memory.node=local", "memory.backing=2MiB")) == {}
    pool = "/node0/hugepages/hugepages-2048kB/nr_hugepages"
    assert settings(machine) == [(pool, "518")]
    (undo,) = machine.undo_list
    assert isinstance(undo.what, tuple) and undo.what[-3:] == (f"{NODE}{pool}", "10", "518")
    enough = host(pools((512, 512), (0, 0)))
    assert NodePages().take(asked(enough, "memory.node=local", "memory.backing=2MiB")) == {}
    assert settings(enough) == [] and enough.undo_list == []


@pytest.mark.parametrize(
    ("tee", "given", "why"),
    [
        ("", (300, 300), "memory.backing=1GiB takes 2 pages of node 1, and the kernel could give only 1 there"),
        (Reply(code=1), (0, 0), "memory.backing=1GiB: only root may have huge pages made (tee "),
    ],
)
def test_a_node_that_gives_too_few_keeps_its_own(tee: Scripted, given: tuple[int, int], why: str) -> None:
    machine = host(*(pools((0, 0), (each, each), kb=2**20) for each in (0, min(given[0], 1))), tee=tee)
    request = asked(machine, "memory.node=remote", "memory.backing=1GiB", memory="2GiB")
    (said,) = NodePages().take(request).values()
    assert said.startswith(why) and machine.undo_list == [] and len(machine.undone) == 1


@pytest.mark.parametrize(
    ("changes", "machine", "why"),
    [
        (
            (ALL, "memory.backing=2MiB"),
            host(pools((0, 0), (0, 0)), room=2**20),
            "memory.node: 1.0 GiB of huge pages and",
        ),
        ((ALL, "memory.backing=2MiB"), host(pools((0, 0), (0, 0)), room=3 * 2**19), ""),
        ((ALL, "memory.backing=thp,2MiB"), host(pools((0, 0), (0, 0)), room=2 * 2**20), "memory.node: 1.0 GiB of huge"),
        ((ALL, "memory.backing=2MiB"), host(pools((512, 512), (512, 512)), room=3 * 2**19), ""),
        ((ALL, "memory.backing=2MiB"), host(""), "memory.backing=2MiB: the host's CPU or kernel has no pages of"),
        ((ALL, "memory.backing=2MiB"), host(pools((0, 0), (0, 0)), user="7"), "memory.backing=2MiB: only root may"),
        ((ALL, "memory.backing=2MiB"), host(pools((512, 512), (512, 512)), user="7"), ""),
    ],
)
def test_nodes_that_cannot_give_them_are_refused_with_the_sum(
    changes: tuple[str, ...], machine: FakeMachine, why: str
) -> None:
    reasons = NodePages().lacking(asked(machine, *changes))
    assert bool(reasons) == bool(why) and all(reason.startswith(why) for reason in reasons.values()), reasons


def test_one_node_has_the_pages_of_the_whole_host() -> None:
    request = asked(host("", nodes=1), "memory.node=local,remote", "memory.backing=2MiB")
    assert NodePages().announced(request) == [] and len(Pages().announced(request)) == 1
    assert list(NumaMemory().lacking(request)) == ["vm memory.node=remote"]
