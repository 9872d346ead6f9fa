"""A kernel build as a user asks for it: the pack is built where the cache has none, and all layers make the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.integration.conftest import leftovers, measured
from vmtax.image import kernel
from vmtax.image.cache import Image

pytestmark = pytest.mark.machines

PLAN = """\
name: build-short
layers: [host, vm]
guest: {vcpus: 2, memory: 1GiB}
workloads: [build: {target: objects}]
rounds: {min: 1, max: 1}
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


def test_host_and_vm_compile_the_same_objects(image: Image, plan: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    was_there = kernel.PACK.is_there()
    pack = kernel.PACK.ensure(lambda event: None)
    print(f"the kernel pack: {'was there' if was_there else 'built'}, {time.monotonic() - began:.0f} s")
    data = measured(str(plan), directory=tmp_path)
    values = {(entry["treatment"], entry["metric"]): entry["value"] for entry in data["measurements"]}
    for layer in ("host", "vm"):
        seconds, rate = (values[layer, f"build.objects.{name}"] for name in ("seconds", "objects_per_second"))
        assert seconds * rate == pytest.approx(10)
    assert data["facts"]["host"]["kernel_pack"] == {"version": pack.version, "digest": pack.digest}
    assert list(leftovers(_token(data))) == []
    assert "erofs" not in Path("/proc/mounts").read_text(), "the pack is mounted nowhere any more"


ON_DISK = """\
name: build-on-disk
layers: [host, vm]
guest: {vcpus: 2, memory: 1GiB}
factors: {disk.share: [none, 9p], disk.cache: [writeback]}
workloads: [build: {target: objects, files: disk}]
rounds: {min: 1, max: 1}
"""


def test_the_same_objects_are_compiled_on_a_disk_and_in_a_shared_directory(
    image: Image, plan: Path, tmp_path: Path
) -> None:
    plan.write_text(ON_DISK)
    data = measured(str(plan), directory=tmp_path)
    found = {
        entry["treatment"]: entry["value"] for entry in data["measurements"] if entry["metric"].endswith(".seconds")
    }
    assert sorted(found) == ["host", "vm", "vm again", "vm disk.share=9p"] and min(found.values()) > 0
    # `measured` has seen that nothing was refused: the digests of the objects are equal
    assert list(leftovers(_token(data))) == []


def _token(data: dict[str, list[dict[str, list[str]]]]) -> str:
    """Of the run, by which everything of it is called."""
    argv = " ".join(data["boots"][0]["argv"])
    return argv.partition("/vmtax-")[2][:16]
