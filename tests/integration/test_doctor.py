"""`vmtax doctor --try` for real: guests, a bridge and a file, and nothing of them afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import HANGS, leftovers
from vmtax.core.events import Event
from vmtax.doctor import examine
from vmtax.doctor.attempt import attempt_on
from vmtax.image.cache import Image
from vmtax.testbed.session.session import connected


def can_virtualize() -> bool:
    """Whether the CPU has what any genuine KVM needs, whatever /dev/kvm is."""
    return bool({"vmx", "svm"} & set(Path("/proc/cpuinfo").read_text().split()))


def test_everything_is_tried_and_reported(image: Image, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vmtax", "doctor", "--try", "--yes", "--json"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS)
    data = json.loads(done.stdout)["data"]
    tried = {check["name"]: check for check in data["checks"] if check["area"] == "tried"}
    for name in ("host layer", "bridge", "O_DIRECT"):
        assert tried[name]["status"] == "ok", tried[name]
    if not can_virtualize():
        assert tried["guest on KVM"]["status"] == "failed", "/dev/kvm that opens proves nothing"
    if tried["guest on KVM"]["status"] == "failed":
        assert tried["emulated guest"]["status"] == "ok", tried["emulated guest"]
        [kvm] = [check for check in data["checks"] if (check["area"], check["name"]) == ("need", "KVM")]
        assert kvm["status"] in ("failed", "missing")
    assert done.returncode == (1 if tried["guest on KVM"]["status"] == "failed" else 0)
    assert list((tmp_path / "vmtax/undo").iterdir()) == [], "every undo list was worked off"


def test_nothing_is_left_of_a_try(image: Image) -> None:
    left: list[str] = []
    events: list[Event] = []
    with connected("local", left.append) as hosts:
        attempt_on(hosts, examine("local"), events.append)
        assert leftovers(hosts.local.token), "something was there"
    assert leftovers(hosts.local.token) == [] and left == []
