"""Another host over ssh: a real sshd in a network namespace, found through the user's own ssh configuration."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import HANGS, VMTAX, under_way
from tests.integration.test_faults import VM_ONLY
from tests.integration.test_run import PLAN
from vmtax.image.cache import Image
from vmtax.machine import MachineLost
from vmtax.machine.local import LocalMachine, LocalProcess
from vmtax.machine.ssh import GUARD_SILENCE, SshRoute, connect_host
from vmtax.store import Store

NAMESPACE = "vmtax-test-host"
ADDRESS = "10.78.0.2"
# Gives the command a private ~/.ssh and changes no other: constant text, the arguments stay arguments.
WITH_SSH_DIRECTORY = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


@dataclass(frozen=True)
class RemoteHost:
    """What a user would have: a configuration that knows the host, and nothing else."""

    local: LocalMachine
    ssh: Path  # to be used as ~/.ssh
    cache: Path  # XDG_CACHE_HOME over there
    sshd: tuple[str, ...]
    servers: list[LocalProcess]

    def cut(self, cut: bool) -> None:
        """Nothing gets through, and neither side sees an error."""
        self.local.run("ip", "link", "set", "vt-test-host", "down" if cut else "up")

    def crash(self) -> None:
        """Every process of the host dies at once, as in a power cut."""
        for pid in self.local.run("ip", "netns", "pids", NAMESPACE).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def start(self) -> None:
        """Start its sshd, and wait until that listens."""
        self.servers.append(self.local.start(*self.sshd))
        limit = time.monotonic() + HANGS
        while True:
            try:
                socket.create_connection((ADDRESS, 22), timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < limit, "sshd does not listen"
                time.sleep(0.05)

    def take(self, image: Image) -> None:
        """Hard links, for tests that are not about copying."""
        (self.cache / "vmtax/images").mkdir(parents=True)
        self.local.run("cp", "-al", str(image.directory), str(self.cache / "vmtax/images"), timeout=HANGS)

    def vmtax(self, *argv: str, directory: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.command(), *argv], cwd=directory, capture_output=True, text=True, timeout=HANGS)

    def command(self) -> list[str]:
        home = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh")  # where ssh looks, whatever HOME says
        home.mkdir(mode=0o700, exist_ok=True)
        private = ("unshare", "--mount", "sh", "-c", WITH_SSH_DIRECTORY, "sh", str(self.ssh), str(home))
        return [*private, *VMTAX]


@pytest.fixture
def remote(local: LocalMachine, tmp_path: Path) -> Iterator[RemoteHost]:
    ssh, cache = tmp_path / "ssh", tmp_path / "cache"
    ssh.mkdir(mode=0o700)
    for name in ("id", "host_key"):
        local.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name))
    (ssh / "known_hosts").write_text(f"{ADDRESS} {(ssh / 'host_key.pub').read_text()}")
    (ssh / "config").write_text(
        f"Host testhost\n HostName {ADDRESS}\n User root\n IdentityFile {ssh}/id\n BatchMode yes\n"
    )
    configuration = tmp_path / "sshd_config"
    configuration.write_text(
        f"ListenAddress {ADDRESS}\nHostKey {ssh}/host_key\nAuthorizedKeysFile {ssh}/id.pub\nStrictModes no\nUsePAM no\n"
        # Another HOME: what the owner of this machine starts in his shell is no part of the test.
        f"PidFile none\nSetEnv XDG_CACHE_HOME={cache} XDG_STATE_HOME={tmp_path}/state HOME={tmp_path}\n"
    )
    local.undo_later("ip", "netns", "delete", NAMESPACE)
    local.run("ip", "netns", "add", NAMESPACE)
    local.undo_later("ip", "link", "delete", "vt-test-host")
    local.run("ip", "link", "add", "vt-test-host", "type", "veth", "peer", "name", "eth0", "netns", NAMESPACE)
    local.run("ip", "address", "add", "10.78.0.1/30", "dev", "vt-test-host")
    local.run("ip", "link", "set", "vt-test-host", "up")
    batch = f"link set lo up\naddress add {ADDRESS}/30 dev eth0\nlink set eth0 up\n"
    local.run("ip", "-n", NAMESPACE, "-batch", "-", input=batch)
    local.run("mkdir", "-p", "/run/sshd")
    sshd = ("ip", "netns", "exec", NAMESPACE, "/usr/sbin/sshd", "-D", "-e", "-f", str(configuration))
    host = RemoteHost(local, ssh, cache, sshd, [])
    host.start()
    yield host


def test_a_host_over_ssh_is_measured_with_the_same_code(image: Image, remote: RemoteHost, tmp_path: Path) -> None:
    plan = tmp_path / "remote.yaml"
    plan.write_text(PLAN.replace("[host, vm, nested]", "[host, vm]").replace("{min: 2, max: 2}", "{min: 1, max: 1}"))
    done = remote.vmtax(
        "run", str(plan), "--host", "ssh://testhost", "--yes", "--emulate", "--json", "-o", "r.html", directory=tmp_path
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert data["host"] == "ssh://testhost"
    have = {(entry["treatment"], entry["metric"]) for entry in data["measurements"]}
    assert {
        ("host", "net.tcp-in.bits_per_second"),
        ("vm", "disk.randread-4k-qd1.iops"),
        ("vm", "boot.ready_seconds"),
    } <= have
    assert (remote.cache / "vmtax/images" / image.identity / "tree").is_dir(), "the image was carried over"
    assert list((tmp_path / "state/vmtax/undo").glob("*.undo")) == [], "the far guard undid its list"


def added(path: Path) -> float:
    return path.stat().st_mtime


def test_a_machine_has_as_many_commands_at_once_as_are_asked_for(remote: RemoteHost) -> None:
    """sshd allows ten on a connection; one of them is the guard."""
    known = f"UserKnownHostsFile={remote.ssh}/known_hosts"
    route = SshRoute("testhost", ("-F", str(remote.ssh / "config"), "-o", known))
    with contextlib.closing(connect_host(remote.local, route)) as machine:
        running = [machine.start("sleep", "600") for _ in range(25)]
        with ThreadPoolExecutor(8) as pool:
            answers = pool.map(
                lambda number: machine.run("sh", "-c", "sleep 0.2; echo $1", "sh", str(number)), range(8)
            )
            assert [int(answer) for answer in answers] == list(range(8))
        assert [process.poll() for process in running] == [None] * 25
        newest = max((path for path in Path(str(remote.local.scratch)).glob("ssh-*") if path.is_socket()), key=added)
        remote.local.run("ssh", "-S", str(newest), "-O", "exit", "testhost")
        assert machine.run("echo", "still here") == "still here\n", "an additional connection may be lost"
        (remote.ssh / "id").rename(remote.ssh / "lost")
        with pytest.raises(MachineLost, match=r"another connection is not possible .*denied.* set MaxSessions 100"):
            while len(running) < 50:
                running.append(machine.start("sleep", "600"))
    left = remote.local.run("ip", "netns", "pids", NAMESPACE).split()
    assert not {str(process.pid) for process in running} & set(left)
    for process in running:
        process.stop()


# A guard, and for each guest its QEMU, its console and a server: ten, before the first command.
AT_ONCE = """\
name: at-once
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {guest.count: ["3"]}
workloads: [{net: {cases: [tcp-in], seconds: 1}}]
iterations: 1
rounds: {min: 1, max: 1}
"""


@pytest.mark.machines
def test_three_guests_at_once_need_more_sessions_than_sshd_allows_on_a_connection(
    image: Image, remote: RemoteHost, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(AT_ONCE)
    remote.take(image)
    how = ("--host", "ssh://testhost", "--yes", "--emulate", "--json", "-o", "r.html")
    done = remote.vmtax("run", str(plan), *how, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout)["data"]["measurements"]
    assert {entry["machine"] for entry in entries} == {"host/vm", "host/vm-2", "host/vm-3"}
    assert list((tmp_path / "state/vmtax/undo").glob("*.undo")) == [], "the far guard undid its list"


WIRED = """\
name: wired
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
workloads: [{net: {cases: [tcp-in], rate: 4, seconds: 1}}]
rounds: {min: 1, max: 1}
"""


def links(*ip: str) -> list[dict[str, Any]]:
    """All that `ip` shows of links but their counters, and of which namespaces they came from."""
    shown = json.loads(subprocess.run([*ip, "-d", "-j", "link"], capture_output=True, check=True).stdout)
    return [{name: of[name] for name in of.keys() - {"stats", "stats64", "link_netnsid"}} for of in shown]


@pytest.mark.machines
def test_a_peer_over_ssh_is_reached_over_cards_that_are_the_same_afterwards(
    image: Image, remote: RemoteHost, tmp_path: Path
) -> None:
    there = ("ip", "-n", NAMESPACE)
    remote.local.undo_later("ip", "link", "delete", "vt-wire0")
    remote.local.run("ip", "link", "add", "vt-wire0", "type", "veth", "peer", "name", "vt-wire1", "netns", NAMESPACE)
    remote.local.run(*there, "link", "set", "vt-wire1", "up")
    plan = tmp_path / "wired.yaml"
    plan.write_text(WIRED)
    wired = ("run", str(plan), "--card", "vt-wire0", "--peer", "ssh://testhost", "--yes", "--emulate", "--json")
    refused = remote.vmtax(*wired, "--peer-card", "eth0", directory=tmp_path)
    assert refused.stderr == f"vmtax: peer: the card eth0 has the address {ADDRESS}: name one without\n"
    before = links("ip"), links(*there)
    done = remote.vmtax(*wired, "--peer-card", "vt-wire1", "-o", "r.html", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)["data"]
    assert data["failures"] == [] and "net.tcp-in.host_cpu_seconds" in {e["metric"] for e in data["measurements"]}
    assert "The network goes over the card vt-wire0 to the card vt-wire1 of ssh://testhost." in data["notes"]
    assert (links("ip"), links(*there)) == before


def test_this_machine_under_another_name_is_no_second_host(image: Image, remote: RemoteHost, tmp_path: Path) -> None:
    done = remote.vmtax("run", "--interleave-with", "ssh://testhost", "--yes", "--emulate", directory=tmp_path)
    assert done.returncode == 1
    assert "ssh://testhost is the machine that local is: interleave with another" in done.stderr
    assert list((tmp_path / "state/vmtax/undo").glob("*.undo")) == []


def test_a_changed_host_key_is_refused_as_ssh_would(remote: RemoteHost, tmp_path: Path) -> None:
    (remote.ssh / "known_hosts").write_text(f"{ADDRESS} {(remote.ssh / 'id.pub').read_text()}")
    done = remote.vmtax("run", "--host", "ssh://testhost", "--yes", "--emulate", directory=tmp_path)
    assert done.returncode == 1
    assert "HOST IDENTIFICATION HAS CHANGED" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def begin(image: Image, remote: RemoteHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A run on the remote host that takes the test's own directories here."""
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / f"{kind.lower()}-here"))
    plan = tmp_path / "remote.yaml"
    plan.write_text(VM_ONLY)
    remote.take(image)
    return ("run", str(plan), "--host", "ssh://testhost", *AGREED)


AGREED = ("--yes", "--emulate", "-o", "r.html")


def test_a_cut_line_costs_the_rest_of_the_run_only(begin: tuple[str, ...], remote: RemoteHost, tmp_path: Path) -> None:
    with under_way(*begin, directory=tmp_path, trials=2, command=remote.command()) as (process, token):
        remote.cut(True)
        assert process.wait(HANGS) == 1
        assert process.stderr is not None
        words = process.stderr.read()
        assert "host: the connection is gone" in words and "vmtax run --resume" in words
        assert "Traceback" not in words
        deadline = time.monotonic() + GUARD_SILENCE + HANGS
        while (left := far_away(remote, token)) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert left == [], "the far guard noticed by itself that the line is cut"
    remote.cut(False)


@pytest.mark.machines
def test_a_host_that_dies_costs_the_rest_of_the_run_only(
    begin: tuple[str, ...], remote: RemoteHost, tmp_path: Path
) -> None:
    with under_way(*begin, directory=tmp_path, trials=4, command=remote.command()) as (process, token):
        remote.crash()
        assert process.wait(HANGS) == 1
    remote.start()
    done = remote.vmtax("run", "--resume", *AGREED, directory=tmp_path)
    assert done.returncode == 0, done.stderr
    with Store() as store:
        run = store.load()
    places = [(trial.round, trial.treatment, trial.workload, trial.case) for trial in run.trials]
    assert run.state == "complete" and len(places) == len(set(places)) == 2 * (4 + 3)
    assert far_away(remote, token) == []


def far_away(remote: RemoteHost, token: str) -> list[str]:
    """What the run with that token left on the host under test, and processes there other than its sshd."""
    found = [str(path) for path in Path("/var/tmp").glob(f"vmtax-{token}*")]
    for pid in remote.local.run("ip", "netns", "pids", NAMESPACE).split():
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if "sshd" not in command:
                found.append(command)
    return found


def test_the_doctor_reads_and_tries_it(remote: RemoteHost, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    read = remote.vmtax("doctor", "--host", "ssh://testhost", "--json", directory=tmp_path)
    data = json.loads(read.stdout)["data"]
    assert (data["host"], read.stderr) == ("ssh://testhost", "")
    assert all(check["status"] != "missing" for check in data["checks"] if check["area"] == "need"), data["checks"]
    assert set(tmp_path.rglob("*")) == before, "nothing was written there"
    tried = remote.vmtax("doctor", "--host", "ssh://testhost", "--try", "--yes", "--json", directory=tmp_path)
    found = {check["name"]: check for check in json.loads(tried.stdout)["data"]["checks"] if check["area"] == "tried"}
    assert (found["bridge"]["status"], found["O_DIRECT"]["status"]) == ("ok", "ok")
    assert "not on that host yet" in found["guests"]["text"], "an image is no small thing to copy"
    assert list((tmp_path / "state/vmtax/undo").iterdir()) == []
