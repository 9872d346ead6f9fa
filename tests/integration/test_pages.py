"""What a guest's memory lies in, for real: proved from QEMU's mappings, and the host as it was afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, VMTAX, vmtax
from vmtax.image.cache import Image
from vmtax.plan.schema import load

MIB = 2**20
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
SURPLUS = POOL / "nr_overcommit_hugepages"
TINY = {
    "guest": "{vcpus: 1, memory: 512MiB}",
    "workloads": "[memory: {cases: [faults], seconds: 1}]",
    "primary": "[memory.faults.per_second]",
    "rounds": "{min: 1, max: 1}",
}


@pytest.fixture(autouse=True)
def _directories_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def settings() -> dict[str, str]:
    """All that a run may change of the host's memory."""
    names = [*Path("/sys/kernel/mm/hugepages").glob("*/nr_*hugepages"), Path("/sys/kernel/mm/ksm/run")]
    return {str(name): name.read_text() for name in names if name.exists()}


def small(tmp_path: Path) -> str:
    """A plan file as `pages`, so small that it takes seconds."""
    assert load("pages").factors["memory.backing"][0] == "4k"
    lines = ["name: pages-tiny", "layers: [vm]", "factors: {memory.backing: [4k]}"]
    path = tmp_path / "plan.yaml"
    path.write_text("\n".join([*lines, *(f"{key}: {value}" for key, value in TINY.items())]) + "\n")
    return str(path)


@pytest.mark.parametrize(
    "kinds", [["2MiB"], pytest.param(["4k", "thp", "memfd"], marks=pytest.mark.machines)], ids="-".join
)
def test_each_backing_is_proved_and_the_host_is_left_as_it_was(kinds: list[str], image: Image, tmp_path: Path) -> None:
    before = settings()
    vary = f"memory.backing={','.join(kinds)}"
    done = vmtax("run", small(tmp_path), "--vary", vary, "--yes", "--emulate", "--json", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert data["failures"] == []
    got = {boot["treatment"].partition("=")[2] or kinds[0]: boot["obtained"] for boot in data["boots"]}
    assert got.keys() == set(kinds)
    if "4k" in kinds:
        assert got["4k"]["memory.huge_bytes"] == 0 and got["4k"]["memory.shared"] == 0
    assert {each["memory.mergeable"] for each in got.values()} == {0}
    if "thp" in kinds:
        assert got["thp"]["memory.huge_bytes"] >= 0.9 * got["thp"]["memory.resident_bytes"] > 64 * MIB
        assert got["memfd"]["memory.shared"] == 1
    if "2MiB" in kinds:
        assert got["2MiB"]["memory.hugetlb_bytes"] == 512 * MIB
        assert got["2MiB"]["memory.page_bytes"] == 2 * MIB
    assert settings() == before


def test_after_sigkill_the_host_has_its_huge_pages_as_before(image: Image, tmp_path: Path) -> None:
    if not POOL.exists():
        pytest.fail("this kernel has no hugetlb, which the tests need")
    before = settings()
    argv = [*VMTAX, "run", small(tmp_path), "--vary", "memory.backing=2MiB", "--yes", "--emulate"]
    process = subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + HANGS
    while settings() == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert int(SURPLUS.read_text()) >= 256, "they are there for QEMU to take"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while settings() != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert settings() == before


@pytest.mark.parametrize(
    ("vary", "line"),
    [
        ("cpu.model=haswel", "knows no CPU 'haswel'; nearest: Haswell"),
        ("memory.backing=1GiB", "memory.backing=1GiB needs guest.memory=2GiB: add --vary guest.memory=2GiB"),
    ],
)
def test_what_cannot_be_is_one_line_before_the_question(vary: str, line: str, image: Image, tmp_path: Path) -> None:
    done = vmtax("run", small(tmp_path), "--vary", vary, "--emulate", "--yes", directory=tmp_path)
    assert done.returncode != 0
    assert line in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
