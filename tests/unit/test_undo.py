"""What is undone in something of the user's that is not there stays on the list."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from vmtax.machine.guard import UNDO_SECONDS
from vmtax.storage.undo import NO_DATASET, NO_DATASET_OF_YOURS, NO_PARTITIONS, NO_VOLUME, NO_VOLUME_OF_YOURS

# Stands for zpool, zfs, vgs, lvs and their removing sisters: knows what the files of its directory name.
TOOL = """\
#!/bin/sh
for name; do :; done
file=$HERE/$(echo "$name" | tr / _)
case $0 in */zfs) test "$1" = list || { rm "$file"; exit; } ;; */lvremove) rm "$file"; exit ;; esac
test -e "$file"
"""


@pytest.mark.parametrize(
    ("undo", "careless", "parent", "child"),
    [
        (NO_DATASET_OF_YOURS, NO_DATASET, "tank", "tank/vmtax-1"),
        (NO_VOLUME_OF_YOURS, NO_VOLUME, "vg", "vg/vmtax-1"),
    ],
)
def test_a_pool_or_group_that_is_away_keeps_the_entry(
    tmp_path: Path, undo: Sequence[str], careless: Sequence[str], parent: str, child: str
) -> None:
    for name in ("zpool", "zfs", "vgs", "lvs", "lvremove"):
        (tmp_path / name).write_text(TOOL)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HERE": str(tmp_path)}

    def undone(how: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*how, child], env=environment, capture_output=True, text=True)

    away = undone(undo)
    assert away.returncode == 1 and f"{parent}, with {child} in it, is not there" in away.stderr
    assert undone(careless).returncode == 0, "its own parent goes as a whole"
    there, inside = (tmp_path / name.replace("/", "_") for name in (parent, child))
    there.touch()
    assert undone(undo).returncode == 0, "it never came to be"
    inside.touch()
    assert undone(undo).returncode == 0 and not inside.exists()


def test_a_device_that_is_away_keeps_the_entry(tmp_path: Path) -> None:
    done = subprocess.run([*NO_PARTITIONS, str(tmp_path / "sdb"), "mark"], capture_output=True, text=True)
    assert done.returncode == 1 and "No such file" in done.stderr


def test_zeroing_leaves_the_guard_time_for_the_rest_of_an_undoing() -> None:
    (seconds,) = re.findall(r"timeout (\d+) sh -c '.*blkdiscard", " ".join(NO_PARTITIONS))
    assert int(seconds) <= UNDO_SECONDS / 4
