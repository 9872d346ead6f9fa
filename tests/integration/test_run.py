"""`vmtax run` as a user types it: every layer, every workload, and what is left afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, VMTAX, leftovers, under_way, vmtax
from vmtax.image.cache import Image

PLAN = """\
name: short
layers: [host, vm, nested]
guest: {vcpus: 1, memory: 512MiB}
workloads:
  - chess: {emulated_depth: 4}
  - memory: {cases: [faults], seconds: 1}
  - disk: {patterns: [randread-4k-qd1], size: 32MiB, seconds: 1}
  - net: {cases: [tcp-in, tcp-out], seconds: 1}
  - boot
primary: [chess.nodes_per_second]
rounds: {min: 2, max: 2}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "short.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(autouse=True)
def _directories_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def tokens(directory: Path) -> set[str]:
    """Tokens of runs whose undo list is still there."""
    return {path.stem for path in (directory / "state/vmtax/undo").glob("*.undo")}


def test_three_layers_measured_reported_and_nothing_left(image: Image, plan: Path, tmp_path: Path) -> None:
    done = vmtax(
        "run", str(plan), "--rounds", "1", "--yes", "--emulate", "--json", "-o", "report.html", directory=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "vmtax/1" and answer["kind"] == "experiment"
    data = answer["data"]
    have = {(entry["treatment"], entry["metric"]) for entry in data["measurements"]}
    for metric in ("chess.nodes_per_second", "disk.randread-4k-qd1.iops", "net.tcp-in.bits_per_second"):
        assert {(layer, metric) for layer in ("host", "vm", "nested")} <= have, data["failures"]
    assert ("nested", "boot.ready_seconds") in have and ("host", "boot.ready_seconds") not in have
    assert data["facts"]["host"]["accelerator"]["name"] in ("kvm", "tcg")
    if data["facts"]["host"]["accelerator"]["name"] == "tcg":
        assert "emulated" in (tmp_path / "report.html").read_text()
    assert tokens(tmp_path) == set()
    used = set(re.findall(r"vmtax-([0-9a-f]{16})", json.dumps(data["boots"])))
    assert used and [left for token in used for left in leftovers(token)] == []

    shown = vmtax("show", directory=tmp_path)
    assert shown.returncode == 0 and "chess" in shown.stdout.lower()
    assert data["id"] in vmtax("runs", directory=tmp_path).stdout


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="ctrl-c", marks=pytest.mark.machines),
        pytest.param(signal.SIGKILL, id="sigkill"),
    ],
)
def test_whatever_ends_it_nothing_is_left_and_results_are_kept(
    image: Image, plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ended while a guest runs a workload: the guest, its namespaces and its disks must go, its results stay."""
    plan.write_text(PLAN.replace("[host, vm, nested]", "[vm]").replace("{min: 2, max: 2}", "{min: 50, max: 50}"))
    with under_way("run", str(plan), "--yes", "--emulate", directory=tmp_path, trials=3) as (process, token):
        assert any("qemu" in entry for entry in leftovers(token)), "it was really under way"
        with subprocess.Popen([*VMTAX, "watch"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as watch:
            assert watch.stderr is not None
            assert watch.stderr.readline().startswith("run ") and "of at most 50" in watch.stderr.readline()
            process.send_signal(number)
            time.sleep(0.1)
            process.send_signal(number)  # twice: the second must not stop the tidying up
            process.wait(HANGS)
            assert "is interrupted" in watch.stderr.read()
        deadline = time.monotonic() + HANGS
        while (left := leftovers(token)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert left == []
    assert tokens(tmp_path) == set() and not list((tmp_path / "state/vmtax/live").glob("*"))
    shown = json.loads(vmtax("show", "--json", directory=tmp_path).stdout)["data"]
    assert shown["state"] == "interrupted"
    assert len({entry["metric"] for entry in shown["measurements"]}) >= 3
