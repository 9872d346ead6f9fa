"""Memory of another NUMA node: where it may come from, and whether it did."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import FakeMachine
from tests.topologies import Cores, files, printed
from vmtax.design.guest import MemoryNode
from vmtax.hypervisor import BootFailed
from vmtax.plan.schema import parse as parse_plan
from vmtax.plan.vary import varied
from vmtax.testbed.host.cpus import QUESTION, CpuTopology, parse
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.numa import NumaMemory, bytes_by_node, nodes_of, prove

PLAN = "{name: x, layers: [vm], guest: {vcpus: 2, memory: 1GiB}, workloads: [memory: {cases: [stream]}]}"
TWO = (Cores(4, node=0, socket=0), Cores(4, node=1, socket=1))
GIB = 2**30
MAPS = """\
55d0 default file=/usr/bin/qemu-system-x86_64 mapped=900 N0=900 kernelpagesize_kB=4
7f00 bind:1 anon=262144 dirty=262144 active=0 N1=262144 kernelpagesize_kB=4
7f40 bind:1 file=/memfd:memory-backend-memfd\\040(deleted) dirty=100 mapped=100 N1=90 N0=10 kernelpagesize_kB=4
7f80 bind:1 huge anon=3 dirty=3 N0=3 kernelpagesize_kB=2048
7ff0 default stack anon=1 N0=1 kernelpagesize_kB=4
7ff1 default
"""


def topology(*cores: Cores, rooms: tuple[int, ...] = ()) -> CpuTopology:
    read = parse(files(*cores))
    return read if not rooms else CpuTopology(read.cpus, read.isolated, tuple(enumerate(rooms)))


def test_memory_is_counted_on_each_node_but_for_programs() -> None:
    assert bytes_by_node(MAPS) == {0: 4096 * 11 + 3 * 2**21, 1: 4096 * (262144 + 90)}
    assert bytes_by_node("") == {} == bytes_by_node("cat: /proc/7/numa_maps: No such file")


@pytest.mark.parametrize(
    ("rooms", "home", "wanted", "nodes"),
    [
        ((9, 9), 0, MemoryNode.REMOTE, (1,)),
        ((9, 9), 1, MemoryNode.REMOTE, (0,)),
        ((9, 5, 7), 0, MemoryNode.REMOTE, (2,)),  # the one with the most room
        ((9, 9), 0, MemoryNode.INTERLEAVED, (0, 1)),
        ((9, 9), None, MemoryNode.INTERLEAVED, ()),
        ((9,), 0, MemoryNode.REMOTE, ()),
    ],
)
def test_nodes(rooms: tuple[int, ...], home: int | None, wanted: MemoryNode, nodes: tuple[int, ...]) -> None:
    assert nodes_of(topology(*TWO, rooms=rooms), home, wanted) == nodes


def _binds(argv: Sequence[str]) -> bool:
    """Whether memory is tried on a node."""
    return argv[-1] == "true"


@pytest.mark.parametrize(
    ("cores", "changed", "levels", "why"),
    [
        (TWO, {}, "local,remote,interleaved", ""),
        (TWO, {}, "local", ""),
        (TWO[:1], {}, "remote", "memory.node=remote needs a host with two NUMA nodes, and this one has one"),
        (TWO[:1], {}, "local", ""),
        (
            (Cores(1, node=0), Cores(1, node=1)),
            {},
            "remote",
            "memory.node=remote needs CPUs for the guests that",
        ),
        (TWO, {"room": "500000"}, "remote", "memory.node=remote takes 1"),
        (TWO, {"room": "500000"}, "local", "memory.node=local cannot be had: node 0 has"),
        ((Cores(1, node=0), Cores(1, node=1)), {}, "local", "memory.node=local cannot be had: it is bound for all"),
    ],
)
def test_hosts_that_cannot_give_such_memory(cores: Any, changed: dict[str, str], levels: str, why: str) -> None:
    host = FakeMachine("host", {QUESTION: printed(files(*cores, **changed)), _binds: ""})
    plan = varied(parse_plan(PLAN, "x"), (f"memory.node={levels}",))
    reasons = list(NumaMemory().lacking(Request(host, plan, plan.treatments()[0])).values())
    assert bool(reasons) == bool(why) and all(reason.startswith(why) for reason in reasons)


def test_nodes_are_those_of_one_host() -> None:
    plan = varied(parse_plan(PLAN, "x"), ("memory.node=local,remote",))
    host = FakeMachine("host", {QUESTION: printed(files(*TWO)), _binds: ""})
    request = Request(host, plan, plan.treatments()[0], destination=FakeMachine("other"))
    assert list(NumaMemory().lacking(request)) == ["vm memory.node=remote"]


@pytest.mark.parametrize(
    ("text", "nodes", "why"),
    [
        ("a bind:1 anon=9 N1=95 N0=5 kernelpagesize_kB=4", (1,), ""),
        ("a bind:1 anon=9 N1=50 N0=50 kernelpagesize_kB=4", (1,), "its memory is"),
        ("a bind:1 anon=9 N0=100 kernelpagesize_kB=4", (1,), "its memory is"),
        ("a interleave:0-1 anon=9 N0=50 N1=45 kernelpagesize_kB=4", (0, 1), ""),
        ("a interleave:0-1 anon=9 N0=90 N1=10 kernelpagesize_kB=4", (0, 1), "its memory is"),
        ("", (1,), "the kernel does not say"),
    ],
)
def test_a_boot_whose_memory_is_elsewhere_has_failed(text: str, nodes: tuple[int, ...], why: str) -> None:
    host = FakeMachine("host", {("cat", "/proc/7/numa_maps"): text})
    guest: Any = SimpleNamespace(path="host/vm", threads=lambda parent: [SimpleNamespace(id=7)])
    with pytest.raises(BootFailed, match=why) if why else contextlib.nullcontext():
        prove(host, guest, nodes)
