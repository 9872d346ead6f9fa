"""CPUs and clocks of a guest, for real: pinned, timed and woken, each level proved; what cannot be is left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.conftest import measured, vmtax
from vmtax.image.cache import Image

PLAN = """\
name: cpu-tiny
layers: [host, vm]
guest: {vcpus: 1, memory: 512MiB}
factors:
  cpu.pinning: [none, one-to-one]
  cpu.timer: [auto, tsc]
design: one-at-a-time
workloads:
  - wakeup: {seconds: 2}
  - cpuid: {seconds: 1}
rounds: {min: 1, max: 1}
"""
HYPERV = """\
name: hyperv-tiny
layers: [nested]
guest: {vcpus: 1, memory: 512MiB}
factors:
  cpu.hyperv: ["off", all]
design: one-at-a-time
workloads:
  - wakeup: {seconds: 2}
rounds: {min: 1, max: 1}
"""
TOO_MANY = "cpu.pinning=one-to-one takes {} CPUs, {} for guests and one or more for QEMU's other threads"


@pytest.mark.machines
def test_the_interface_of_hyper_v_is_proved_on_genuine_kvm(image: Image, tmp_path: Path) -> None:
    """A nested guest has KVM wherever the outer one is emulated; a boot fails unless its CPUID shows its level."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(HYPERV)
    data = measured(str(plan), directory=tmp_path)
    assert {"nested", "nested cpu.hyperv=all"} <= {row["treatment"] for row in data["measurements"]}


@pytest.mark.machines
def test_other_clocks_are_proved(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("[auto, tsc]", '[auto, hpet]\n  guest.hpet: [auto, "off"]'))
    data = measured(str(plan), directory=tmp_path)
    assert {"vm", "vm cpu.timer=hpet", "vm guest.hpet=off"} <= {boot["treatment"] for boot in data["boots"]}


@pytest.mark.machines
def test_pinned_cpus_and_clocks_are_proved_and_a_sleeper_is_woken_on_host_and_vm(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    data = measured(str(plan), directory=tmp_path)
    got = {boot["treatment"]: boot["obtained"] for boot in data["boots"]}
    assert {"vm", "vm cpu.pinning=one-to-one", "vm cpu.timer=tsc"} <= got.keys()
    pinned = got["vm cpu.pinning=one-to-one"]
    assert [pinned[f"cpu.{name}"] for name in ("pinned_cpus", "pinned_cores", "threads_astray")] == [1, 1, 0]
    have = {(row["treatment"], row["metric"]) for row in data["measurements"]}
    assert {("host", "wakeup.p99_seconds"), ("vm", "wakeup.p50_seconds"), ("vm", "cpuid.instruction_seconds")} <= have


def test_more_pinned_cpus_than_the_host_has_are_refused_with_the_arithmetic(image: Image, tmp_path: Path) -> None:
    has = len(os.sched_getaffinity(0))
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("vcpus: 1", f"vcpus: {has}").replace("[none, one-to-one]", "[one-to-one]"))
    done = vmtax("run", str(plan), "--yes", "--emulate", "--layers", "vm", directory=tmp_path)
    assert done.returncode != 0
    assert TOO_MANY.format(has + 1, has) in done.stderr.splitlines()[-1]
