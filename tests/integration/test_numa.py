"""Guests on KVM whose memory is on another NUMA node than their CPUs: in a lab whose kernel makes two nodes of one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, VMTAX, leftovers
from vmtax.image.cache import Image
from vmtax.lab.home import lab

pytestmark = pytest.mark.machines

NAME = "numa"
PLAN = """\
name: numa
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {memory.node: [local, remote, interleaved], memory.backing: [thp, 2MiB]}
workloads: [{cpuid: {seconds: 1}}]
rounds: {min: 1, max: 1}
"""

POOLS = "cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages"


def vmtax(*argv: str, errors: bool = False) -> str:
    """What it prints; with `errors`, what it says before and while it measures."""
    done = subprocess.run([*VMTAX, *argv], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr if errors else done.stdout


def test_memory_is_where_it_was_asked_for(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest whose memory is elsewhere has not booted: each of them did."""
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.chdir(tmp_path)
    vmtax("lab", "start", NAME, "--spares", "0", "--kernel-arguments", "numa=fake=2")
    try:
        (tmp_path / "numa.yaml").write_text(PLAN)
        said = vmtax("run", "numa.yaml", "--host", f"lab:{NAME}", "--emulate", "--yes", errors=True)
        for node in (0, 1):
            assert f"256 pages of 2MiB (0.5 GiB) of NUMA node {node}, for the whole run" in " ".join(said.split())
        boots = json.loads(vmtax("show", "--json"))["data"]["boots"]
        assert {boot["treatment"] for boot in boots} >= {
            f"vm{node}{pages}"
            for pages in ("", " memory.backing=2MiB")
            for node in ("", " memory.node=remote", " memory.node=interleaved")
        }
        huge = [boot["obtained"] for boot in boots if "2MiB" in boot["treatment"]]
        assert {each["memory.page_bytes"] for each in huge} == {2**21}
        assert vmtax("lab", "ssh", NAME, "--", POOLS).split() == ["0", "0"], "given back"
        assert {boot["accelerator"] for boot in boots} == {"kvm"}
    finally:
        up = lab(NAME).up()
        vmtax("lab", "stop", NAME)
    assert up is not None and leftovers(up.token) == []
