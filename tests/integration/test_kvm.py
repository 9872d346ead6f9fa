"""What KVM itself says of guests, in a lab, whose KVM is genuine: how often they exit and why, and their pages."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import HANGS, VMTAX, leftovers
from vmtax.image.cache import Image
from vmtax.lab.home import lab

NAME = "kvm"
HOST = f"lab:{NAME}"
TRACED = """\
name: exits
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {guest.exit_trace: ["on"]}
workloads: [{cpuid: {seconds: 5}}, {tlb: {cases: [chase-1m], seconds: 5}}]
primary: [cpuid.instruction_seconds]
rounds: {min: 1, max: 1}
"""
BACKED = """\
name: backing
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {memory.backing: [4k, thp]}
workloads: [{tlb: {cases: [chase-64m], seconds: 1}}]
rounds: {min: 1, max: 1}
"""
# All that a run may change of a host's memory.
SETTINGS = "grep . /sys/kernel/mm/hugepages/*/nr_*hugepages /sys/kernel/mm/ksm/run"
# tracefs is mounted for the look alone.
INSTANCES = "unshare -m sh -c 'mount -t tracefs tracefs /sys/kernel/tracing; ls /sys/kernel/tracing/instances'"


@pytest.fixture(scope="module", autouse=True)
def directory(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this module's lab, which is up, and its results are."""
    path = tmp_path_factory.mktemp("kvm")
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("DATA", "STATE"):
            patch.setenv(f"XDG_{kind}_HOME", str(path / kind.lower()))
        patch.chdir(path)
        vmtax("lab", "start", NAME, "--memory", "3GiB", "--spares", "1", "--spare-size", "1GiB")
        yield path
        up = lab(NAME).up()
        vmtax("lab", "stop", NAME)
        assert up is not None and leftovers(up.token) == []
        vmtax("lab", "remove", NAME, "--yes")


def vmtax(*argv: str) -> str:
    done = subprocess.run([*VMTAX, *argv], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inside(command: str) -> str:
    return vmtax("lab", "ssh", NAME, "--", command)


def run(directory: Path, plan: str) -> Any:
    """Of one run in the lab, in which nothing failed."""
    path = directory / "plan.yaml"
    path.write_text(plan)
    data = json.loads(vmtax("run", str(path), "--host", HOST, "--yes", "--emulate", "--json"))["data"]
    assert data["failures"] == []
    return data


def test_a_cpuid_instruction_is_one_exit_a_loop_is_none_and_the_reasons_are_all_of_them(directory: Path) -> None:
    data = run(directory, TRACED)
    cpuid, loop = ({each["workload"]: each for each in data["exits"]}[name] for name in ("cpuid", "tlb"))
    print(f"exits per operation: cpuid {cpuid['per_operation']:.4f}, loop {loop['per_operation']:.6f}")
    # What any running guest exits for, as for its clock, is not cpuid's.
    print(f"exits for cpuid by cpuid instructions: {cpuid['per_operation'] * cpuid['reasons']['cpuid']:.4f}")
    assert cpuid["per_operation"] * cpuid["reasons"]["cpuid"] == pytest.approx(1, abs=0.02)
    assert loop["per_operation"] < 0.001
    for one in data["measurements"]:
        rows = one["readings"]["host/vm"]
        traced = sum(value for name, value in rows.items() if name.startswith("kvm.reason."))
        print(f"{one['metric']}: KVM counts {rows['kvm.exits']:.0f} exits, the histogram {traced:.0f}")
        assert traced == pytest.approx(rows["kvm.exits"], rel=0.01)
    assert inside(INSTANCES).strip() == ""


def test_each_backing_is_what_kvm_maps_and_the_host_is_left_as_it_was(directory: Path) -> None:
    before = inside(SETTINGS)
    data = run(directory, BACKED)
    got = {boot["treatment"].partition("=")[2] or "4k": boot["obtained"] for boot in data["boots"]}
    pages = {level: [each[f"memory.kvm_pages_{size}"] for size in ("4k", "2m", "1g")] for level, each in got.items()}
    print("pages of 4 KiB, 2 MiB, 1 GiB that KVM maps:", pages)
    assert pages["4k"][0] > 0 and pages["4k"][1:] == [0, 0]
    assert pages["thp"][1] > 0 and pages["thp"][2] == 0
    assert inside(SETTINGS) == before
