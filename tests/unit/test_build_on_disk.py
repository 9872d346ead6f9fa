"""A kernel build whose files lie on the disk under test: where they lie on each layer, and what is refused."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import FakeMachine
from vmtax.plan.asked import NotMeasured, refuse_without_work
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data, load
from vmtax.plan.vary import varied
from vmtax.storage import Backing
from vmtax.testbed.host import needs
from vmtax.testbed.parts import Request
from vmtax.testbed.parts.directory import DirectoryPart
from vmtax.testbed.subjects import directories
from vmtax.workload import Site
from vmtax.workload.build import Build, BuildParameters

PACK = ("bwrap", "--pack")
ON_DISK = Build(BuildParameters(target="objects", files="disk"))


def plan(*workloads: dict[str, Any], layers: tuple[str, ...] = ("host", "vm"), **build: str) -> Plan:
    built = {"name": "build", "parameters": {"files": "disk", **build}}
    return from_data({"name": "p", "layers": layers, "workloads": [built, *workloads]})


def willing(path: str = "host") -> FakeMachine:
    """Every command succeeds there, and prints nothing."""
    return FakeMachine(path, {lambda argv: True: ""})


def site(disk: str) -> tuple[FakeMachine, Site]:
    machine = willing("host/vm")
    return machine, Site(machine, "vm", 2, (), disk=disk, kernel_pack=PACK)


def provisioned(host: FakeMachine, *workloads: Build) -> Any:
    return SimpleNamespace(host=host, workloads=workloads)


def test_a_build_sees_its_files_in_the_usual_places_wherever_they_lie() -> None:
    _, one = site("/dev/vdb")
    _, prefix = ON_DISK.seat(replace(one, directory="/d"))
    assert prefix == (
        *PACK,
        *("--bind", "/d/src/include", "/src/include", "--bind", "/d/src/lib", "/src/lib"),
        *("--bind", "/d/src/arch/x86/include", "/src/arch/x86/include"),
        *("--bind", "/d/objects", "/build", "--"),
    )
    whole = Build(BuildParameters(target="tinyconfig", files="disk"))
    assert whole.seat(replace(one, directory="/d"))[1][2:-1] == (
        "--bind",
        "/d/src",
        "/src",
        "--bind",
        "/d/objects",
        "/build",
    )
    assert ON_DISK.command(one, "objects")[6] == "all", "the sources are not read before the clock starts"
    with pytest.raises(ValueError, match="has no directory"):
        ON_DISK.seat(one)


def test_only_a_build_on_disk_has_a_disk_and_needs_no_memory_for_its_files() -> None:
    usual = Build(BuildParameters(target="tinyconfig"))
    on_disk = Build(BuildParameters(target="tinyconfig", files="disk"))
    assert (usual.filled_bytes, usual.written_bytes("tinyconfig")) == (0, 0)
    assert on_disk.filled_bytes > on_disk.written_bytes("tinyconfig") > 400 * 2**20
    assert on_disk.memory_bytes(2)[0] < usual.memory_bytes(2)[0] - 400 * 2**20


def test_a_guest_makes_a_file_system_on_its_disk_and_puts_the_sources_there() -> None:
    machine, one = site("/dev/vdb")
    made = directories.in_guest(provisioned(FakeMachine(), ON_DISK), one, is_shared=False)
    mkdir, mkfs, mount, filled = machine.calls
    assert made.directory == mkdir[-1] == mount[-1] and mkfs[0] == "mkfs.ext4" and mkfs[-1] == mount[-2] == "/dev/vdb"
    assert "nodiscard" in mkfs[-2], "the blocks of its disk stay written"
    assert filled[:5] == (*PACK, "--bind", made.directory, "/build")
    assert filled[-4:] == ("include|lib|arch/x86/include", "include", "lib", "arch/x86/include")


def test_a_guest_with_a_share_uses_it_and_may_write_files_that_are_another_user_s() -> None:
    machine, one = site("/run/vmtax-share/disk.raw")
    made = directories.in_guest(provisioned(FakeMachine(), ON_DISK), one, is_shared=True)
    assert made.directory == "/run/vmtax-share/data" and [call[0] for call in machine.calls] == ["mkdir", "bwrap"]
    assert made.kernel_pack is not None and "CAP_DAC_OVERRIDE" in made.kernel_pack


def test_the_host_builds_beside_its_disk_s_file_and_the_directory_goes_with_the_treatment() -> None:
    host = willing()
    one = Site(host, "host", 2, (), disk="/mnt/disk.raw", kernel_pack=PACK)
    disk = Backing(PurePosixPath("/srv/ours/disk.raw"), size=2**20)
    with contextlib.ExitStack() as stack:
        made = directories.on_host(provisioned(host, ON_DISK), one, disk, stack)
        assert made.directory is not None and PurePosixPath(made.directory).parent == PurePosixPath("/srv/ours")
        assert host.undone == []
    assert host.undone == [PurePosixPath(made.directory)]


def test_other_workloads_get_no_directory() -> None:
    machine, one = site("/dev/vdb")
    in_memory = provisioned(machine, Build(BuildParameters()))
    with contextlib.ExitStack() as stack:
        assert directories.on_host(in_memory, one, Backing(PurePosixPath("/a/b"), size=1), stack) is one
    assert directories.in_guest(in_memory, one, is_shared=False) is one and machine.calls == []


def lacking(made: Plan, accelerator: Any = "kvm") -> dict[str, str]:
    request = Request(willing(), made, made.treatments()[0], accelerator=accelerator)
    return dict(DirectoryPart().lacking(request))


def test_what_has_no_directory_or_maps_no_file_is_left_out() -> None:
    device = varied(plan(), ["disk.filesystem=as-is,none"])
    assert list(lacking(device)) == ["host disk.filesystem=none"], "a guest makes a file system on its own disk"
    shares = varied(plan(), ["disk.share=none,virtiofs-never,9p,9p-loose"])
    assert sorted(lacking(shares)) == ["vm disk.share=9p", "vm disk.share=virtiofs-never"]
    assert "name 9p-loose" in lacking(shares)["vm disk.share=9p"]
    assert not lacking(shares, "tcg") and not lacking(varied(plan(target="objects"), ["disk.share=none,9p"]))
    in_memory = from_data({"name": "p", "layers": ["host"], "workloads": ["build"]})
    assert not lacking(in_memory)


def test_a_plan_does_not_write_over_the_files_of_a_build() -> None:
    disk = {"name": "disk", "parameters": {"patterns": ["write-1m"]}}
    with pytest.raises(PlanError, match="disk writes over the files that build has on the disk under test"):
        plan(disk)
    plan(disk, files="memory")


def test_a_share_that_a_build_in_memory_would_not_use_is_refused_with_the_plan_that_does() -> None:
    asked = {"disk.share": ("none", "virtiofs")}
    with pytest.raises(NotMeasured, match="plan disk-build"):
        refuse_without_work(load("build"), asked)
    refuse_without_work(load("disk-build"), asked)


def test_there_is_room_for_a_directory_beside_the_disk_where_the_host_or_a_guest_uses_one() -> None:
    size = Build(BuildParameters(files="disk")).filled_bytes
    assert needs.disk_sizes(plan())[1] == size
    assert needs.disk_sizes(plan(layers=("vm",)))[1] == 0
    assert needs.disk_sizes(varied(plan(layers=("vm",)), ["disk.share=none,9p-loose"]))[1] == size
