"""A directory of the host in place of a disk: which plans may ask for it, QEMU's options, and what is said of it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_spec import CONFINED, PLAIN
from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings, Share
from vmtax.design.features import documented_durability
from vmtax.hypervisor.qemu.argv import arguments, reach
from vmtax.hypervisor.spec import SharedDirectory
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data
from vmtax.plan.vary import varied
from vmtax.recommend.disk import DiskKind
from vmtax.report.wording.guest_settings import _disk
from vmtax.storage import Backing
from vmtax.testbed.host.disks import has_disk
from vmtax.testbed.parts import Order, Request, sharing
from vmtax.testbed.parts.disks import DiskPart
from vmtax.testbed.parts.sharing import SharingPart

DISK = {"name": "disk", "parameters": {"patterns": ["randread-4k-qd1"]}}


def plan(*vary: str, workloads: tuple[str, ...] = ()) -> Plan:
    more = [{"name": name, "parameters": {}} for name in workloads]
    return varied(from_data({"name": "p", "layers": ["host", "vm"], "workloads": [DISK, *more]}), vary)


def shared(share: Share, **more: str) -> Treatment:
    return Treatment("vm", "vm", {"disk.share": share, **more})


def test_virtiofs_moves_the_memory_of_all_guests_and_says_so() -> None:
    made = plan("disk.share=none,virtiofs,9p")
    guests = [one for one in made.treatments()[0] if one.layer == "vm"]
    assert {one.levels["memory.backing"] for one in guests} == {"memfd"} and len(guests) == 3
    assert any("virtiofsd can map" in line for line in made.moved_defaults)
    assert not plan("disk.share=none,9p").moved_defaults


def test_settings_of_a_disk_mean_nothing_for_a_directory() -> None:
    made = plan("disk.share=none,9p", "disk.cache=none,writeback", "disk.aio=threads")
    assert sorted(one.name for one in made.treatments()[0]) == [
        "host",
        "vm",
        "vm disk.cache=writeback",
        "vm disk.share=9p",
    ]
    with pytest.raises(PlanError, match=r"disk.cache=writeback needs disk.share=none"):
        plan("disk.share=virtiofs,9p", "disk.cache=writeback")


@pytest.mark.parametrize(
    ("vary", "why"),
    [
        (("disk.share=9p", "disk.format=qcow2"), "disk.share=9p needs disk.format=raw"),
        (("disk.share=9p", "disk.filesystem=none"), "disk.share=9p needs disk.filesystem=as-is"),
        (("disk.share=virtiofs", "memory.backing=4k"), "disk.share=virtiofs needs memory.backing=memfd"),
        (("disk.share=nfs",), "nfs"),
    ],
)
def test_what_cannot_be_shared_is_refused(vary: tuple[str, ...], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        plan(*vary)


def test_qemu_reaches_the_socket_or_the_directory_alone() -> None:
    files = PurePosixPath("/run/initrd"), PurePosixPath("/run/console")
    fs = SharedDirectory(Share.VIRTIOFS, "/srv/a,b", "/tmp/s,1/socket")
    spec = replace(PLAIN, hypervisor=CONFINED, shares=(fs,))
    words = arguments(spec, *files)
    assert "socket,id=share,path=/tmp/s,,1/socket" in words
    assert "vhost-user-fs-pci,chardev=share,tag=share,queue-size=1024" in words
    assert "/tmp/s,1" in reach(spec, *files).write and "/srv/a,b" not in reach(spec, *files).write
    spec = replace(spec, shares=(SharedDirectory(Share.NINE_P, "/srv/a,b"),))
    assert "local,id=share,path=/srv/a,,b,security_model=none" in arguments(spec, *files)
    assert "/srv/a,b" in reach(spec, *files).write


def test_each_level_is_a_protocol_and_what_the_guest_caches() -> None:
    assert [(share.protocol, share.cache) for share in Share if share is not Share.NONE] == [
        ("virtiofs", "auto"),
        ("virtiofs", "never"),
        ("virtiofs", "always"),
        ("9p", "none"),
        ("9p", "loose"),
    ]


def test_a_directory_is_neither_called_a_disk_nor_durable_nor_recommended() -> None:
    levels = {"disk.share": "virtiofs", "disk.volume": "plain", "disk.filesystem": "as-is", "disk.format": "raw"}
    text = ", ".join(_disk({**levels, "disk.cache": "none", "disk.bus": "virtio"}))
    assert text == "raw file, its directory over virtiofs"
    assert documented_durability(DiskSettings.of(levels)).state == "not tried"
    (reason,) = DiskKind().unknown(shared(Share.VIRTIOFS))
    assert "is no way to keep a guest's disk" in reason
    assert not has_disk(shared(Share.NINE_P)) and has_disk(Treatment("vm", "vm", {}))


class _Host:
    """Records what is run on it."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, ...]] = []

    def run(self, *argv: str) -> str:
        self.ran.append(argv)
        return ""

    try_run = run

    def remove_later(self, path: PurePosixPath) -> Any:
        self.ran.append(("listed", str(path)))
        return SimpleNamespace(undo=lambda: self.ran.append(("removed", str(path))))


def provisioned(host: _Host) -> Any:
    """A host with one disk in a file, of which QEMU switches to a user of its own."""
    disk = Backing(PurePosixPath("/srv/ours/disk.raw"), size=2**20)
    made = SimpleNamespace(of=lambda treatment, number: disk, fresh=lambda treatment, number: None)
    guests = SimpleNamespace(qemu=CONFINED)
    return SimpleNamespace(host=host, disks=made, guests=guests, fills_disks=True)


def test_a_guest_has_a_disk_or_a_directory_and_never_both() -> None:
    on, order = provisioned(_Host()), Order(object(), PLAIN)  # type: ignore[arg-type]  # nothing is asked of the parent
    with contextlib.ExitStack() as stack:
        assert SharingPart().shape(on, Treatment("vm", "vm", {}), order, stack) is order
        assert DiskPart().shape(on, shared(Share.NINE_P), order, stack) is order


def test_a_guest_reaches_its_file_alone_and_9p_s_user_owns_it_only_meanwhile() -> None:
    host = _Host()
    order = Order(object(), PLAIN)  # type: ignore[arg-type]  # nothing is asked of the parent
    with contextlib.ExitStack() as stack:
        found = SharingPart().shape(provisioned(host), shared(Share.NINE_P), order, stack)
        (served,) = found.spec.shares
        directory, file, owner = served.directory, "/srv/ours/disk.raw", f"{CONFINED.user}:{CONFINED.user}"
        assert PurePosixPath(directory).parent == PurePosixPath("/srv/ours") and not found.spec.disks
        assert host.ran == [
            ("listed", directory),
            # Nobody else reaches it: a guest could leave a program that is setuid
            ("mkdir", "-m", "700", directory),
            ("ln", file, directory),
            ("chown", f"0:{CONFINED.user}", directory),
            ("chmod", "770", directory),
            ("chown", owner, file),
        ]
    assert host.ran[6:] == [("chown", "0:0", file), ("removed", directory)]


class _Qemu:
    """A QEMU without devices for shared directories."""

    version = "9.0"

    def why_no_share(self, machine: object, share: Share) -> str:
        return f"QEMU {self.version} was built without {share}"


def test_a_host_that_lacks_something_leaves_these_configurations_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan("disk.share=none,9p")
    request = Request(object(), made, made.treatments()[0])  # type: ignore[arg-type]  # nothing is asked of it
    monkeypatch.setattr(sharing, "is_root", lambda host: False)
    assert list(SharingPart().lacking(request)) == ["vm disk.share=9p"]
    assert "needs root" in SharingPart().lacking(request)["vm disk.share=9p"]
    monkeypatch.setattr(sharing, "is_root", lambda host: True)
    assert SharingPart().lacking(request) == {}
    (note,) = SharingPart().notes(request)
    assert "9p" in note, "there is no virtiofsd in this plan alone"
    without = replace(request, qemu=_Qemu())  # type: ignore[arg-type]
    assert "disk.share=9p: QEMU 9.0 was built without 9p" in SharingPart().lacking(without)["vm disk.share=9p"]
    only_moved = from_data({"name": "p", "layers": ["vm"], "workloads": [{"name": "migration", "parameters": {}}]})
    moving = varied(only_moved, ("disk.share=none,9p",))
    found = SharingPart().lacking(replace(request, plan=moving, treatments=moving.treatments()[0]))
    assert "migration needs a guest with a disk" in found["vm disk.share=9p"]
