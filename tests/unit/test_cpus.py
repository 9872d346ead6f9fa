"""Every layer gets equal CPUs, chosen once: on machines that are not here, by the files of their kernels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests import rights
from tests.fake_machine import FakeMachine
from tests.topologies import ALDER, Cores, files, lay, printed
from vmtax.core.units import cpu_numbers
from vmtax.machine.reader import LocalReader
from vmtax.meter.text import parse_files
from vmtax.plan.schema import parse as plan
from vmtax.testbed.host.cpus import QUESTION, CpuTopology, parse, question, why_unbound
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.equal import EqualCpus

RAPTOR = (Cores(16, 2, "cpu_core", 5.5, 3.0, preferred=0.3), Cores(16, 1, "cpu_atom", 4.3, 2.2))  # i9-13900K
METEOR = (  # Core Ultra 7 155H: low-power efficiency cores are cpu_atom too, and have no third-level cache
    Cores(12, 2, "cpu_core", 4.5, 1.4, preferred=0.3),
    Cores(8, 1, "cpu_atom", 3.8, 0.9),
    Cores(2, 1, "cpu_atom", 2.5, 0.7, cache=""),
)
SMALL = (Cores(2, 2, "cpu_core", 4.4, 1.2), Cores(4, 1, "cpu_atom", 3.3, 0.9))  # i3 with one core with two threads
RYZEN = (Cores(16, 2, top=4.85, preferred=0.2), Cores(16, 2, top=4.7))  # 5950X with preferred cores
X3D = (Cores(16, 2, top=5.25, cache="98304K"), Cores(16, 2, top=5.7, cache="32768K"))  # 7950X3D: two kinds of cache
STRIX = (Cores(8, 2, top=5.16, cache="16384K"), Cores(16, 2, top=3.3, cache="8192K"))  # Zen 5 and Zen 5c
BIG_LITTLE = (Cores(4, capacity=381, top=1.8), Cores(4, capacity=1024, top=2.3))  # RK3588
DYNAMIC = (Cores(4, capacity=290), Cores(3, capacity=760), Cores(1, capacity=1024))  # three kinds
XEON = (Cores(32, 2, base=2.0), Cores(32, 2, base=2.0, node=1, socket=1))  # two sockets
EPYC = tuple(Cores(16, 2, top=3.5, node=node) for node in range(4))  # NPS4
SPEED_SELECT = (Cores(4, base=2.7, top=3.9), Cores(12, base=2.1, top=3.9))  # SST-BF: some cores have a higher base
TURBO_MAX = (Cores(10, base=3.0, top=3.5, preferred=0.5),)  # i7-6950X: one core reaches 14 % more
LARGE = tuple(Cores(96, node=node, socket=node, base=2.0) for node in range(8))  # 768 CPUs
OWN_SIXTEEN = "0,2,4,6,8,10,12,14,1,3"


@pytest.mark.parametrize(
    ("cores", "changed", "count", "chosen", "others", "why"),
    [
        (ALDER, {}, 2, "0,2", 4, ""),
        (ALDER, {}, 8, "0,2,4,6,8,10,12,14", 4, ""),
        (ALDER, {}, 10, OWN_SIXTEEN, 4, ""),
        (ALDER, {}, 18, "0,2,4,6,8,10,12,14,16,17,18,19,1,3,5,7,9,11", 2, "(16 of cpu_core, up to 5.0 GHz, 4 of cpu"),
        (ALDER, {"allowed": "16-19"}, 2, "16,17", 0, ""),
        (ALDER, {"allowed": "15-19"}, 2, "16,17", 1, ""),
        (
            ALDER,
            {"allowed": "15-17"},
            3,
            "15,16,17",
            0,
            "no 3 CPUs are alike (1 of cpu_core, up to 4.9 GHz, 2 of cpu_a",
        ),
        (ALDER, {"online": "0,2,4,6,8,10,12,14,16-19"}, 4, "0,2,4,6", 4, ""),
        (RAPTOR, {}, 4, "0,2,4,6", 16, ""),
        (RAPTOR, {}, 12, "16,17,18,19,20,21,22,23,24,25,26,27", 16, ""),
        (METEOR, {}, 2, "0,2", 10, ""),
        (METEOR, {}, 7, "12,13,14,15,16,17,18", 14, ""),
        (METEOR, {"allowed": "12-21"}, 2, "12,13", 2, ""),
        (METEOR, {"allowed": "18-21"}, 4, "18,19,20,21", 0, "no 4 CPUs are alike"),
        (SMALL, {}, 1, "0", 4, ""),
        (SMALL, {}, 4, "2,3,4,5", 2, ""),
        (RYZEN, {}, 4, "0,2,4,6", 0, ""),
        (RYZEN, {"far": "1"}, 4, "0,1,2,3", 0, ""),
        (X3D, {}, 2, "0,2", 16, ""),
        (STRIX, {}, 4, "0,2,4,6", 16, ""),
        (BIG_LITTLE, {}, 2, "4,5", 4, ""),
        (DYNAMIC, {}, 2, "4,5", 5, ""),
        (DYNAMIC, {}, 1, "7", 7, ""),
        (DYNAMIC, {}, 5, "0,1,2,3,4", 3, "no 5 CPUs are alike"),
        (XEON, {}, 4, "0,2,4,6", 32, ""),
        (XEON, {"far": "1"}, 4, "0,1,2,3", 32, ""),
        (XEON, {"allowed": "30-63"}, 4, "32,34,36,38", 2, ""),
        (XEON, {}, 40, ",".join(map(str, [*range(0, 64, 2), *range(1, 16, 2)])), 0, "the 40 CPUs lie on 2 NUMA nodes"),
        (EPYC, {}, 8, "0,2,4,6,8,10,12,14", 48, ""),
        (EPYC, {}, 12, "0,2,4,6,8,10,12,14,1,3,5,7", 48, ""),
        (EPYC, {"allowed": "0-1,16-17"}, 2, "0,1", 2, ""),
        (SPEED_SELECT, {}, 2, "0,1", 12, ""),
        (SPEED_SELECT, {}, 8, "4,5,6,7,8,9,10,11", 4, ""),
        (TURBO_MAX, {}, 2, "0,1", 0, ""),
        ((Cores(2, top=3.9), Cores(2, base=2.1, top=3.9)), {}, 2, "0,1", 0, ""),  # one base frequency tells nothing
        ((Cores(4),), {}, 2, "0,1", 0, ""),
        ((Cores(8, 2),), {"online": "0,2,4,6"}, 4, "0,2,4,6", 0, ""),
        ((Cores(8),), {"online": "0-1,4-7"}, 3, "0,1,4", 0, ""),
        ((Cores(8),), {"isolated": "0-3"}, 2, "4,5", 4, ""),
        (
            (Cores(8),),
            {"isolated": "0-3", "allowed": "0-3"},
            2,
            "0,1",
            0,
            "spreads no processes over the isolated CPUs",
        ),
        ((Cores(8, 2),), {"allowed": "3,5,6"}, 2, "3,5", 0, ""),
        ((Cores(1),), {}, 1, "0", 0, ""),
        ((Cores(2),), {}, 8, "0,1", 0, ""),
        (LARGE, {}, 64, ",".join(map(str, range(64))), 672, ""),
    ],
)
def test_the_cpus_of_all_layers_are_alike(
    cores: tuple[Cores, ...], changed: dict[str, str], count: int, chosen: str, others: int, why: str, tmp_path: Path
) -> None:
    lay(tmp_path, files(*cores, **changed))
    said = LocalReader().try_run(*question(str(tmp_path))).stdout.replace(str(tmp_path), "")
    assert said and parse(parse_files(said)) == parse(parse_files(printed(files(*cores, **changed))))
    found = parse(parse_files(said)).equal(count)
    assert (found.text, found.others) == (chosen, others)
    assert why in found.why and bool(found.why) == bool(why)
    assert bool(found.said) == bool(others or why), "nothing is said where there is nothing to choose"


def test_without_any_topology_the_first_cpus_are_taken_as_they_are_numbered() -> None:
    bare = parse({"/proc/self/status": "Cpus_allowed_list:\t2-3,8"})
    assert bare.equal(2).cpus == (2, 3) and bare.equal(2).said == "" and bare.numbers == [2, 3, 8]
    assert parse({}).equal(2).cpus == () and parse({"/proc/self/status": "?"}) == CpuTopology()


@pytest.mark.parametrize(
    ("cores", "count", "shared"), [(ALDER, 8, False), (ALDER, 10, True), (SMALL, 2, False), (RYZEN, 17, True)]
)
def test_two_threads_of_one_core_are_known_as_that(cores: tuple[Cores, ...], count: int, shared: bool) -> None:
    assert parse(files(*cores)).equal(count).shared is shared


def host(*cores: Cores, **changed: str) -> FakeMachine:
    return FakeMachine(answers={QUESTION: printed(files(*cores, **changed)), rights.asked: rights.answer()})


def asked(machine: FakeMachine, vcpus: int = 2) -> Request:
    one = plan(f"name: x\nlayers: [host, vm]\nguest: {{vcpus: {vcpus}, memory: 512MiB}}\nworkloads: [chess]\n")
    return Request(machine, one, one.treatments()[0])


def test_the_choice_is_said_before_a_run_and_beside_its_result() -> None:
    said = "CPUs 0,2 (cpu_core, up to 5.0 GHz) for every layer; guests keep off 4 other CPUs"
    assert EqualCpus().announced(asked(host(*ALDER))) == [said]
    assert EqualCpus().notes(asked(host(*ALDER))) == [f"{said}."]
    assert EqualCpus().announced(asked(host(Cores(4)))) == []
    (line,) = EqualCpus().announced(asked(host(*XEON)))
    assert line == "CPUs 0,2 (node 0) for every layer; guests keep off 32 other CPUs"


def test_memory_is_bound_to_the_node_of_the_cpus_where_it_has_room() -> None:
    lines = EqualCpus().announced(asked(host(*XEON, room="1000")))
    assert lines[1].startswith("memory is not bound to the NUMA node of the CPUs: node 0 has 1 MiB of memory available")
    refused = FakeMachine(
        answers={
            QUESTION: printed(files(*XEON)),
            rights.asked: rights.answer(command=("run", "", "set_mempolicy: Operation not permitted")),
        }
    )
    assert "set_mempolicy: Operation not permitted" in EqualCpus().announced(asked(refused))[1]
    one = parse(files(Cores(4)))
    assert why_unbound(FakeMachine(), one, one.equal(2), 2**60) == "", "there is one node"


@pytest.mark.parametrize(
    ("cores", "guests", "vcpus", "spread"),
    [
        (XEON, "[1]", 2, 0),
        (XEON, "[1]", 32, 0),
        (XEON, "[1]", 40, 40),
        (XEON, "[1, 4]", 2, 0),
        (XEON, "[1, 12, 16]", 3, 48),
        (XEON, "[8]", 4, 0),
        (EPYC, "[1, 2]", 8, 0),
        (EPYC, "[1, 6]", 8, 48),
        (LARGE, "[8]", 12, 0),
        (LARGE, "[12]", 12, 144),
        (ALDER, "[1, 4]", 4, 0),
        ((Cores(4),), "[1, 3]", 2, 0),
        ((Cores(64),), "[1]", 64, 0),
    ],
)
def test_memory_is_bound_for_all_guests_of_a_plan_or_it_is_said_that_it_is_for_none(
    cores: tuple[Cores, ...], guests: str, vcpus: int, spread: int
) -> None:
    machine = host(*cores, room=str(2**40))
    text = f"name: x\nlayers: [vm]\nguest: {{vcpus: {vcpus}, memory: 512MiB}}\nworkloads: [chess]\n"
    many = plan(f"{text}factors: {{guest.count: {guests}}}\n")
    lines = EqualCpus().announced(Request(machine, many, many.treatments()[0]))
    said = (
        "memory is not bound to the NUMA node of the CPUs: it is bound for all guests of a plan or for none, and"
        f" no node has their {spread} CPUs"
    )
    assert [line for line in lines if line.startswith("memory")] == ([said] if spread else [])
    topology = parse(files(*cores, room=str(2**40)))
    assert bool(why_unbound(machine, topology, topology.equal(vcpus * max(json.loads(guests))), 2**20)) == bool(spread)


def test_no_choice_depends_on_how_cpus_are_numbered() -> None:
    """Reversed: the slow cores come first, as on some hybrid processors and most big.LITTLE ones."""
    for cores in (ALDER, METEOR, STRIX, DYNAMIC):
        found = parse(files(*cores[::-1]))
        kinds = {cpu.type for cpu in found.cpus if cpu.number in found.equal(1).cpus}
        assert kinds == {max(cpu.type for cpu in found.cpus)}
        assert replace(found.equal(1), cpus=()).others == parse(files(*cores)).equal(1).others
    assert cpu_numbers(parse(files(*ALDER[::-1])).equal(2).text) == [4, 6]
