"""tools/packages and tools/with_locks: what is installed, what is refused, and what they wait for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from vmtax.hypervisor.qemu.detect import MINIMUM

TOOLS = Path(__file__).parents[2] / "tools"
BASIC = ("cat", "cut", "dirname", "grep", "head", "mktemp", "rm", "sed", "sh", "sleep", "sort", "tail", "tr")
HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
UPDATE = "apt-get update"
QEMU = (
    "apt-get install --simulate --no-install-recommends qemu-system-x86",
    "Inst qemu-system-x86 (1:7.2+dfsg-7 Debian)",
)


class Machine:
    """A copy of tools/packages, with programs that answer exactly the calls that they are given."""

    def __init__(self, directory: Path) -> None:
        self.programs, self.calls = directory / "bin", directory / "calls"
        for made in (self.programs, directory / "tools"):
            made.mkdir()
        for name in BASIC:
            (self.programs / name).symlink_to(str(shutil.which(name)))
        self.script = Path(shutil.copy(TOOLS / "packages", directory / "tools"))
        locks = 'log=$1; shift; while [ "$1" != -- ]; do shift; done; shift; exec "$@" >> "$log" 2>&1'
        self._add(directory / "tools/with_locks", f'echo "with_locks $*" | sed "s| $1 | |" >> {self.calls}\n{locks}')

    def has(self, answers: Mapping[str, str | int]) -> None:
        """For each command line its output, or an exit code. What a program could do before is forgotten."""
        cases: dict[str, list[str]] = {}
        for line, answer in answers.items():
            program, _, words = line.partition(" ")
            done = f"exit {answer}" if isinstance(answer, int) else f"echo '{answer}'"
            cases.setdefault(program, []).append(f"'{words}') {done};;")
        for program, known in cases.items():
            unknown = f'*) echo "unknown: {program} $*" >> {self.calls}; exit 99'
            self._add(self.programs / program, f'case "$*" in {" ".join(known)} {unknown};; esac')

    def installs(self, *packages: str) -> tuple[int, str, list[str]]:
        """(exit code, what was printed, calls of with_locks and unknown ones)"""
        done = subprocess.run(
            ["sh", str(self.script), *packages],
            env={"PATH": str(self.programs), "TMPDIR": str(self.calls.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert not list(self.calls.parent.glob("tmp.*")), "the log is removed"
        return done.returncode, done.stdout, self.calls.read_text().splitlines() if self.calls.exists() else []

    @staticmethod
    def _add(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


def asked(package: str) -> str:
    return f"dpkg-query -W -f ${{db:Status-Status}} {package}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    found.has({"id -u": "0"})
    return found


def test_what_is_here_is_not_installed(machine: Machine) -> None:
    machine.has({asked("tar"): "installed", "qemu-system-x86_64 --version": "QEMU emulator version 7.2.22 (Debian)"})
    assert machine.installs("tar", "qemu-system-x86") == (0, "", [])


def test_the_qemu_of_proxmox_stays(machine: Machine) -> None:
    machine.has({"kvm --version": "QEMU emulator version 10.0.2 (pve-qemu-kvm_10.0.2-4)", "qemu-img --version": ""})
    assert machine.installs("qemu-system-x86", "qemu-utils") == (0, "", [])


def test_what_is_missing_is_installed_and_nothing_is_removed(machine: Machine) -> None:
    install = "apt-get install --yes --no-remove --no-install-recommends qemu-system-x86 jq"
    simulated = QEMU[0] + " jq"
    machine.has({asked("jq"): 1, UPDATE: "", simulated: f"Inst jq (1.6)\n{QEMU[1]}", install: ""})
    assert machine.installs("qemu-system-x86", "jq") == (
        0,
        "installing system packages: qemu-system-x86 jq\n",
        [
            f"with_locks /var/lib/apt/lists/lock -- {UPDATE}",
            f"with_locks /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/cache/apt/archives/lock -- {install}",
        ],
    )


def test_a_list_that_cannot_be_read_is_named_and_the_others_suffice(machine: Machine) -> None:
    install = "apt-get install --yes --no-remove --no-install-recommends jq"
    machine.has({asked("jq"): "not-installed"})
    machine.has({UPDATE: 100, "apt-get install --simulate --no-install-recommends jq": "Inst jq (1.6)", install: ""})
    code, printed, calls = machine.installs("jq")
    assert (code, len(calls)) == (0, 2) and "package lists may be old" in printed


def test_apt_may_remove_nothing(machine: Machine) -> None:
    removes = "Remv pve-qemu-kvm [10.0]\nRemv proxmox-ve [9.0]\nInst jq (1.6)"
    machine.has({asked("jq"): 1, UPDATE: "", "apt-get install --simulate --no-install-recommends jq": removes})
    code, printed, calls = machine.installs("jq")
    assert (code, len(calls)) == (1, 1)
    assert printed.endswith(
        "nothing was installed, because apt would remove pve-qemu-kvm proxmox-ve;"
        " to see why: apt-get install --simulate jq\n"
    )


@pytest.mark.parametrize(
    ("planned", "words"),
    [("Inst qemu-system-x86 (1:5.2+dfsg-11 Debian:11)", "apt has 5.2;"), ("", "apt has none newer")],
)
def test_a_qemu_that_is_too_old_is_named(machine: Machine, planned: str, words: str) -> None:
    """One that is not here yet, and one that is and cannot be newer."""
    machine.has({"qemu-system-x86_64 --version": "QEMU emulator version 5.2.0 (Debian 1:5.2+dfsg-11)"})
    machine.has({UPDATE: "", QEMU[0]: planned})
    code, printed, calls = machine.installs("qemu-system-x86")
    assert (code, len(calls)) == (1, 1)
    assert f"QEMU {'.'.join(map(str, MINIMUM))} or newer is needed" in printed and words in printed


def test_ctrl_c_ends_all(machine: Machine) -> None:
    machine.has({asked("jq"): 1, UPDATE: "'; kill -INT 0; sleep 60; echo '"})
    assert machine.installs("jq")[:2] == (130, "installing system packages: jq\n")


def test_the_package_asks_for_that_qemu() -> None:
    oldest = ".".join(map(str, MINIMUM))
    assert f"qemu-system-x86 (>= 1:{oldest}) | pve-qemu-kvm (>= {oldest})" in (TOOLS / "deb").read_text()


def test_without_root_it_says_what_to_type(machine: Machine) -> None:
    machine.has({"id -u": "1000", asked("jq"): 1, UPDATE: 99})
    code, printed, calls = machine.installs("jq")
    assert (code, calls) == (1, [])
    assert printed.endswith("type: sudo apt-get install --no-remove --no-install-recommends jq\n")


def test_without_apt_it_names_what_is_needed(machine: Machine) -> None:
    machine.has({asked("jq"): 1})
    assert machine.installs("jq")[:2] == (
        1,
        "these Debian packages, or what your distribution calls them, are needed: jq\n",
    )


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock "two" until it reads a line."""
    argv = [sys.executable, "-c", HOLDS, str(tmp_path / "two")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline()
        yield process
        process.kill()


def waits(directory: Path, *command: str) -> subprocess.Popen[str]:
    locks = [str(directory / name) for name in ("one", "two", "three")]
    argv = [str(TOOLS / "with_locks"), str(directory / "log"), *locks, "--", *command]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_a_lock_is_waited_for_and_then_held(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    taken = f"import fcntl; f = open('{tmp_path / 'two'}', 'w'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with waits(
        tmp_path, sys.executable, "-c", f"{taken}; print('mine'); import os; os.system('echo child')"
    ) as waiting:
        assert waiting.stdout
        name = Path(f"/proc/{holder.pid}/comm").read_text().strip()
        said = f"waiting for process {holder.pid} ({name}), which has locked {tmp_path / 'two'}; Ctrl-C ends this\n"
        assert waiting.stdout.readline() == said
        assert waiting.poll() is None and not (tmp_path / "log").exists()
        holder.communicate("\n")
        assert (waiting.wait(), waiting.stdout.read()) == (0, "")
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["child", "mine"]


def test_another_program_cannot_get_in_between(tmp_path: Path) -> None:
    tries = f"import fcntl; fcntl.lockf(open('{tmp_path / 'three'}', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with waits(tmp_path, "sh", "-c", f'{sys.executable} -c "{tries}"') as command:
        assert command.wait() == 1
    assert "BlockingIOError" in (tmp_path / "log").read_text()


def test_ctrl_c_ends_the_wait(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with waits(tmp_path, "true") as waiting:
        assert waiting.stdout and waiting.stdout.readline()
        os.kill(waiting.pid, signal.SIGINT)
        assert waiting.wait() == -signal.SIGINT
    assert holder.poll() is None
