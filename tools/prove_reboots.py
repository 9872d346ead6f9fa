"""Runs of `host.kernel_arguments` on a lab that is really rebooted, with vmtax killed in between; as root.

    python -m tools.prove_reboots [--rounds 2] [--layers host] [--only by-hand|by-itself]

By hand: the lab is an ssh host that this program reboots as vmtax says, and goes on with `run --after-reboot`. Once
vmtax is killed within a boot's work, once it is called without a reboot, once after a boot with other arguments. By
itself: the lab reboots itself, and vmtax is killed while it does. Exit code 1 where a trial is missing or there twice,
where one was measured in a boot with other arguments, or where a boot served twice. Its own lab and store; nothing of
them is left.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from vmtax.core.errors import REBOOT
from vmtax.core.records import Experiment
from vmtax.design.host import is_booted, of_boot
from vmtax.design.reboots import boots_of
from vmtax.hypervisor.credentials import HOST_KEY_ALIAS
from vmtax.lab.end import cut, remove
from vmtax.lab.home import Lab, lab
from vmtax.lab.reboot import reboot
from vmtax.lab.start import Wish, start
from vmtax.store import Store
from vmtax.system.paths import state_home

PLAN = """\
name: reboots
layers: [{layers}]
guest: {{vcpus: 1, memory: 512MiB}}
factors: {{host.kernel_arguments: [mitigations=auto, mitigations=off]}}
workloads: [{{cpuid: {{seconds: 1}}}}, {{chess: {{emulated_depth: 1}}}}]
rounds: {{min: {rounds}, max: {rounds}}}
budget: none
"""
ALIAS = "rebooted"
ASKS = re.compile(r"boot the host with (\S+); then: vmtax run --after-reboot (\S+)")
# Gives the command a private ~/.ssh: constant text, the arguments stay arguments.
WITH_SSH = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


class Proof:
    """A lab, the user who reboots it, and what was seen."""

    def __init__(self, directory: Path, asked: argparse.Namespace) -> None:
        self.directory, self.lab, self.failures, self.reboots = directory, lab("prove"), list[str](), 0
        self.plan, self.ssh = directory / "plan.yaml", directory / "ssh"
        self.plan.write_text(PLAN.format(layers=asked.layers, rounds=asked.rounds))
        self.ssh.mkdir(mode=0o700)
        self.home = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")
        self.home.mkdir(mode=0o700, exist_ok=True)

    def boot(self, arguments: str) -> None:
        """As a user boots a host: with these arguments, and under the same name for ssh."""
        if self.lab.up() is None and not self.lab.exists:
            start(
                self.lab, Wish(memory_bytes=1536 * 2**20, spares=0, kernel_arguments=(arguments,)), lambda event: None
            )
        else:
            reboot(self.lab, (arguments,), lambda event: None)
        up = self.lab.running()
        (self.ssh / "config").write_text(
            f"Host {ALIAS}\n HostName 127.0.0.1\n Port {up.port}\n User root\n IdentityFile {up.key}\n"
            f" UserKnownHostsFile {up.known_hosts}\n HostKeyAlias {HOST_KEY_ALIAS}\n BatchMode yes\n LogLevel ERROR\n"
        )
        self.reboots += 1
        print(f"  the lab is booted with {arguments}", flush=True)

    def started(self, *argv: str) -> subprocess.Popen[str]:
        command = ("unshare", "--mount", "sh", "-c", WITH_SSH, "sh", str(self.ssh), str(self.home))
        vmtax = (sys.executable, "-m", "vmtax", "run", *argv, "--yes")
        return subprocess.Popen([*command, *vmtax], cwd=self.directory, stderr=subprocess.PIPE, text=True)

    def vmtax(self, *argv: str) -> tuple[int, str]:
        """Exit code and the last line of one command."""
        process = self.started(*argv)
        last = process.communicate()[1].strip().splitlines()[-1]
        print(f"  vmtax run {' '.join(argv)}: {process.returncode}: {last}", flush=True)
        return process.returncode, last

    def killed(self, *argv: str, when: Callable[[str], bool]) -> None:
        """SIGKILL as soon as that is true of a line that it writes."""
        process = self.started(*argv)
        assert process.stderr is not None
        for line in process.stderr:
            if when(line):
                break
        process.kill()
        process.wait()
        time.sleep(3)  # its guards undo what it had set up
        print(f"  vmtax run {' '.join(argv)}: killed", flush=True)

    def expect(self, what: str, *, holds: bool) -> None:
        if not holds:
            self.failures.append(what)

    @property
    def experiment(self) -> Experiment:
        with Store() as store:
            return store.load("last")


def by_hand(proof: Proof) -> None:
    """A user reboots the host as vmtax says."""
    proof.boot("mitigations=auto")
    code, last = proof.vmtax(str(proof.plan), "--host", f"ssh://{ALIAS}", "--emulate")
    wrong, kill = True, True
    while code == REBOOT:
        asked = ASKS.search(last)
        assert asked, last
        level, run = asked.groups()
        if wrong:
            refused = proof.vmtax("--after-reboot", run)
            proof.expect(f"the same boot was taken: {refused}", holds="was not rebooted" in refused[1])
            proof.boot("mitigations=auto" if level == "mitigations=off" else "mitigations=off")
            before = len(proof.experiment.trials)
            refused = proof.vmtax("--after-reboot", run)
            proof.expect(f"another boot was taken: {refused}", holds="nothing was measured" in refused[1])
            proof.expect("a trial in a boot that was refused", holds=len(proof.experiment.trials) == before)
            wrong = False
        proof.boot(level)
        if kill:
            count = len(proof.experiment.trials)
            _kill_after(proof, count + 1, "--after-reboot", run)
            done = len(proof.experiment.trials) - count
            print(f"  {done} trial{'' if done == 1 else 's'} of that boot when it was killed", flush=True)
            kill = False
            code, last = proof.vmtax("--resume", run)
        else:
            code, last = proof.vmtax("--after-reboot", run)
    proof.expect(f"it ended with {code}: {last}", holds=code == 0)
    judge(proof, "by hand")


def _kill_after(proof: Proof, trials: int, *argv: str) -> None:
    process = proof.started(*argv)
    while process.poll() is None and len(proof.experiment.trials) < trials:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    time.sleep(3)
    print(f"  vmtax run {' '.join(argv)}: killed", flush=True)


def by_itself(proof: Proof) -> None:
    """The lab reboots itself; vmtax is killed while the lab shuts down, and while it starts."""
    if proof.lab.up() is None:
        proof.boot("mitigations=auto")
    argv = [str(proof.plan), "--host", f"lab:{proof.lab.name}", "--emulate"]
    proof.killed(*argv, when=lambda line: line.startswith("rebooting the lab") and runs(proof, "while the lab reboots"))
    run = proof.experiment.id
    proof.expect("it runs after SIGKILL", holds=proof.experiment.state == "interrupted")
    proof.killed(
        *("--resume", run),
        when=lambda line: line.startswith("starting the lab") and runs(proof, "while the lab starts"),
    )
    code, last = proof.vmtax("--resume", run)
    proof.expect(f"it ended with {code}: {last}", holds=code == 0)
    judge(proof, "by itself")


def runs(proof: Proof, when: str) -> bool:
    """True; a failure is noted where the run is not recorded as running."""
    state = proof.experiment.state
    print(f"  {when} the run is {state}", flush=True)
    proof.expect(f"{when} the run is {state}", holds=state == "running")
    return True


def judge(proof: Proof, how: str) -> None:
    """What the store says."""
    found = proof.experiment
    level = {treatment.name: of_boot(treatment) for treatment in found.treatments}
    levels, boots = tuple(dict.fromkeys(level.values())), boots_of(found)
    times = Counter((t.round, t.treatment, t.workload, t.case, t.iteration) for t in found.trials)
    cases = {(t.treatment, t.workload, t.case) for t in found.trials}
    rounds = found.plan["rounds"]["max"]
    missing = rounds * len(cases) - len(times)
    twice = sum(count > 1 for count in times.values())
    elsewhere = 0
    for trial in found.trials:
        boot = [boot for boot in boots if boot["began"] <= trial.started][-1]
        right = (boot["round"], boot["level"]) == (trial.round, level[trial.treatment])
        elsewhere += not (right and is_booted(boot["level"], levels, boot["kernel_command_line"]))
    ids = Counter(boot["boot_id"] for boot in boots)
    bad = sum(trial.status != "ok" for trial in found.trials)
    print(
        f"{how}: {found.state}, {len(found.trials)} trials in {len(boots)} boots of the host; missing {missing}, twice"
        f" {twice}, in another boot than recorded {elsewhere}, failed {bad}",
        flush=True,
    )
    for boot in boots:
        print(f"  round {boot['round']} {boot['level']:<17} {boot['boot_id'][:8]} {boot['mitigations']['spectre_v2']}")
    proof.expect(f"{how}: trials missing or twice", holds=not (missing or twice or elsewhere))
    proof.expect(f"{how}: a boot served twice", holds=all(count == 1 for count in ids.values()))
    proof.expect(f"{how}: {found.state}", holds=found.state == "complete")
    vulnerable = {boot["level"] for boot in boots if "Vulnerable" in boot["mitigations"]["spectre_v2"]}
    proof.expect(f"{how}: vulnerable with {vulnerable}", holds=vulnerable == {"mitigations=off"})


def _gone(one: Lab) -> None:
    if one.up():
        cut(one)
    if one.exists:
        remove(one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--layers", default="host")
    parser.add_argument("--only", choices=("by-hand", "by-itself"))
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # in order, so that nothing is left
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        for kind in ("DATA", "STATE"):
            os.environ[f"XDG_{kind}_HOME"] = f"{directory}/{kind.lower()}"
        proof = Proof(Path(directory), asked)
        try:
            for name, part in (("by-hand", by_hand), ("by-itself", by_itself)):
                if asked.only in (None, name):
                    part(proof)
        finally:
            _gone(proof.lab)
        left = len(list((state_home() / "undo").glob("*.undo")))  # of killed runs and reboots, their guards' lists
        proof.expect(f"{left} undo lists are left", holds=left == 0)
    seconds = time.monotonic() - began
    print(f"{proof.reboots} reboots by hand, {seconds:.0f} s; left behind: {left}; failures: {len(proof.failures)}")
    for line in proof.failures:
        print(f"  {line}")
    sys.exit(bool(proof.failures))


if __name__ == "__main__":
    main()
