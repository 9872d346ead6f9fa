"""What a killed run left is shown, and nothing happens; then it is removed. What lives is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from tests.unit.test_cli import vmtax
from vmtax.experiment import cleanup
from vmtax.machine.local import LocalMachine
from vmtax.store import Store
from vmtax.system.paths import cache_home, state_home

CHILD = """
import sys, time
from pathlib import PurePosixPath
from vmtax.machine.local import LocalMachine
machine = LocalMachine()
machine.start("sleep", "600")
machine.remove_later(PurePosixPath(sys.argv[1]))
print(machine.guard._process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))


def test_what_is_dead_is_shown_then_removed_and_what_lives_stays(tmp_path: Path) -> None:
    alive = LocalMachine()
    kept, ours = tmp_path / "kept", tmp_path / "ours"
    kept.mkdir()
    ours.mkdir()
    alive.remove_later(PurePosixPath(kept))
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(ours)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout as stdout:
        os.kill(int(stdout.readline()), signal.SIGKILL)
    child.kill()
    child.wait()
    half = cache_home() / "images/.building-1"
    half.mkdir(parents=True)
    (state_home() / "live").mkdir()
    (state_home() / "live/gone.json").write_text("{}")

    with Store() as store:
        found = {leftover.what: leftover.text for leftover in cleanup.found(store, images=False)}
        assert found["to be undone"] == f"remove {ours}"
        assert "sleep 600" in found["process"]
        assert found["half-made image"] == str(half)
        assert found["state of a dead run"].endswith("gone.json")
        assert ours.is_dir() and half.is_dir(), "showing changes nothing"
        assert cleanup.remove(store, images=False) == []
        assert cleanup.found(store, images=False) == []
    assert not ours.exists() and not half.exists() and kept.is_dir()
    alive.close()


def test_it_asks_first(tmp_path: Path) -> None:
    half = cache_home() / "images/.building-1"
    half.mkdir(parents=True)
    asked = vmtax("clean", home=tmp_path)
    assert asked.returncode == 2 and str(half) in asked.stdout and "add --yes" in asked.stderr
    assert half.is_dir()
    done = vmtax("clean", "--yes", home=tmp_path)
    assert done.returncode == 0 and not half.exists()
    assert vmtax("clean", "--yes", home=tmp_path).stdout == "there is nothing to remove\n"
