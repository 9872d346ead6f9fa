"""Shows that a VM of the user's is measured as it runs, and left as it was; prints counts, all bad ones 0.

    python -m tools.prove_guests [--kills 10] [--seed N] [--rounds 7] [--part PART] [--only SECTION …] [--guests DIR]

A Debian 11 and a Debian 13 guest that no image of vmtax booted, without network, ssh server or Python, run in a real
libvirt (emulated where there is no KVM). Each is measured through a plugged port, on machine types q35 and pc, with its
disk on virtio, SCSI and SATA. One is measured against itself: no difference may be shown. Then runs are killed by
SIGKILL at random moments: definition and state of the domain must be as before, and nothing of the run left in it. One
guest's agent may not start programs, one domain is destroyed while it is measured, and one is rebooted, full and
read-only (tools/prove_odd.py); one has busybox for a userland (tools/prove_userland.py). Last, VMs of a stand-in for a
Proxmox VE node are measured (tools/prove_proxmox.py).

Part `planted`: bad settings that were planted are named first with what they cost, which ends with what `doctor` says
to change (tools/prove_planted.py, tools/prove_limits.py). Part `clones`: clones of both guests are measured with three
settings, while the domains run and while they are off (tools/prove_clones.py), and runs are killed again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.owners_vm import GuestFiles, Libvirt, guest_files, libvirt, wait_until
from tools import prove_clones, prove_limits, prove_odd, prove_planted, prove_proxmox, prove_userland
from tools.score import Score

PLAN = """\
name: owners-vm
workloads:
  - chess: {depth: 4, emulated_depth: 4}
  - disk: {patterns: [randread-4k-qd1, randwrite-4k-fsync], seconds: 1, size: 32MiB}
primary: [chess.nodes_per_second, disk.randread-4k-qd1.iops]
rounds: {min: 7, max: 7}
iterations: 1
"""
IMAGES = "/var/tmp/vmtax-*-image-*"  # that runs have plugged into VMs
# What a run leaves in a guest if something is wrong: a process of its unit, a mount, or its port.
LEFT = (
    "for each in /proc/[0-9]*; do case \"$(tr '\\0' ' ' < $each/cmdline 2> /dev/null)\" in"
    ' *unshare" --mount "*vmtax*|"sh -c "*" vmtax-"*"-image "*|sshd*|/usr/sbin/sshd*) exit 1 ;; esac; done; '
    "! grep -q erofs /proc/mounts && ! ls /dev/virtio-ports/ 2>/dev/null | grep -q vmtax"
)


@dataclass
class GuestScore(Score):
    """With how often guests were measured, and runs killed."""

    runs: int = 0
    kills: int = 0


@dataclass(frozen=True)
class Bench:
    """One libvirt with vmtax beside it, which has a store of its own."""

    lv: Libvirt
    score: GuestScore
    home: Path
    old: GuestFiles  # Debian 11
    new: GuestFiles  # Debian 13
    kills: int
    rounds: int
    chance: random.Random
    others: frozenset[str]  # images that somebody else's run has plugged in, or left
    where: tuple[str, ...] = ("--emulate",)  # options of a run, for where the libvirt is

    @property
    def environment(self) -> dict[str, str]:
        places = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE")}
        return {**self.lv.environment, **places}

    def command(self, *words: str) -> list[str]:
        return self.lv.vmtax(sys.executable, "-m", "vmtax", *words)

    def start(self, name: str, *words: str, plan: str = PLAN) -> subprocess.Popen[str]:
        file = self.home / "owners.yaml"
        file.write_text(plan)
        argv = self.command("run", str(file), "--guest", f"libvirt:{name}", *self.where, "--yes", "--wait")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        argv += ["-o", str(self.home / "report.html"), *words]
        return subprocess.Popen(argv, env=self.environment, cwd=self.home, **pipes)  # type: ignore[call-overload,no-any-return]

    def measured(self, name: str, *words: str, plan: str = PLAN) -> tuple[int, str]:
        """Exit code and output of a whole run."""
        self.score.runs += 1
        run = self.start(name, *words, plan=plan)
        said, _ = run.communicate()
        return run.returncode, said

    def comparisons(self) -> list[dict[str, object]]:
        """Those of the newest run."""
        argv = [sys.executable, "-m", "vmtax", "show", "--json"]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, cwd=self.home)
        found: list[dict[str, object]] = json.loads(done.stdout)["data"]["comparisons"]
        return found

    def images(self) -> frozenset[str]:
        """The root images that runs have plugged into VMs."""
        return self.lv.files(IMAGES)

    def definition(self, name: str) -> str:
        return self.lv.virsh("dumpxml", name) + self.lv.virsh("dumpxml", name, "--inactive")

    def is_left_alone(self, name: str, before: str, what: str) -> None:
        """Wait until the guard has undone a run, and check what is left of it."""

        def same() -> bool:
            return self.definition(name) == before and self.images() <= self.others

        try:
            wait_until(same, "the domain is as before", 120.0)
            self.score.check(True, what)
        except AssertionError:
            self.score.check(False, f"{what}: the domain's definition or a file of the run")
        self.score.check(self.lv.virsh("domstate", name).split()[0] == "running", f"{what}: the domain still runs")
        try:
            wait_until(lambda: self.lv.shell(name, LEFT) == 0, "nothing is left in the guest", 240.0)
            self.score.check(True, what)
        except AssertionError:
            self.score.check(False, f"{what}: something of the run is left in the guest")

    def kill_runs(self, name: str, kills: int) -> None:
        """SIGKILL at random moments of runs that measure a domain."""
        before = self.definition(name)
        for number in range(1, kills + 1):
            run = self.start(name, "--rounds", "3")
            seconds = self.chance.uniform(0.5, 45.0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.communicate(timeout=seconds)
            run.send_signal(signal.SIGKILL)
            run.communicate()
            self.score.kills += 1
            self.is_left_alone(name, before, f"{name}: kill {number} after {seconds:.1f} s")
            print(f"{name}: {number} of {kills} kills; wrong: {len(self.score.wrong)}", flush=True)


def buses(bench: Bench) -> None:
    """The same guest with its disk on other buses, and on the old machine type."""
    scsi = "<controller type='scsi' model='virtio-scsi'/>"
    for machine, bus, root, more in (
        ("pc", "virtio", "vda", ""),
        ("q35", "scsi", "sda", scsi),
        ("q35", "sata", "sda", ""),
    ):
        what = f"Debian 13 on {machine}, {bus}"
        words = {"machine": machine, "bus": bus, "root": root, "more": more}
        with bench.lv.domain(f"web2-{machine}-{bus}", bench.new, **words) as here:
            before = bench.definition(here)
            code, said = bench.measured(here, "--rounds", "1")
            bench.score.check(code == 0 and "as before, and running" in said, f"{what}: {said[-300:]}")
            bench.score.check("not measured" not in said, f"{what}: every figure is there")
            bench.is_left_alone(here, before, what)


def against_itself(bench: Bench) -> None:
    """An A/A of the guest: no difference may be shown, and the noise is in the answer."""
    with bench.lv.domain("web1", bench.old) as name:
        _against_itself(bench, name, bench.rounds)


def _against_itself(bench: Bench, name: str, rounds: int) -> None:
    before = bench.definition(name)
    code, said = bench.measured(name, "--rounds", str(rounds))
    bench.score.check(code == 0, f"{name}, {rounds} rounds: {said[-300:]}")
    again = [one for one in bench.comparisons() if one.get("treatment") == "existing again"]
    shown = [one for one in again if one.get("verdict") in ("worse", "better")]
    print(f"{name} against itself: {len(again)} figures, a difference shown in {len(shown)}", flush=True)
    bench.score.check(bool(again) and len(shown) <= 1, f"{name} against itself: {shown}")
    bench.is_left_alone(name, before, f"{name}, {rounds} rounds")


def killed(bench: Bench) -> None:
    """SIGKILL at random moments, from the first command on; then a killed run goes on."""
    with bench.lv.domain("web1", bench.old) as name:
        bench.kill_runs(name, bench.kills)
        goes_on(replace(bench, home=bench.home / "goes-on"), name, bench.definition(name))


def goes_on(bench: Bench, name: str, before: str) -> None:
    """A run that is killed once it has a figure goes on. `bench`: with a home that is still to be made."""
    bench.home.mkdir()
    run = bench.start(name, "--rounds", "2")
    wait_until(partial(prove_clones.has_more, bench, run, 0), "a figure", prove_clones.FIGURE_SECONDS)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    bench.score.kills += 1
    bench.is_left_alone(name, before, "a kill after the first figure")
    argv = [sys.executable, "-m", "vmtax", "run", "--resume", "--yes", "-o", str(bench.home / "resumed.html")]
    done = subprocess.run(argv, env=bench.environment, capture_output=True, text=True, cwd=bench.home)
    bench.score.check(done.returncode == 0, f"the newest killed run goes on: {done.stderr[-300:]}")
    bench.is_left_alone(name, before, "a resumed run")


def refused(bench: Bench) -> None:
    """States and agents with which nothing can be measured: one line, and nothing done to the domain."""
    with bench.lv.domain("paused", bench.old) as name:
        bench.lv.virsh("suspend", name)
        code, said = bench.measured(name, "--rounds", "1")
        bench.score.check(code != 0 and "is paused" in said and "virsh resume" in said, f"paused: {said[-200:]}")
        code, said = bench.measured("nobody", "--rounds", "1")
        bench.score.check(code != 0 and "there are:" in said, f"no such domain: {said[-200:]}")
    with bench.lv.domain("forbidden", bench.old) as here:
        blocked = "mkdir -p /etc/qemu; printf '[general]\\nblacklist=guest-exec\\n' > /etc/qemu/qemu-ga.conf; "
        bench.lv.shell(here, f"{blocked}systemd-run --on-active=2 systemctl restart qemu-guest-agent")
        time.sleep(3)

        def forbidden() -> bool:
            said = bench.lv.virsh("qemu-agent-command", here, '{"execute":"guest-info"}', check=False)
            return '"enabled":false,"name":"guest-exec"' in said

        wait_until(forbidden, "the agent may not start programs", 120.0)
        before = bench.definition(here)
        code, said = bench.measured(here, "--rounds", "1")
        bench.score.check(code != 0 and "may not start programs" in said, f"a forbidden agent: {said[-300:]}")
        bench.score.check(bench.definition(here) == before, "a forbidden agent: the domain is as before")


def destroyed(bench: Bench) -> None:
    """The owner ends the VM while it is measured: the run ends with a sentence."""
    bench = replace(bench, home=bench.home / "destroyed")  # a store without other runs
    bench.home.mkdir()
    with bench.lv.domain("destroyed", bench.old) as here:
        run = bench.start(here, "--rounds", "3")
        wait_until(partial(prove_clones.has_more, bench, run, 0), "a figure", prove_clones.FIGURE_SECONDS)
        bench.score.check(run.poll() is None, "a run goes on after its first figure")
        bench.lv.virsh("destroy", here)
        said, _ = run.communicate()
        last = said.strip().splitlines()[-1]
        bench.score.check("Traceback" not in said and bool(last), f"destroyed while measured: {said[-300:]}")
        print(f"destroyed while it was measured: exit code {run.returncode}: {last[:200]}", flush=True)


# Three proofs: each part takes long enough to be recorded alone.
PARTS: dict[str, dict[str, Callable[[Bench], None]]] = {
    "guests": {
        "kills": killed,
        "itself": against_itself,
        "refused": refused,
        "destroyed": destroyed,
        "odd": prove_odd.odd,
        "buses": buses,
        "busybox": prove_userland.busybox,
        "proxmox": prove_proxmox.proxmox,
    },
    "planted": {
        "planted": prove_planted.named,
        "planted-cache": prove_planted.cache,
        "planted-bus": prove_planted.bus,
        "planted-limit": prove_planted.limit,
        "planted-card": prove_planted.card,
        "limited": prove_limits.limited,
    },
    "clones": {
        "clones-11": prove_clones.of_debian_11,
        "clones-13": prove_clones.of_debian_13,
        "clone-kills": prove_clones.killed,
        "clone-resumed": prove_clones.resumed,
        "clone-started": prove_clones.started,
    },
}
SECTIONS = {name: section for part in PARTS.values() for name, section in part.items()}


def main() -> int:
    """0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--part", choices=PARTS, default="guests", help="the sections of this proof")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections alone, of whatever part")
    parser.add_argument("--guests", type=Path, help="keep the guests' files there, and take those that are there")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the libvirt ends with this
    began, score = time.monotonic(), GuestScore()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="owners-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        made = given.guests or directory
        made.mkdir(exist_ok=True)
        old, new = (guest_files(suite, made) for suite in ("bullseye", "trixie"))
        (directory / "lv").mkdir()
        with libvirt(directory / "lv") as lv:
            chance = random.Random(given.seed)
            bench = Bench(lv, score, directory, old, new, given.kills, given.rounds, chance, lv.files(IMAGES))
            run_sections(bench, SECTIONS, given.only or [*PARTS[given.part]])
    return verdict(score, began)


def run_sections(bench: Bench, sections: Mapping[str, Callable[[Bench], None]], names: Sequence[str]) -> None:
    """Those of these names, one after the other."""
    for name in names:
        start = time.monotonic()
        sections[name](bench)
        print(f"{name}: {time.monotonic() - start:.0f} s; wrong: {len(bench.score.wrong)}", flush=True)


def verdict(score: GuestScore, began: float) -> int:
    """Print the counts; returns the exit code: 0 if nothing went wrong."""
    minutes = (time.monotonic() - began) / 60
    print(
        f"{score.runs} whole runs, {score.kills} kills, {score.checks} checks in {minutes:.0f} min; wrong:"
        f" {len(score.wrong)}"
    )
    return 1 if score.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
