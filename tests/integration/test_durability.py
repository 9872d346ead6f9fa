"""What survives, for real: guests are killed while they write, and their disks looked at in many states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.conftest import measured, vmtax
from vmtax.image.cache import Image

PLAN = """\
name: durability-tiny
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {disk.format: [qcow2], disk.cache: [writeback, unsafe], disk.aio: [threads]}
workloads:
  - durability:
      writers: [append-fsync-4k, rename-fsync-16k, sqlite-wal, lying-append-fsync-4k]
      size: 64MiB
      seconds: 4
      states: 16
precision: none
rounds: {min: 1, max: 1}
"""
SAFE, UNSAFE = "vm", "vm disk.cache=unsafe"


def test_a_power_cut_loses_what_was_not_flushed_and_nothing_else(image: Image, tmp_path: Path) -> None:
    plan, disks = tmp_path / "plan.yaml", tmp_path / "disks"
    plan.write_text(PLAN)
    disks.mkdir()
    data = measured(str(plan), "--disk-dir", str(disks), directory=tmp_path)
    counts = {
        (row["treatment"], row["metric"].removeprefix("durability.")): row["value"]
        for row in data["measurements"]
        if row["metric"].startswith("durability.")
    }
    for name in (SAFE, UNSAFE):
        assert counts[name, "guest-killed.lost"] == 0, "the host's page cache outlives QEMU"
        assert counts[name, "guest-killed.control.lost"] == 1, "the guest's does not"
        assert counts[name, "power-cut.control.lost"] == counts[name, "power-cut.control.states"] > 0
        assert counts[name, "power-cut.lying-append-fsync-4k.lost"] > 0
    assert counts[SAFE, "power-cut.states"] > 10
    assert counts[SAFE, "power-cut.lost"] == counts[SAFE, "power-cut.image_damaged"] == 0
    assert counts[UNSAFE, "power-cut.lost"] > 0
    assert {one["treatment"]: one["state"] for one in data["durability"]["evidence"]} == {
        SAFE: "not shown",
        UNSAFE: "no",
    }
    assert not list(disks.iterdir())


@pytest.mark.machines
def test_of_a_guest_whose_disk_is_full_nothing_counts(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    # Those that overwrite have 48 MiB at once, so the one that appends finds little.
    writers = "[append-fsync-1m, overwrite-fsync-1m, overwrite-fdatasync-1m, overwrite-dsync-1m]"
    full = f"durability: {{writers: {writers}, size: 64MiB, room: 31MiB, seconds: 120, states: 10}}"
    plan.write_text(f"name: full\nlayers: [vm]\nguest: {{vcpus: 1, memory: 512MiB}}\nworkloads: [{full}]\n")
    done = vmtax("run", str(plan), "--rounds", "1", "--yes", "--emulate", "--json", directory=tmp_path)
    data = json.loads(done.stdout)["data"]
    assert not data["measurements"]
    (failure,) = data["failures"]
    assert "a writer failed, so nothing counts: " in failure["error"]
    assert failure["error"].endswith("No space left on device")
