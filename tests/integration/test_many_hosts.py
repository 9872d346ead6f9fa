"""A thousand hosts in a store: their page is written in little time, and can be read."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample import without_raw
from tests.sample_many import a_run
from vmtax.store import Store

pytestmark = pytest.mark.machines  # the store takes minutes

HOSTS, ODD = 1000, (17, 400)
MOST_BYTES, MOST_SECONDS = 3_000_000, 10.0  # seconds of CPU time


def a_store(home: Path) -> None:
    """One run of each host; two hosts are far from the others."""
    rng = random.Random(3)
    with Store(home / "vmtax/vmtax.sqlite") as store:
        for n in range(HOSTS):
            name = f"web{n:04d}"
            facts = {"hostname": name, "machine_id": f"{n:032x}"}
            shift = rng.gauss(0, 0.004) + (0.4 if n in ODD else 0.0)
            store.put(without_raw(a_run(n, 3 * rng.random(), shift, host=f"ssh://root@{name}", **facts)))


def shown(home: Path, *options: str) -> float:
    """Seconds of CPU time of `vmtax fleet show`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "XDG_DATA_HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    subprocess.run([sys.executable, "-m", "vmtax", "fleet", "show", "quick", *options], env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_a_thousand_hosts_are_a_small_page_soon(tmp_path: Path) -> None:
    a_store(tmp_path)
    page, answer = tmp_path / "fleet.html", tmp_path / "fleet.json"
    first = shown(tmp_path, "--format", "html", "-o", str(page))
    again = shown(tmp_path, "--format", "html", "-o", str(page))
    print(f"{first:.1f} s as the costs are computed, {again:.1f} s from then on, {page.stat().st_size} bytes")
    assert again <= MOST_SECONDS and page.stat().st_size <= MOST_BYTES
    shown(tmp_path, "--json", "-o", str(answer))
    data = json.loads(answer.read_text())["data"]
    assert len(data["hosts"]) == HOSTS
    primary = [line for line in data["lines"] if line["primary"] and line["baseline"] == "host"]
    odd = {host["host"] for line in primary for host in line["hosts"] if host["odd"]}
    assert odd == {f"web{n:04d}" for n in ODD}
