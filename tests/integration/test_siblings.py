"""Guests on KVM whose CPUs share a core of their host or do not, in a lab whose cores have two threads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, VMTAX, leftovers
from vmtax.image.cache import Image
from vmtax.lab.home import lab

pytestmark = pytest.mark.machines

NAME = "siblings"
PLAN = """\
name: siblings
layers: [vm]
guest: {vcpus: 2, memory: 512MiB}
factors: {cpu.siblings: [apart, together]}
workloads: [{cpuid: {seconds: 1}}]
rounds: {min: 1, max: 1}
"""
SHARED = "cat /sys/devices/system/cpu/cpu*/topology/core_cpus_list"


def vmtax(*argv: str) -> str:
    done = subprocess.run([*VMTAX, *argv], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_cpus_of_a_guest_are_on_one_core_or_on_two(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.chdir(tmp_path)
    vmtax("lab", "start", NAME, "--spares", "0", "--vcpus", "4", "--smt")
    try:
        assert vmtax("lab", "ssh", NAME, "--", SHARED).split() == ["0-1", "0-1", "2-3", "2-3", "4-5", "4-5"]
        (tmp_path / "siblings.yaml").write_text(PLAN)
        vmtax("run", "siblings.yaml", "--host", f"lab:{NAME}", "--emulate", "--yes")
        boots = json.loads(vmtax("show", "--json"))["data"]["boots"]
        cores = {boot["treatment"]: boot["obtained"]["cpu.pinned_cores"] for boot in boots}
        assert cores == {"vm": 2, "vm again": 2, "vm cpu.siblings=together": 1}
        assert {boot["obtained"]["cpu.pinned_cpus"] for boot in boots} == {2}
        assert {boot["accelerator"] for boot in boots} == {"kvm"}
    finally:
        up = lab(NAME).up()
        vmtax("lab", "stop", NAME)
    assert up is not None and leftovers(up.token) == []
