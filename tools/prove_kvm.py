"""Shows that VMs of the user's on a host with KVM are measured as they run and as clones, and left as they were.

    python -m tools.prove_kvm [--kills 6] [--seed N] [--only SECTION …] [--guests DIR]

The host is a Debian 13 of its own, emulated here: its KVM is the real module on emulated AMD-V, its libvirt is set up
as Debian does, so QEMU runs as a user of its own, confined by AppArmor, in a cgroup of machine.slice. It is reached by
ssh, as any remote host. What tools/prove_guests.py shows without KVM is shown there of a Debian 11 and a Debian 13.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.owners_host import ALIAS, GUESTS, host_files, owners_host
from tests.owners_vm import OF_START, WITHOUT_SYSTEMD, GuestFiles, guest_files, without_systemd
from tools import prove_clones
from tools.prove_guests import IMAGES, Bench, GuestScore, run_sections, verdict
from tools.prove_planted import vmtax

HOST = f"ssh://{ALIAS}"
DOMAIN = {"kind": "kvm", "cpu": "host-passthrough"}
EMULATED = "EMULATED: The host under test is itself emulated"
IDLE = """\
name: owners-idle
workloads: [{idle: {seconds: 5}}]
rounds: {min: 2, max: 2}
"""


def confined(bench: Bench) -> None:
    """KVM and AppArmor are really what the domain runs with; its settings are read there."""
    with bench.lv.domain("seen", bench.new, **DOMAIN, driver=" cache='writethrough'") as here:
        label = bench.lv.virsh("dominfo", here)
        bench.score.check("apparmor" in label and "(enforcing)" in label, f"AppArmor confines it: {label}")
        line = bench.lv.must("sh", "-c", "tr '\\0' ' ' < /proc/$(cat /run/libvirt/qemu/seen.pid)/cmdline")
        bench.score.check("-accel kvm" in line, f"KVM runs it: {line[:300]}")
        said = vmtax(bench, "doctor", f"libvirt:{here}", "--host", HOST)
        bench.score.check("disk.cache=writethrough" in said, f"doctor names it: {said}")
        plan = vmtax(bench, "plan", "from", f"libvirt:{here}", "--host", HOST)
        bench.score.check("disk.cache: [writethrough" in plan, f"its plan has it: {plan[:600]}")


def as_it_runs(bench: Bench) -> None:
    """Both guests."""
    for name, files in (("web1", bench.old), ("web2", bench.new)):
        with bench.lv.domain(name, files, **DOMAIN) as here:
            before = bench.definition(here)
            code, said = bench.measured(here, "--rounds", "1")
            print(said[said.find("\nowners-vm on") :], flush=True)
            bench.score.check(code == 0 and "as before, and running" in said, f"{here}: {said[-600:]}")
            bench.score.check("not measured" not in said, f"{here}: every figure is there: {said[-300:]}")
            bench.score.check(EMULATED in said, f"{here}: its KVM is on an emulated CPU: {said[-600:]}")
            bench.is_left_alone(here, before, here)


def killed(bench: Bench) -> None:
    """SIGKILL of the program here at random moments: the guard there undoes the run."""
    with bench.lv.domain("web1", bench.old, **DOMAIN) as here:
        bench.kill_runs(here, bench.kills)


def watched(bench: Bench) -> None:
    """The ledger: which of the host's CPU the domain's threads take."""
    with bench.lv.domain("idle", bench.new, **DOMAIN) as here:
        before = bench.definition(here)
        code, said = bench.measured(here, plan=IDLE)
        print(said[said.find("\nowners-idle on") :], flush=True)
        bench.score.check(code == 0 and EMULATED in said, f"idle: {said[-600:]}")
        data = json.loads(vmtax(bench, "show", "--json"))["data"]
        seen = {one["metric"] for one in data["measurements"] if one["treatment"] == "existing"}
        bench.score.check(any("cpu" in metric for metric in seen), f"idle: the CPU of its threads: {seen}")
        bench.is_left_alone(here, before, "idle")


def cloned(bench: Bench) -> None:
    """Three settings on clones, while the domain runs and while it is off; then runs that clone are killed."""
    quick = replace(bench.old, disk=bench.old.disk.with_name(WITHOUT_SYSTEMD))  # soon enough to be booted often
    with bench.lv.domain("copied11", quick, **DOMAIN, words=OF_START) as here:
        for state in ("running", "shut off"):
            if state == "shut off":
                prove_clones.shut_off(bench, here)
            prove_clones.compared(bench, here, state)
            prove_clones.killed_in(bench, here, bench.kills // 2, state)


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "confined": confined,
    "as-it-runs": as_it_runs,
    "kills": killed,
    "idle": watched,
    "clones": cloned,
}


def main() -> int:
    """0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    parser.add_argument("--guests", type=Path, help="keep the files of host and guests there, and take those there")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the host ends with this
    began, score = time.monotonic(), GuestScore()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="owners-") as name:
        directory = Path(name)
        made = given.guests or directory
        made.mkdir(exist_ok=True)
        guests = {suite: guest_files(suite, made) for suite in ("bullseye", "trixie")}
        guests["quick"] = without_systemd(guests["bullseye"], made)
        with owners_host(host_files(made, guests), directory) as lv:
            print(f"the host is up after {time.monotonic() - began:.0f} s", flush=True)
            old, new = (there(guests[suite]) for suite in ("bullseye", "trixie"))
            chance = random.Random(given.seed)
            bench = Bench(lv, score, directory, old, new, given.kills, 2, chance, lv.files(IMAGES), ("--host", HOST))
            run_sections(bench, SECTIONS, given.only)
    return verdict(score, began)


def there(files: GuestFiles) -> GuestFiles:
    """Their copies on that host."""
    return GuestFiles(*(Path(GUESTS / file.name) for file in (files.disk, files.kernel, files.initrd)))


if __name__ == "__main__":
    sys.exit(main())
