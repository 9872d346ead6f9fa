"""`vmtax run --interleave-with` a second path to the host's QEMU: both are started, compared, and gone afterwards."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import leftovers, measured, vmtax
from vmtax.image.cache import Image
from vmtax.store import Store

PLAN = """\
name: two
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
workloads: [boot]
rounds: {min: 1, max: 1}
"""


@pytest.mark.machines
def test_two_qemus_in_the_same_round(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    own = shutil.which("qemu-system-x86_64")
    assert own is not None
    second = tmp_path / "second-qemu"
    second.symlink_to(own)
    (tmp_path / "two.yaml").write_text(PLAN)
    sides = ("--qemu", own, "--interleave-with", str(second))

    data = measured("two.yaml", *sides, directory=tmp_path)
    other = f"vm with {second}"
    assert {entry["name"]: entry["side"] for entry in data["treatments"] if not entry["repeats"]} == {
        "vm": "",
        other: str(second),
    }
    assert ("vm", other) in {(entry["baseline"], entry["treatment"]) for entry in data["comparisons"]}
    with Store() as store:
        boots = store.load().boots
    booted = {boot.treatment: boot.argv[0] for boot in boots}
    assert booted == {"vm": own, "vm again": own, other: str(second), f"vm again with {second}": str(second)}
    assert data["facts"][f"host with {second}"]["qemu"]["command"] == [str(second)]
    assert f"host/vm with {second}" in data["facts"], "the guests of one path are told apart"
    assert list((tmp_path / "state/vmtax/undo").glob("*.undo")) == []
    (token,) = {found for boot in boots for found in re.findall(r"/vmtax-(\w+)/vm-", " ".join(boot.argv))}
    assert leftovers(token) == []

    same = vmtax("run", "two.yaml", "--yes", "--emulate", "--qemu", own, "--interleave-with", own, directory=tmp_path)
    assert same.returncode == 2 and "is the QEMU that the plan is measured with" in same.stderr
