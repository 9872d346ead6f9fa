"""A disk from a server of NBD on the guest's host: which plans can have it, and the arguments of server and QEMU."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_spec import CONFINED, PLAIN
from vmtax.core.records import Treatment
from vmtax.design.disk import CacheMode, DiskServer, DiskSettings
from vmtax.hypervisor import Drive
from vmtax.hypervisor.qemu.argv import arguments, reach
from vmtax.machine import MachineError
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data
from vmtax.plan.vary import varied
from vmtax.report.wording.guest_settings import _disk
from vmtax.testbed.parts import Order, Request, serving
from vmtax.testbed.parts.serving import ServingPart, options, until_it_serves

DISK = {"name": "disk", "parameters": {"patterns": ["randread-4k-qd1"]}}
SERVED = DiskSettings(cache=CacheMode.NONE, aio="native", format="qcow2", discard="unmap", server=DiskServer.NBD)


def plan(*vary: str, workload: str = "") -> Plan:
    more = [{"name": workload, "parameters": {}}] if workload else []
    return varied(from_data({"name": "p", "layers": ["host", "vm"], "workloads": [DISK, *more]}), vary)


def test_the_host_and_its_disk_are_the_same_whoever_opens_the_guests() -> None:
    made = plan("disk.server=none,nbd", "disk.cache=none")
    assert [one.name for one in made.treatments()[0]] == ["host", "vm", "vm disk.server=nbd"]


@pytest.mark.parametrize(
    ("vary", "why"),
    [
        (("disk.server=nbd", "disk.snapshots=1"), "disk.server=nbd needs disk.snapshots=0"),
        (("disk.server=nbd", "disk.snapshot_during=backup"), "needs disk.snapshot_during=none"),
        (("disk.server=nbd", "disk.share=9p"), "needs disk.share=none"),
        (("disk.server=nbd", "disk.page_cache=bounded", "disk.cache=writeback"), "needs disk.page_cache=unbounded"),
        (("disk.server=iscsi",), "iscsi"),
    ],
)
def test_what_a_server_cannot_have_is_refused(vary: tuple[str, ...], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        plan(*vary)


def test_guests_that_are_cut_or_moved_open_their_disks_themselves() -> None:
    made = plan("disk.server=none,nbd", workload="durability")
    request = Request(SimpleNamespace(path="host"), made, made.treatments()[0])  # type: ignore[arg-type]
    ((name, why),) = ServingPart().lacking(request).items()
    assert name == "vm disk.server=nbd" and "the workload durability needs a QEMU that has the disk itself" in why
    assert "another process on the same host" in ServingPart().notes(request)[0]
    usual = plan("disk.server=none")
    assert not ServingPart().notes(replace(request, plan=usual, treatments=usual.treatments()[0]))


def test_the_server_has_the_settings_and_qemu_its_socket_alone() -> None:
    drive = Drive("/d/a,1.qcow2", SERVED, served="/run/s,1/socket")
    assert " ".join(options(drive)) == (
        "--persistent --format qcow2 --cache none --aio native --discard unmap /d/a,1.qcow2"
    )
    files = PurePosixPath("/run/initrd"), PurePosixPath("/run/console")
    spec = replace(PLAIN, hypervisor=CONFINED, disks=(drive,))
    (word,) = [word for word in arguments(spec, *files) if "id=data" in word]
    assert word.startswith("if=none,id=data,format=raw,cache=none,discard=unmap,")
    assert word.endswith("file.driver=nbd,file.server.type=unix,file.server.path=/run/s,,1/socket")
    assert "/run/s,1" in reach(spec, *files).write and drive.path not in reach(spec, *files).write
    device = replace(spec, disks=(replace(drive, path="/dev/vg/a", is_device=True),))
    assert "/dev/vg/a" not in reach(device, *files).devices


def test_it_is_said_of_the_guest() -> None:
    levels = {"disk.volume": "plain", "disk.filesystem": "as-is", "disk.format": "raw", "disk.cache": "none"}
    assert "from a server of NBD" in list(_disk({**levels, "disk.server": "nbd", "disk.bus": "virtio"}))


class _Host:
    """A host on which the server starts, and ends at once or makes its socket."""

    path, scratch = "host", PurePosixPath("/run/x")

    def __init__(self, *, serves: bool) -> None:
        self.serves, self.started, self.ended = serves, [], []

    def run(self, *argv: str) -> str:
        return "/run/x/nbd-data-1\n"

    def try_run(self, *argv: str) -> None:
        self.ended.append(argv[0])

    def start(self, *argv: str) -> Any:
        self.started.append(argv)
        done = SimpleNamespace(poll=lambda: None if self.serves else 1, stop=lambda: self.ended.append("server"))
        return SimpleNamespace(**vars(done), last=lambda: "qemu-nbd: Failed to open\n")

    def succeeds(self, *argv: str) -> bool:
        return self.serves


def test_each_disk_under_test_has_a_server_until_the_guest_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    host = _Host(serves=True)
    on: Any = SimpleNamespace(host=host, tree="/", disks=object(), fills_disks=True, is_root=True)
    on.placed = SimpleNamespace(bubblewrap=("bwrap",))
    spec = replace(PLAIN, disks=(Drive("/d/1", SERVED), Drive("/d/root", SERVED, name="other")))
    order: Any = Order(host, spec, None)  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        made = ServingPart().shape(on, Treatment("vm", "vm", {"disk.server": "nbd"}), order, stack)
        assert [each.served for each in made.spec.disks] == ["/run/x/nbd-data-1/socket", ""]
        assert ServingPart().shape(on, Treatment("vm", "vm", {}), order, stack) is order
        assert len(host.started) == 1 and not host.ended
    assert host.ended == ["server", "rm"]


def test_a_server_that_ends_is_an_error_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "last_words", lambda process: process.last())
    host: Any = _Host(serves=False)
    with pytest.raises(MachineError, match="host: qemu-nbd does not serve: qemu-nbd: Failed to"):
        until_it_serves(host, host.start("qemu-nbd"), PurePosixPath("/run/x/socket"), "qemu-nbd")
