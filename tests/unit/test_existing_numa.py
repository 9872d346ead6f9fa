"""A guest that fits on one NUMA node of its host, and is not kept on one."""

from __future__ import annotations

from dataclasses import replace

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
ON_NODE_0 = "virsh edit web1: <vcpu cpuset='0-7'>2</vcpu>, <numatune><memory mode='preferred' nodeset='0'/></numatune>"


@pytest.mark.parametrize(
    ("text", "patch"),
    [
        (xml(), ON_NODE_0),
        (xml().replace("<vcpu>", "<vcpu cpuset='6-9'>"), ON_NODE_0),
        (xml().replace("<vcpu>", "<vcpu cpuset='8-9'>"), None),
        (xml(cpu=PINNED.format("2", "9")), ON_NODE_0),
        (xml(cpu=PINNED.format("8", "24")), None),
        (xml(cpu=PINNED.format("8", "24").replace("<vcpupin vcpu='1' cpuset='24'/>", "")), ON_NODE_0),
        (xml(cpu=CELLS), None),  # which may be spread
        (xml().replace("<vcpu>", "<vcpu placement='auto'>"), None),
        (
            xml().replace("<memory unit='GiB'>4<", "<memory unit='GiB'>20<"),
            "virsh edit web1: <vcpu cpuset='8-15,24-25'>2</vcpu>, <numatune><memory mode='preferred' nodeset='1'/>"
            "</numatune>",
        ),
        (xml().replace("<memory unit='GiB'>4<", "<memory unit='GiB'>40<"), None),  # on no node
        (xml().replace("<vcpu>2<", "<vcpu>11<"), None),
        (CONF, "qm set VMID --affinity 0-7"),
        (CONF + "affinity: 0-3\n", None),
        (CONF + "affinity: 0-3,8\n", "qm set VMID --affinity 0-7"),
        (CONF + "numa: 1\n", None),
        (CONF + "numa: 0\n", "qm set VMID --affinity 0-7"),
        (QEMU, "start it by: numactl --cpunodebind=0 --preferred=0 qemu-system-x86_64 …"),
        (QEMU + "-numa node,nodeid=0,cpus=0 -numa node,nodeid=1,cpus=1", None),
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


def test_a_running_qemu_is_where_its_process_may_run() -> None:
    script = {
        lambda argv: argv[-1].endswith("/cmdline"): Reply(QEMU.replace(" ", "\0")),
        lambda argv: argv[-1].endswith("/status"): Reply("Name:\tkvm\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n"),
    }
    guest = existing("qemu:4242", FakeMachine(answers=script))
    assert guest.host_cpus == frozenset(range(8)) and not list(node_advice(guest, NODES))
    assert list(node_advice(replace(guest, host_cpus=frozenset((7, 8))), NODES))
