"""Several iothreads of one disk: which guests can have them."""

from __future__ import annotations

import pytest

from tests.fake_machine import FakeMachine
from vmtax.hypervisor import Qemu
from vmtax.plan.schema import parse
from vmtax.plan.vary import varied
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.disks import DiskPart

PLAN = "{name: x, layers: [vm], workloads: [disk: {size: 64MiB, patterns: [randread-4k-qd1]}]}"
HAS = "  iothread-vq-mapping=<list> - IOThread virtqueue mapping"


@pytest.mark.parametrize(
    ("changes", "options", "why"),
    [
        (("disk.iothread=on",), "", ""),
        (("disk.iothread=off",), "", ""),
        (("disk.iothread=2",), HAS, ""),
        (
            ("disk.iothread=2",),
            "  iothread=<link>",
            "disk.iothread=2: QEMU 8.2 has no iothread-vq-mapping for virtio-blk",
        ),
        (
            ("disk.iothread=2", "disk.bus=virtio-scsi"),
            "",
            "disk.iothread=2: QEMU 8.2 has no iothread-vq-mapping for virtio-scsi",
        ),
        (("disk.iothread=4",), HAS, "disk.iothread=4 takes as many queues, and the disk has 2: add disk.queues=4"),
        (("disk.iothread=4", "disk.queues=2"), HAS, "disk.iothread=4 takes as many queues"),
        (("disk.iothread=4", "disk.queues=4"), HAS, ""),
        (("disk.iothread=4", "guest.vcpus=4"), HAS, ""),
        (("disk.iothread=4", "guest.vcpus=3"), HAS, "disk.iothread=4 takes as many queues, and the disk has 3"),
    ],
)
def test_several_iothreads_take_as_many_queues_and_a_qemu_that_deals_them_out(
    changes: tuple[str, ...], options: str, why: str
) -> None:
    host = FakeMachine("host", {lambda argv: argv[-1].endswith(",help"): options})
    plan = varied(parse(PLAN, "x"), changes)
    request = Request(host, plan, plan.treatments()[0], qemu=Qemu(("qemu",), "8.2", "8.2"))
    reasons = list(DiskPart().lacking(request).values())
    assert len(reasons) == bool(why) and all(reason.startswith(why) for reason in reasons)


@pytest.mark.parametrize(("level", "why"), [("2", None), ("4", "disk.iothread=4 takes as many queues")])
def test_queues_of_nested_guests_are_counted_and_the_hosts_qemu_is_not_asked(level: str, why: str | None) -> None:
    plan = varied(parse(PLAN.replace("[vm]", "[host, nested]"), "x"), (f"disk.iothread=off,{level}",))
    request = Request(FakeMachine("host"), plan, plan.treatments()[0], qemu=Qemu(("qemu",), "8.2", "8.2"))
    reasons = DiskPart().lacking(request)
    assert list(reasons) == ([f"nested disk.iothread={level}"] if why else [])
    assert all(reason.startswith(str(why)) for reason in reasons.values())
