"""Shows that a fleet is measured once, whoever is killed: two controllers, six hosts, one store; all bad counts are 0.

    python -m tools.prove_fleet [--rounds 6] [--hosts 6]

Each host is an sshd in namespaces of its own, with its own machine-id; one more has changed its host key. Two
controllers run the playbook of `vmtax fleet playbook` by a real ansible-playbook, and share a store in a real
PostgreSQL. When some trials are stored, one controller is killed by SIGKILL with all its processes; later the server is
stopped for 5 s. Then `vmtax fleet run` measures the hosts once more, and `vmtax fleet compare` compares them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.postgresql import PostgresqlServer
from tools.score import Score
from vmtax.core.errors import FAILED
from vmtax.core.records import Experiment
from vmtax.store import Store, StoreError
from vmtax.store.address import ServerAddress

FLEET, AGAIN = "proof", "again"
AGAIN_ROUNDS = 2  # of the second time: the fewest that are compared
PLAN = """\
name: fleet
layers: [host]
workloads: [{{chess: {{depth: 6, emulated_depth: 6}}}}]
rounds: {{min: {rounds}, max: {rounds}}}
"""
CONTROLLER = "PROVE_FLEET"  # environment variable of all processes of a controller
AWAY_SECONDS = 5.0  # for which the server is stopped
BUSY_DELAY = 2  # seconds until a busy host is tried again
WAIT_SECONDS = 1800.0  # for what must happen
WITH_SSH_DIRECTORY = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
WITH_MACHINE_ID = 'mount --bind "$1" /etc/machine-id && shift && exec "$@"'
RECAP = re.compile(r"^(\S+)\s*: ok=(\d+).*unreachable=(\d+)\s+failed=(\d+)", re.M)


@dataclass(frozen=True)
class TestHost:
    """An sshd in a network and a mount namespace."""

    number: int
    place: Path

    @property
    def name(self) -> str:
        return f"h{self.number}"

    @property
    def namespace(self) -> str:
        return f"vmtax-fleet-{self.number}"

    @property
    def address(self) -> str:
        return f"10.79.{self.number}.2"

    @contextmanager
    def standing(self, keys: Path) -> Iterator[None]:
        (self.place / "state").mkdir(parents=True)
        identity, settings = self.place / "machine-id", self.place / "sshd_config"
        identity.write_text(f"{self.number:032x}\n")
        settings.write_text(
            f"ListenAddress {self.address}\nHostKey {keys}/host_key\nAuthorizedKeysFile {keys}/id.pub\nStrictModes no\n"
            f"UsePAM no\nPidFile none\nMaxSessions 30\nSetEnv XDG_STATE_HOME={self.place}/state\n"
        )
        link = f"vt-fleet-{self.number}"
        with ExitStack() as stack:
            run("ip", "netns", "add", self.namespace)
            stack.callback(run, "ip", "netns", "delete", self.namespace)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
            run("ip", "address", "add", f"10.79.{self.number}.1/30", "dev", link)
            run("ip", "link", "set", link, "up")
            for words in (("link", "set", "lo", "up"), ("address", "add", f"{self.address}/30", "dev", "eth0")):
                run("ip", "-n", self.namespace, *words)
            run("ip", "-n", self.namespace, "link", "set", "eth0", "up")
            sshd = ("/usr/sbin/sshd", "-D", "-e", "-f", str(settings))
            inside = ("unshare", "--mount", "sh", "-c", WITH_MACHINE_ID, "sh", str(identity), *sshd)
            server = subprocess.Popen(["ip", "netns", "exec", self.namespace, *inside], stderr=subprocess.DEVNULL)
            stack.callback(server.wait)
            stack.callback(server.kill)
            wait_until(self._listens, f"{self.name} listens")
            yield

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=1):
            return True
        return False

    def left(self) -> list[str]:
        """What is not undone, and processes other than its sshd."""
        lists = [str(path) for path in (self.place / "state").rglob("*.undo")]
        pids = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True).stdout.split()
        commands = [Path(f"/proc/{pid}/cmdline") for pid in pids]
        words = [path.read_bytes().replace(b"\0", b" ").decode() for path in commands if path.exists()]
        return lists + [word for word in words if word and "sshd" not in word]


@dataclass
class FleetController:
    """A machine that runs ansible-playbook: undo lists of its own, and the same store."""

    name: str
    home: Path
    keys: Path
    store: ServerAddress

    def start(self, playbook: str, inventory: Path) -> subprocess.Popen[bytes]:
        self.home.mkdir()
        (self.home / "playbook.yml").write_text(playbook)
        argv = self.argv("ansible-playbook", "-i", inventory, "--forks", "20", self.home / "playbook.yml")
        with (self.home / "log").open("wb") as log:
            return subprocess.Popen(
                argv, env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def vmtax(self, *words: object) -> subprocess.CompletedProcess[str]:
        """A command of vmtax's, to its end."""
        argv = self.argv(sys.executable, "-m", "vmtax", *words)
        return subprocess.run(
            argv, env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def argv(self, *words: object) -> list[str]:
        """The command with its own keys in ~/.ssh."""
        user = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")
        user.mkdir(mode=0o700, exist_ok=True)
        private = ("unshare", "--mount", "sh", "-c", WITH_SSH_DIRECTORY, "sh", self.keys, user)
        return [str(word) for word in (*private, *words)]

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            CONTROLLER: self.name,
            "VMTAX_STORE": self.store.url,
            "ANSIBLE_LOCAL_TEMP": str(self.home / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
            **{f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE")},
        }

    def kill(self) -> int:
        """SIGKILL for all its processes, also those with a session of their own; returns how many there were."""
        killed = 0
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            time.sleep(0.05)
        return killed

    def pids(self) -> list[int]:
        mark = f"{CONTROLLER}={self.name}".encode()
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in _words(path)]

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def wait_until(holds: object, what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    limit = time.monotonic() + WAIT_SECONDS
    while not holds():  # type: ignore[operator]
        if time.monotonic() > limit or (process is not None and process.poll() is not None):
            raise SystemExit(f"never happened: {what}")
        time.sleep(0.1)


def stored(store: ServerAddress) -> list[Experiment]:
    with contextlib.suppress(StoreError), Store(store, reads=True) as opened:
        return opened.load_all(lambda entry: entry.label == FLEET)
    return []


def held(store: ServerAddress, controller: FleetController) -> list[str]:
    """The runs that it carries out now."""
    pids = controller.pids()
    with Store(store, reads=True) as opened:
        return [run.id for run in stored(store) if run.state == "running" and opened.owner(run.id).pid in pids]


def trials(store: ServerAddress) -> int:
    return sum(len(one.trials) for one in stored(store))


def playbook(plan: Path) -> str:
    """What `vmtax fleet playbook` prints, for this vmtax, with less patience for busy hosts."""
    argv = [sys.executable, "-m", "vmtax", "fleet", "playbook", str(plan), "--fleet", FLEET, "--", "--emulate"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    text = text.replace('vmtax_command: ["vmtax"]', f'vmtax_command: ["{sys.executable}", "-m", "vmtax"]')
    return re.sub(r"\bdelay: \d+", f"delay: {BUSY_DELAY}", text)


def make_keys(keys: Path, hosts: list[TestHost]) -> None:
    keys.mkdir(mode=0o700)
    for name in ("id", "host_key", "other_key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name))
    key, other = ((keys / f"{name}.pub").read_text() for name in ("host_key", "other_key"))
    lines = [f"{host.address} {other if host is hosts[-1] else key}" for host in hosts]
    (keys / "known_hosts").write_text("".join(lines))
    (keys / "config").write_text(
        "".join(f"Host {host.name}\n HostName {host.address}\n User root\n" for host in hosts)
        + f"Host *\n IdentityFile {keys}/id\n BatchMode yes\n"
    )


def write_inventory(file: Path, hosts: list[TestHost]) -> None:
    words = {"vmtax_note": f"$(touch {file}.oops); `touch {file}.oops`"}
    lines = ["all:", "  hosts:"]
    for host in hosts:
        exclusive = ", vmtax_exclusive: true" if host.number <= 2 else ""
        lines.append(f"    {host.name}: {{ansible_user: root, note: {str(words['vmtax_note'])!r}{exclusive}}}")
    file.write_text("\n".join(lines) + "\n")


def prove(place: Path, count: int, rounds: int, score: Score) -> str:
    hosts = [TestHost(number, place / f"h{number}") for number in range(1, count + 2)]
    keys, plan, inventory = place / "ssh", place / "plan.yaml", place / "inventory.yml"
    make_keys(keys, hosts)
    write_inventory(inventory, hosts)
    plan.write_text(PLAN.format(rounds=rounds))
    with ExitStack() as stack:
        for host in hosts:
            stack.enter_context(host.standing(keys))
        server = stack.enter_context(PostgresqlServer(settings=()))
        store = server.database()
        first, second = (FleetController(name, place / name, keys, store) for name in ("first", "second"))
        for controller in (first, second):
            stack.callback(controller.kill)
        text, begun = playbook(plan), time.monotonic()
        one, two = (controller.start(text, inventory) for controller in (first, second))
        wait_until(lambda: trials(store) >= 2 * count, f"{2 * count} trials:\n{first.log}", two)
        # The one that measures more hosts.
        pairs = ((first, one), (second, two))
        (victim, dying), (survivor, process) = sorted(pairs, key=lambda pair: -len(held(store, pair[0])))
        theirs = held(store, victim)
        processes = victim.kill()
        dying.wait()
        at_kill = stored(store)
        cut = {run.id: run for run in at_kill if run.id in theirs and run.state != "complete"}
        print(
            f"controller killed with {processes} processes: {trials(store)} trials stored, {len(cut)} runs cut off",
            flush=True,
        )
        wait_until(lambda: trials(store) >= 4 * count, f"{4 * count} trials:\n{survivor.log}", process)
        server.stop("fast")
        time.sleep(AWAY_SECONDS)
        server.start()
        print(f"PostgreSQL stopped for {AWAY_SECONDS:g} s", flush=True)
        code = process.wait(WAIT_SECONDS)
        print(f"ended after {time.monotonic() - begun:.0f} s", flush=True)
        score.check(bool(cut), "no run was cut off: nothing was shown")
        compare(score, survivor, plan, inventory, hosts)
        counts = check(score, code, survivor, stored(store), hosts, rounds, cut)
        score.check(not Path(f"{inventory}.oops").exists(), "a variable of the inventory was run by a shell")
        left = [*survivor.home.rglob("*.undo")]
        score.check(not left, f"left on a controller: {left}")
    return counts


def compare(score: Score, controller: FleetController, plan: Path, inventory: Path, hosts: list[TestHost]) -> None:
    """Measures all hosts again by vmtax's own command, and compares each with itself."""
    begun, words = time.monotonic(), ("-i", inventory, "--fleet", AGAIN, "--yes", "--", "--emulate")
    done = controller.vmtax("fleet", "run", plan, *words, "--rounds", AGAIN_ROUNDS)
    said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    good, changed = hosts[:-1], hosts[-1]
    about = [line for line in done.stderr.splitlines() if line.startswith(f"{changed.name} (")]
    named = len(about) == 1 and "its host key has changed" in about[0]
    score.check(done.returncode == FAILED and named, f"fleet run: exit code {done.returncode}: {said}")
    score.check(f"1 of {len(hosts)} hosts were left out" in done.stderr, f"fleet run says nothing of it: {said}")
    done = controller.vmtax("fleet", "compare", FLEET, AGAIN, "--json")
    data = json.loads(done.stdout)["data"] if done.returncode == 0 else {"hosts": [], "lines": []}
    pairs = {host["host"]: (len(host["before"]), len(host["after"])) for host in data["hosts"]}
    score.check(pairs == {host.name: (1, 1) for host in good}, f"fleet compare: {pairs} {done.stderr}")
    lines = [line for line in data["lines"] if line["ratio"] and len(line["hosts"]) == len(good)]
    score.check(bool(lines), f"nothing was compared on all hosts: {data['lines']}")
    print(f"measured again and compared in {time.monotonic() - begun:.0f} s: {len(lines)} times of {len(pairs)} hosts")


def check(
    score: Score,
    code: int,
    survivor: FleetController,
    runs: list[Experiment],
    hosts: list[TestHost],
    rounds: int,
    cut: dict[str, Experiment],
) -> str:
    """Compares what is stored with what should be; returns counts."""
    good, changed = hosts[:-1], hosts[-1]
    recap = {name: (int(unreachable), int(failed)) for name, _, unreachable, failed in RECAP.findall(survivor.log)}
    failed = [name for name, counts in recap.items() if any(counts)]
    score.check(code != 0 and failed == [changed.name], f"failed: {failed}, exit code {code}\n{survivor.log[-3000:]}")
    score.check("host key" in survivor.log.lower(), "the changed host key is not named")
    addresses = Counter(run.host for run in runs)
    score.check(addresses == {f"ssh://root@{host.name}": 1 for host in good}, f"runs of hosts: {addresses}")
    keys = [
        (run.host, trial.round, trial.treatment, trial.workload, trial.case, trial.iteration)
        for run in runs
        for trial in run.trials
        if trial.status == "ok"
    ]
    again = [key for key, times in Counter(keys).items() if times > 1]
    score.check(not again, f"measured twice: {again[:5]}")
    cases = {key[2:] for key in keys}
    missing = len(good) * rounds * len(cases) - len(set(keys))
    score.check(not missing, f"{missing} trials are missing")
    score.check(all(run.state == "complete" for run in runs), f"{[(run.host, run.state) for run in runs]}")
    lost = [
        id
        for id, before in cut.items()
        for run in runs
        if run.id == id and run.trials[: len(before.trials)] != before.trials
    ]
    score.check(not lost, f"trials that were stored are lost: {lost}")
    resumed = sum(run.id in cut and len(run.trials) > len(cut[run.id].trials) for run in runs)
    score.check(resumed == len(cut), f"{resumed} of {len(cut)} runs that were cut off went on")
    left = {host.name: found for host in hosts if (found := host.left())}
    score.check(not left, f"left on hosts: {left}")
    bad = sum(trial.status != "ok" for run in runs for trial in run.trials)
    return (
        f"{len(runs)} hosts, {len(keys)} trials, {len(set(keys))} distinct, {len(again)} twice, {missing} missing,"
        f" {bad} failed, {resumed} of {len(cut)} cut-off runs resumed, {len(left)} hosts with something left"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--hosts", type=int, default=6)
    given = parser.parse_args()
    for program in ("ansible-playbook", "ip", "ssh"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed: `make prove-fleet` installs it")
    score = Score()
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        counts = prove(Path(directory), given.hosts, given.rounds, score)
    print(f"{counts}; {score.checks} checks, wrong: {len(score.wrong)}")
    sys.exit(1 if score.wrong else 0)


if __name__ == "__main__":
    main()
