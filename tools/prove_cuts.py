"""Cuts the power of a lab under guests that write, on every kind of volume: what must lose must, and nothing else.

    python -m tools.prove_cuts [--states 30] [--rounds 1] [--raidz]

Its own lab, whose writes are logged, and its own store; nothing of them is left. Exit code 1 if a configuration that
keeps its promises lost what was acknowledged, if `unsafe`, `sync=disabled` or `barrier=0` lost nothing, if no trial of
a configuration noticed what the writer lost that never flushes, or if RAIDZ1 was not tried without one of its disks.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vmtax.core.errors import CannotDo
from vmtax.lab.end import cut, remove
from vmtax.lab.home import lab
from vmtax.lab.start import Wish, start
from vmtax.plan.schema import load
from vmtax.storage.ground import RAIDZ_DISKS

PLAN = """\
name: cuts
layers: [vm]
guest: {{vcpus: 1, memory: 512MiB}}
combinations:
{combinations}
workloads:
  - durability:
      {{writers: [append-fsync-4k, rename-fsync-16k, sqlite-wal], size: 64MiB, seconds: {seconds}, states: {states}}}
precision: none
rounds: {{min: {rounds}, max: {rounds}}}
budget: 8h
"""
ONE_DISK = """\
  - {disk.volume: [lvm], disk.filesystem: [none], disk.cache: [none, writeback, unsafe], disk.aio: [threads]}
  - {disk.volume: [lvm-thin], disk.filesystem: [none], disk.cache: [none], disk.aio: [threads]}
  - {disk.volume: [dataset], zfs.sync: [standard, disabled], disk.cache: [writeback], disk.aio: [threads]}
  - disk.volume: [zvol]
    disk.filesystem: [none]
    zfs.sync: [standard, disabled]
    disk.cache: [none]
    disk.aio: [threads]
  - {disk.filesystem: [xfs], disk.format: [qcow2], disk.cache: [none, unsafe], disk.aio: [threads]}
  - {disk.filesystem: [ext4, btrfs], disk.cache: [writeback], disk.aio: [threads]}
  - {disk.filesystem: [ext4], disk.barriers: [off], disk.cache: [none], disk.aio: [threads]}
"""
RAIDZ = """\
  - {disk.volume: [raidz1-dataset], zfs.sync: [standard, disabled], disk.cache: [writeback], disk.aio: [threads]}
  - disk.volume: [raidz1-zvol]
    disk.filesystem: [none]
    zfs.sync: [standard, disabled]
    disk.cache: [none]
    disk.aio: [threads]
"""
LOSES = ("disk.cache=unsafe", "zfs.sync=disabled", "disk.barriers=off")
DEVICE = "/dev/disk/by-id/virtio-vmtax-spare{}"


def plan_text(states: int, rounds: int, *, raidz: bool = False) -> str:
    """The plan, over one disk, or over four."""
    # A state of several disks is a moment at which they were watched, and with sync=disabled ZFS writes each 5 s alone.
    seconds = 20 if raidz else 6
    combinations = (RAIDZ if raidz else ONE_DISK).rstrip()
    return PLAN.format(combinations=combinations, seconds=seconds, states=states, rounds=rounds)


def wrong(data: dict[str, Any], expected: Sequence[str] = ()) -> Iterator[str]:
    """What a run shows that it must not; its answer as JSON. `expected`: the configurations of its plan."""
    for failure in data["failures"]:
        yield f"{failure['treatment']}: {failure['error']}"
    if data["durability"] is None:
        yield "no trial has a result"
        return
    tried = {one["treatment"] for one in data["durability"]["evidence"]}
    yield from (f"{name}: was not tried" for name in expected if name not in tried)
    for one in data["durability"]["evidence"]:
        name, end = one["treatment"], next((end for end in one["ends"] if end["end"] == "stack-cut"), None)
        if end is None or not end["states"]:
            yield f"{name}: no state of the host's disk"
            continue
        must = any(level in name.split() for level in LOSES)
        if must != bool(end["lost"]):
            words = "and it must" if must else "but it must not"
            yield f"{name}: {end['lost']} of {end['states']} states lost data, {words}"
        if end["control"] is None or not end["control"]["lost"]:
            yield f"{name}: what never flushes lost nothing"
        if "raidz" in name and not end["states_without_disk"]:
            yield f"{name}: no state without a disk"


def counted(data: dict[str, Any]) -> Iterator[str]:
    """A line for each configuration."""
    for one in (data["durability"] or {"evidence": ()})["evidence"]:
        for end in one["ends"]:
            control = end["control"] or {"lost": 0, "states": 0}
            gone = end["states_without_disk"]
            without = f", {end['lost_without_disk']} of {gone} with a disk gone" if gone else ""
            yield (
                f"{one['treatment']}: {end['end']} lost {end['lost']} of {end['states']}{without},"
                f" control {control['lost']} of {control['states']}"
            )


def prove(directory: Path, states: int, rounds: int, *, raidz: bool) -> int:
    """How much was wrong."""
    one, plan = lab("prove"), directory / "plan.yaml"
    plan.write_text(plan_text(states, rounds, raidz=raidz))
    disks = RAIDZ_DISKS if raidz else 1
    start(one, Wish(spares=disks, log_writes=True), lambda event: None)
    devices = [word for number in range(1, disks + 1) for word in ("--disk-device", DEVICE.format(number))]
    where = ("--host", f"lab:{one.name}", *devices, "--emulate", "--yes", "--json")
    argv = (sys.executable, "-m", "vmtax", "run", str(plan), *where)
    done = subprocess.run(argv, cwd=directory, stdout=subprocess.PIPE)
    try:
        data = json.loads(done.stdout)["data"]
        failures = list(wrong(data, [treatment.name for treatment in load(str(plan)).treatments()[0]]))
    except (ValueError, KeyError):
        sys.exit(f"the run has no answer: exit code {done.returncode}")
    print(*counted(data), *(f"WRONG: {line}" for line in failures), sep="\n", flush=True)
    return len(failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=30, help="of each configuration in each round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--raidz", action="store_true", help="RAIDZ1 over four disks alone, also with one of them gone")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="vmtax-prove-") as directory:
        os.environ |= {"XDG_DATA_HOME": f"{directory}/data", "XDG_STATE_HOME": f"{directory}/state"}
        try:
            failures = prove(Path(directory), asked.states, asked.rounds, raidz=asked.raidz)
        finally:
            one = lab("prove")
            for end in (cut, remove):
                try:
                    end(one)
                except CannotDo as error:
                    print(error, file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
