"""A short `make torture`: some runs killed at random points, and nothing lost or left."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS
from vmtax.image.cache import Image

pytestmark = pytest.mark.alone  # whatever there is of vmtax on the machine counts as left behind
TOOL = Path(__file__).parents[2] / "tools/torture.py"


@pytest.mark.parametrize(("what", "kills"), [("fake", 60), ("real", 2)])
def test_nothing_is_lost_or_left(image: Image, what: str, kills: int) -> None:
    counts = {"--fake": "0", "--real": "0", f"--{what}": str(kills)}
    argv = [
        sys.executable,
        str(TOOL),
        *(word for pair in counts.items() for word in pair),
        "--rounds",
        "1",
        "--seed",
        "3",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    (last,) = re.findall(rf"{what} runs: {kills} kills, (\d+) resumed, .*; lost 0, left 0", done.stdout)
    assert int(last) > 0
