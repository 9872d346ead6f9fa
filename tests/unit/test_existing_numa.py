"""A guest that fits on one NUMA node of its host, and is not kept on one."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine, Reply
from tests.unit.test_existing import CONF, QEMU, parsed, xml
from vmtax.existing.numa import HostNode, host_nodes, node_advice
from vmtax.existing.source import existing

GIB = 2**30
NODES = (
    HostNode(0, frozenset(range(0, 8)), 16 * GIB),
    HostNode(1, frozenset((*range(8, 16), 24, 25)), 32 * GIB),
)
PINNED = "<cputune><vcpupin vcpu='0' cpuset='{}'/><vcpupin vcpu='1' cpuset='{}'/></cputune>"
CELLS = "<cpu><numa><cell id='0' cpus='0' memory='1'/><cell id='1' cpus='1' memory='1'/></numa></cpu>"
TO = "<numatune><memory mode='preferred' nodeset='{}'/></numatune>"
ON_NODE_0 = f"virsh edit web1: <vcpu … cpuset='0-7'>, {TO.format(0)}"
ON_NODE_1 = f"virsh edit web1: <vcpu … cpuset='8-15,24-25'>, {TO.format(1)}"
PINS_TO_0 = f"virsh edit web1: only CPUs of 0-7 in every cpuset of <vcpu> and <vcpupin>, {TO.format(0)}"
BOUND = "<numatune><memory mode='strict' nodeset='{}'/></numatune>"


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        (xml(), ON_NODE_0),
        (xml().replace("<vcpu>", "<vcpu cpuset='6-9'>"), PINS_TO_0),
        (xml(cpu=BOUND.format("1")), "virsh edit web1: <vcpu … cpuset='8-15,24-25'>"),  # where its memory is already
        (xml(cpu=BOUND.format("0-1")), ON_NODE_0),
        (xml().replace("<vcpu>", "<vcpu cpuset='0-9,^3'>"), None),  # which is not known
        (xml().replace("<vcpu>", "<vcpu cpuset='8-9'>"), None),
        (xml(cpu=PINNED.format("2", "9")), PINS_TO_0),
        (xml(cpu=PINNED.format("8", "9").replace("vcpu='1'", "vcpu='2'")), ON_NODE_0),  # one that is plugged out
        (xml(cpu=PINNED.format("8", "24")), None),
        (xml(cpu=PINNED.format("8", "24").replace("<vcpupin vcpu='1' cpuset='24'/>", "")), ON_NODE_0),
        (xml(cpu=CELLS), None),  # which may be spread
        (xml().replace("<vcpu>", "<vcpu placement='auto'>"), None),
        (
            xml().replace("<memory unit='GiB'>4<", "<memory unit='GiB'>20<"),
            ON_NODE_1,
        ),
        (xml().replace("<memory unit='GiB'>4<", "<memory unit='GiB'>40<"), None),  # on no node
        (xml().replace("<vcpu>2<", "<vcpu>11<"), None),
        (CONF, "qm set VMID --affinity 0-7"),
        (CONF + "affinity: 0-3\n", None),
        (CONF + "affinity: 0-3,8\n", "qm set VMID --affinity 0-7"),
        (CONF + "affinity: 7-15\n", "qm set VMID --affinity 8-15,24-25"),
        (CONF + "affinity: 0-3,x\n", None),
        (CONF + "numa: 1\n", "qm set VMID --affinity 0-7"),  # a single node, which may be anywhere
        (CONF + "numa: 1\nsockets: 2\n", None),
        (CONF + "numa: 1\nnuma0: cpus=0-3,hostnodes=0,memory=2048,policy=bind\n", None),
        (CONF + "numa0: cpus=0-1,memory=1024\nnuma1: cpus=2-3,memory=1024\n", "qm set VMID --affinity 0-7"),
        (CONF + "numa: 0\n", "qm set VMID --affinity 0-7"),
        (QEMU, None),  # a command line does not say where it runs
    ],
)
def test_a_guest_that_fits_on_a_node_should_be_kept_on_one(text: str, patch: str | None) -> None:
    guest = parsed(text)
    assert [each.patch(guest) for each in node_advice(guest, NODES)] == ([patch] if patch else [])
    assert not list(node_advice(guest, NODES[:1])) and not list(node_advice(guest, ()))


def test_the_nodes_of_a_host_are_read() -> None:
    """A node without CPUs, such as one of slow memory, is left out; a host that says nothing has none."""
    meminfo = "Node {0} MemTotal:       {1} kB\nNode {0} MemFree:        100 kB\n"
    script = {
        lambda argv: argv[-1].endswith("/online"): Reply("0-2\n"),
        lambda argv: argv[-1].endswith("/node0/meminfo"): Reply("0-7\n" + meminfo.format(0, 16 << 20)),
        lambda argv: argv[-1].endswith("/node1/meminfo"): Reply("8-15,24-25\n" + meminfo.format(1, 32 << 20)),
        lambda argv: argv[-1].endswith("/node2/meminfo"): Reply("\n" + meminfo.format(2, 64 << 20)),
    }
    assert host_nodes(FakeMachine(answers=script)) == NODES
    assert host_nodes(FakeMachine(answers={lambda argv: True: Reply(code=1)})) == ()


def threads(**allowed: str) -> str:
    """What the kernel says of a QEMU's threads."""
    names = {"main": "qemu-system-x86", "kvm0": "CPU 0/KVM", "kvm1": "CPU 1/KVM", "tcg0": "CPU 0/TCG"}
    return "".join(f"Name:\t{names[name]}\nCpus_allowed_list:\t{cpus}\n" for name, cpus in allowed.items())


@pytest.mark.parametrize(
    ("said", "more", "is_advised"),
    [
        (threads(main="0-25", kvm0="3", kvm1="4"), "", False),
        (threads(main="3", tcg0="0-9"), "", True),
        (threads(kvm0="3", kvm1="9"), "", True),
        (threads(kvm0="0-25"), "-numa node,nodeid=0,cpus=0 -numa node,nodeid=1,cpus=1", False),
        (threads(main="0-25"), "", False),  # its threads have no names
        ("", "", False),
    ],
)
def test_a_running_qemu_is_where_the_threads_of_its_cpus_may_run(said: str, more: str, is_advised: bool) -> None:
    line = f"{QEMU} {more}".strip().replace(" ", "\0")
    script = {lambda argv: argv[-1].endswith("/cmdline"): Reply(line), lambda argv: argv[0] == "grep": Reply(said)}
    guest = existing("qemu:4242", FakeMachine(answers=script))
    patches = [each.patch(guest) for each in node_advice(guest, NODES)]
    assert patches == ["start it by: numactl --cpunodebind=0 --preferred=0 qemu-system-x86_64 …"] * is_advised
