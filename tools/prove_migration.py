"""Moves guests between two labs on one network: each must arrive, or the run must say why it did not.

    python -m tools.prove_migration [--moves 10]

That many moves of a guest with a virtio card, and as many of one whose virtual function has a virtio card that stands
by. Prints downtime and lost packets of each, as the peer saw them. A lab whose own kernel panics or hangs, as emulated
ones now and then do, shows nothing: both are started again, and the run goes on; the round in which that happened has
one move less. Exit code 1 if another move has no result, or if the network of a lab is not what it was before.
Its own labs and store; nothing of them is left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.prove_network import network_of
from vmtax.core.errors import CannotDo
from vmtax.lab.end import cut, remove
from vmtax.lab.home import lab
from vmtax.lab.start import Wish, start
from vmtax.machine.local import LocalMachine

PLAN = """\
name: moves
layers: [vm]
guest: {{vcpus: 1, memory: 256MiB}}
factors: {{net.path: [vhost, sriov-standby]}}
workloads:
  - migration: {{seconds: 2, load: 0, rate: 20}}
primary: [migration.downtime_seconds]
precision: none
rounds: {{min: {moves}, max: {moves}}}
budget: 8h
"""
CONFIGURATIONS = ("vm", "vm net.path=sriov-standby")
VMTAX = (sys.executable, "-m", "vmtax")
LABS = ("prove-1", "prove-2")
SIZE = Wish(spares=0, memory_bytes=2 * 2**30)
CARD = "eth2"  # of both labs, with virtual functions
MOST_LOST = 5  # times that the labs are started again
DOWNTIME, LOST, TOTAL = (f"migration.{name}" for name in ("downtime_seconds", "lost_packets", "total_seconds"))


def moves_of(data: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """Configuration -> the figures of each of its moves; of a run's answer as JSON."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in data["measurements"]:
        found[row["treatment"], row["round"]][row["metric"]] = row["value"]
    return {name: [rows for (treatment, _), rows in found.items() if treatment == name] for name in CONFIGURATIONS}


def failed(data: dict[str, Any]) -> dict[tuple[str, int], str]:
    """Configuration and round -> why that move has no result."""
    return {(failure["treatment"], failure["round"]): failure["error"] for failure in data["failures"]}


def is_whole(rows: dict[str, float]) -> bool:
    """Whether a move has all figures."""
    return {DOWNTIME, LOST, TOTAL} <= rows.keys()


def ended_by(data: dict[str, Any]) -> set[tuple[str, int]]:
    """Configuration and round of the moves that a lost lab ended: what the newest round lacks is never measured."""
    newest = max((row["round"] for row in (*data["measurements"], *data["failures"])), default=0)
    rows = [row for row in data["measurements"] if row["round"] == newest]
    moved = moves_of(data | {"measurements": rows})
    return {(name, newest) for name in CONFIGURATIONS if not any(map(is_whole, moved[name]))} if newest else set()


def wrong(data: dict[str, Any], moves: int, excused: Collection[tuple[str, int]] = ()) -> Iterator[str]:
    """What the run shows that it must not. `excused`: configuration and round of moves that a lost lab ended."""
    for (name, number), why in failed(data).items():
        if (name, number) not in excused:
            yield f"{name}, round {number}: {why}"
    for name, each in moves_of(data).items():
        whole = list(filter(is_whole, each))
        wanted = moves - sum(treatment == name for treatment, _ in excused)
        if len(whole) != wanted:
            yield f"{name}: {len(whole)} moves of {wanted} have a result"


def counted(data: dict[str, Any]) -> Iterator[str]:
    """A line for each configuration."""
    for name, each in moves_of(data).items():
        figures = {
            metric: " ".join(f"{rows[metric]:.3g}" for rows in each if metric in rows)
            for metric in (DOWNTIME, LOST, TOTAL)
        }
        yield (
            f"{name}: {len(each)} moves; downtime at the peer {figures[DOWNTIME]} s; packets lost {figures[LOST]};"
            f" in all {figures[TOTAL]} s"
        )


def _start() -> None:
    """Both labs, on one network."""
    first, second = map(lab, LABS)
    start(first, SIZE, lambda event: None)
    start(second, replace(SIZE, link=first.name), lambda event: None)


def _networks() -> set[str]:
    """What a run may change of both labs' networks, a line for each fact. Raises CannotDo if a lab is lost."""
    with contextlib.closing(LocalMachine()) as local:
        return {f"{name}: {line}" for name in LABS for line in network_of(local, lab(name))}


def _end() -> None:
    for name in reversed(LABS):
        with contextlib.suppress(CannotDo):  # it is off
            cut(lab(name))


def prove(directory: Path, moves: int) -> int:
    """How much was wrong."""
    plan = directory / "plan.yaml"
    plan.write_text(PLAN.format(moves=moves))
    _start()
    before = _networks()
    where = ("--host", f"lab:{LABS[0]}", "--card", CARD, "--destination", f"lab:{LABS[1]}", "--destination-card", CARD)
    words: tuple[str, ...] = (str(plan), *where)
    excused: set[tuple[str, int]] = set()
    for _ in range(MOST_LOST):
        subprocess.run((*VMTAX, "run", *words, "--emulate", "--yes"), cwd=directory, stdout=subprocess.DEVNULL)
        shown = subprocess.run((*VMTAX, "show", "--json"), cwd=directory, stdout=subprocess.PIPE, check=True)
        data = json.loads(shown.stdout)["data"]
        try:
            after = _networks()
            break
        except CannotDo as error:
            print(f"lost: {error}", flush=True)
            excused |= ended_by(data)
            _end()
            _start()
            before, words = _networks(), ("--resume",)
    else:
        sys.exit(f"the labs were lost {MOST_LOST} times")
    failures = list(wrong(data, moves, excused))
    failures += [f"after the run its network differs: {line}" for line in sorted(before ^ after)]
    print(*counted(data), *(f"WRONG: {line}" for line in failures), sep="\n", flush=True)
    return len(failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=10, help="of each of the two guests")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="vmtax-prove-") as directory:
        os.environ |= {"XDG_DATA_HOME": f"{directory}/data", "XDG_STATE_HOME": f"{directory}/state"}
        try:
            failures = prove(Path(directory), asked.moves)
        finally:
            _end()
            for name in LABS:
                try:
                    remove(lab(name))
                except CannotDo as error:
                    print(error, file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
