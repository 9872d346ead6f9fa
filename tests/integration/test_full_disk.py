"""A disk without any room: what was measured can be seen, carried away and removed."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample import sample_experiment
from vmtax.store import Store
from vmtax.store.files import BALLAST

ROOT = Path(__file__).parents[2]
GONE, KEPT = (f"20261121-0412-quick-000{number}" for number in (1, 2))
# The directory of data is copied to a small file system, which is then filled; $1: data, $2: state
FULL = """
mount -t tmpfs -o size=12m none /mnt
cp -a "$1/vmtax" /mnt/vmtax
cat /dev/zero > /mnt/filling || true
export XDG_DATA_HOME=/mnt XDG_STATE_HOME="$2"
shift 2
exec "$@"
"""
COMMANDS = (
    *(("runs",), ("runs", "--json"), ("show", KEPT), ("show", KEPT, "--json"), ("compare", KEPT, GONE)),
    *(("export", KEPT, "-o", "carried.gz"), ("runs", "rm", GONE, "--yes"), ("show",), ("runs",)),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with Store(tmp_path / "data/vmtax/vmtax.sqlite") as store:
        for id in (GONE, KEPT):
            store.put(dataclasses.replace(sample_experiment(rounds=7), id=id))
    return tmp_path / "data"


@pytest.mark.varied(1)
@pytest.mark.parametrize("state", ["/mnt/state", ""])
@pytest.mark.parametrize("ballast", [True, False])
def test_a_full_disk_can_be_read_and_runs_be_removed(data: Path, tmp_path: Path, ballast: bool, state: str) -> None:
    assert (data / "vmtax" / BALLAST).stat().st_size == 2**20
    if not ballast:  # as a store of an earlier version
        (data / "vmtax" / BALLAST).unlink()
    lines = "; ".join(f'{sys.executable} -m vmtax {" ".join(words)}; echo "ended $?"' for words in COMMANDS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    argv = ("unshare", "--mount", "sh", "-ec", FULL, "sh", str(data), state or str(tmp_path / "state"))
    done = subprocess.run(
        (*argv, "sh", "-c", lines), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
    assert ended == ["ended 0"] * len(COMMANDS), done.stdout + done.stderr
    assert f"removed {GONE}" in done.stdout
    assert GONE not in done.stdout.rpartition("ended 0\n")[0].rpartition("ended 0\n")[2]
    assert (tmp_path / "carried.gz").stat().st_size > 1000
