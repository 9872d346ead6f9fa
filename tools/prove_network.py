"""Kills runs that gave guests a network card's functions: the host's network must be what it was; as root.

    python -m tools.prove_network [--kills 20] [--seed N]

A lab is the host, and the moments are random. Before and after each kill are compared: links, forwarding databases,
the number of functions, which driver has which PCI device, namespaces, and on the launching machine the links and
addresses of the lab's peer and the servers there. A lab whose own kernel panics meanwhile, as emulated ones now and
then do, says nothing: it is started again, and that kill is repeated. Exit code 1 where something differs, or where no
kill met a run that had changed anything. Its own lab and store; nothing of them is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from vmtax.core.errors import CannotDo
from vmtax.lab.end import cut, remove
from vmtax.lab.home import Lab, lab
from vmtax.lab.reach import reach
from vmtax.lab.start import Wish, start
from vmtax.machine.local import LocalMachine
from vmtax.system.paths import state_home

PLAN = """\
name: network
layers: [vm]
guest: {vcpus: 2, memory: 512MiB}
combinations:
  - {net.path: [vhost], net.queues: [1, 2]}
  - {net.path: [sriov, sriov-standby]}
workloads: [{net: {seconds: 2, rate: 20}}]
iterations: 1
rounds: {min: 1, max: 1}
"""
LONGEST_SECONDS = 75  # of a run before it is killed; a whole one takes twice as long
UNDO_SECONDS = 30  # for what was set up to be undone
MOST_LOST = 10  # labs
# What the run may change on its host, a line for each fact. Constant text.
STATE = (
    *("sh", "-c"),
    "for card in /sys/class/net/*/device; do for file in sriov_numvfs sriov_drivers_autoprobe; do"
    ' test ! -e "$card/$file" || echo "$card $file $(cat "$card/$file")"; done; done;'
    "for device in /sys/bus/pci/devices/*; do"
    ' echo "$device $(readlink "$device/driver") $(cat "$device/driver_override")"; done;'
    " ls /run/netns; grep . /proc/sys/net/ipv6/conf/*/disable_ipv6",
)
SERVERS = ("iperf3", "sockperf", "smbd")


def links(text: str) -> list[str]:
    """Of `ip -d -j link`, without the counters."""
    found: list[dict[str, Any]] = json.loads(text)
    return [repr({name: value for name, value in link.items() if "stats" not in name}) for link in found]


def network_of(local: LocalMachine, one: Lab) -> list[str]:
    """What a run may change of the lab's own network, a line for each fact. Raises CannotDo where the lab is lost."""
    machine = reach(local, one)
    try:
        lines = links(machine.run("ip", "-d", "-j", "link"))
        lines += map(repr, json.loads(machine.run("bridge", "-j", "fdb")))
        return lines + machine.run(*STATE).splitlines()
    finally:
        machine.close()


class Proof:
    """A lab, what its network was like before the first run, and what was seen."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.lab, self.lost = directory, lab("prove"), 0
        self.plan = directory / "plan.yaml"
        self.plan.write_text(PLAN)
        self.before: list[str] = []
        self.met = 0  # kills of runs that had changed something

    def boot(self) -> None:
        if self.lab.up() is None:
            start(self.lab, Wish(spares=0), lambda event: None)
        self.before = self.state()

    def state(self) -> list[str]:
        """What a run may change, a line for each fact. Raises CannotDo where the lab is lost."""
        local, peer = LocalMachine(), self.lab.running().peer_namespace
        assert peer is not None, "a lab that root started has a peer"
        try:
            lines = network_of(local, self.lab)
            lines += links(local.run("ip", "-n", peer, "-d", "-j", "link"))
            addresses = json.loads(local.run("ip", "-n", peer, "-j", "address"))
            lines += [f"peer {entry}" for link in addresses for entry in link["addr_info"]]
            here = local.run("ip", "netns", "pids", peer).split()
            names = [local.try_run("cat", f"/proc/{pid}/comm").stdout.strip() for pid in here]
            return sorted([*lines, *(f"server {name}" for name in names if name in SERVERS)])
        finally:
            local.close()

    def kill(self, seconds: float) -> bool:
        """Begin a run, kill it after that time, and print what differs; whether nothing does in the end."""
        argv = [
            sys.executable,
            "-m",
            "vmtax",
            "run",
            str(self.plan),
            "--host",
            f"lab:{self.lab.name}",
            "--emulate",
            "--yes",
        ]
        process = subprocess.Popen(argv, cwd=self.directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(seconds)
            met = self.state()
        finally:
            process.kill()
            process.wait()
        deadline = time.monotonic() + UNDO_SECONDS
        while (after := self.state()) != self.before and time.monotonic() < deadline:
            time.sleep(0.5)
        differ, left = set(met) ^ set(self.before), sorted(set(after) ^ set(self.before))
        print(f"killed after {seconds:4.1f} s: {len(differ)} facts differed then, {len(left)} afterwards", flush=True)
        for line in left:
            print(f"  {'was' if line in self.before else 'is'}: {line}")
        self.met += bool(differ)
        return not left


def prove(proof: Proof, kills: int, moments: random.Random) -> int:
    """How many of the kills left something."""
    failures = done = 0
    proof.boot()
    while done < kills:
        try:
            failures += not proof.kill(moments.uniform(3, LONGEST_SECONDS))
            done += 1
        except CannotDo as error:
            proof.lost += 1
            print(f"the lab was lost: {error}", flush=True)
            if proof.lost > MOST_LOST:
                return kills - done
            if proof.lab.up():
                cut(proof.lab)  # it hangs
            proof.boot()
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # in order, so that nothing is left
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        for kind in ("DATA", "STATE"):
            os.environ[f"XDG_{kind}_HOME"] = f"{directory}/{kind.lower()}"
        proof = Proof(Path(directory))
        try:
            failures = prove(proof, asked.kills, random.Random(asked.seed))
        finally:
            if proof.lab.up():
                cut(proof.lab)
            if proof.lab.exists:
                remove(proof.lab)
        left = len(list((state_home() / "undo").glob("*.undo")))
    seconds = time.monotonic() - began
    print(
        f"{asked.kills} kills, {proof.met} of runs that had changed something; left behind by {failures}, undo lists"
        f" {left}; labs lost {proof.lost}; {seconds:.0f} s"
    )
    sys.exit(bool(failures or left or not proof.met))


if __name__ == "__main__":
    main()
