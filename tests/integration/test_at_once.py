"""Guests that work at the same time, for real: each has a disk, an address and a trial of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import HANGS, command_line, leftovers, measured, qemus_of, under_way
from vmtax.core.records import Trial
from vmtax.design.topology import Worked, overlap
from vmtax.image.cache import Image
from vmtax.store import Store

PLAN = """\
name: at-once
layers: [LAYER]
guest: {vcpus: 1, memory: 512MiB}
factors: {guest.count: ["2"]}
workloads:
  - disk: {patterns: [randwrite-4k-qd1], size: 32MiB, seconds: 1}
  - net: {cases: [tcp-in], seconds: 1}
  - boot
primary: [boot.ready_seconds]
iterations: 1
rounds: {min: 1, max: 1}
"""


# With this seed `vm` comes before its repeat, which has one case and nothing left to lose after it.
KILLED = """\
name: killed
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {guest.count: ["2"]}
workloads: [{disk: {patterns: [randread-4k-qd1, randwrite-4k-qd1], size: 32MiB, seconds: 3}}]
iterations: 1
rounds: {min: 1, max: 1}
seed: 0
"""


@pytest.fixture(autouse=True)
def _directories_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def worked_of(entry: dict[str, Any]) -> Worked:
    names = ("round", "position", "treatment", "iteration", "started", "wall_seconds", "machine", "readings")
    known = {name: entry[name] for name in names}
    return Worked.of(Trial(**known, workload="", case="", status="ok"))


@pytest.mark.parametrize(
    ("layer", "machines"),
    [
        ("vm", {"host/vm", "host/vm-2"}),
        pytest.param("nested", {"host/vm/vm", "host/vm/vm-2"}, marks=pytest.mark.machines),
    ],
)
def test_two_guests_work_at_the_same_time(image: Image, tmp_path: Path, layer: str, machines: set[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("LAYER", layer))
    data = measured(str(plan), directory=tmp_path)
    ours = [entry for entry in data["measurements"] if entry["treatment"] == layer]
    at_once = ("disk.randwrite-4k-qd1.iops", "net.tcp-in.bits_per_second")
    for metric in (*at_once, "boot.ready_seconds"):
        assert {entry["machine"] for entry in ours if entry["metric"] == metric} == machines
    for metric in at_once:
        worked = [worked_of(entry) for entry in ours if entry["metric"] == metric]
        assert overlap(worked) > 0.9, "what counts was done at the same time"
    argv = [" ".join(b["argv"]) for b in data["boots"] if b["treatment"] == layer and b["path"] in machines]
    assert len({re.findall(r"disk\d\.raw", line)[0] for line in argv}) == 2, "each has a disk"
    assert len({re.findall(r"mac=([0-9a-f:]{17})", line)[-1] for line in argv}) == 2, "and an address"
    for boot in data["boots"]:
        is_outer = boot["treatment"] == "nested" and boot["path"] == "host/vm"
        alone = "1,maxcpus=2" if boot["accelerator"] == "tcg" else "1"
        assert boot["argv"][boot["argv"].index("-smp") + 1] == ("3" if is_outer else alone)
        assert ("isolcpus=0" in " ".join(boot["argv"])) is is_outer, "two CPUs for its guests, and one that runs none"
    used = set(re.findall(r"vmtax-([0-9a-f]{16})", json.dumps(data["boots"])))
    assert used and [left for token in used for left in leftovers(token)] == []


@pytest.mark.machines
def test_where_one_of_two_is_killed_both_are_booted_again(image: Image, tmp_path: Path) -> None:
    """What was measured when one died counts for neither; the round has the results of the second boot."""
    (tmp_path / "p.yaml").write_text(KILLED)
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=tmp_path, trials=2) as (process, token):
        os.kill(next(pid for pid in qemus_of(token) if "vm-2" in command_line(pid)), signal.SIGKILL)
        assert process.wait(HANGS) == 0
    with Store() as store:
        found = store.load()
    assert found.state == "complete" and [note for note in found.notes if "round 1: a guest was lost" in note]
    writing = [trial for trial in found.trials if trial.case == "randwrite-4k-qd1"]
    assert [(trial.machine, trial.status) for trial in writing] == [
        *(("host/vm", "failed"), ("host/vm-2", "failed")),
        *(("host/vm", "ok"), ("host/vm-2", "ok")),
    ]
    assert "killed from outside" in (writing[1].error or "") and "does not count" in (writing[0].error or "")
    assert {trial.status for trial in found.trials if trial.case == "randread-4k-qd1"} == {"ok"}, "it was done before"
    assert [(boot.treatment, boot.path) for boot in found.boots].count(("vm", "host/vm-2")) == 2
    assert leftovers(token) == []


@pytest.mark.machines
@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_ctrl_c_while_several_guests_boot_ends_all_at_once(image: Image, tmp_path: Path, seconds: float) -> None:
    (tmp_path / "p.yaml").write_text(KILLED.replace('"2"', '"4"'))
    with under_way("run", "p.yaml", "--yes", "--emulate", directory=tmp_path, trials=0) as (process, token):
        while len(qemus_of(token)) < 4:
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert leftovers(token) == []
