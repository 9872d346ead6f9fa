"""What repeats the command on each host: `ansible-playbook`, which is started and never imported, or threads."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vmtax.core.errors import BUSY, CannotDo
from vmtax.fleet.inventory import FleetHost, NoInventory
from vmtax.fleet.playbook import DELAY_SECONDS

MISSING = (
    "is not installed: type `pip install 'vmtax[fleet]'`, or install ansible-core of this system; without it, --hosts"
    " FILE names hosts, one address in each line"
)
MOST_AT_ONCE = 100  # processes of one controller, of some 45 MB each
QUIET = {"ANSIBLE_RETRY_FILES_ENABLED": "0", "ANSIBLE_NOCOWS": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0"}


def read_inventory(inventory: str) -> str:
    """What `ansible-inventory --list` prints of it. Raises CannotDo and NoInventory."""
    done = subprocess.run(
        [_program("ansible-inventory"), "-i", inventory, "--list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        words = " ".join(done.stderr.split())
        raise NoInventory(f"{inventory}: ansible-inventory cannot read it: {words[:300]}")
    return done.stdout


def run_playbook(playbook: Path, inventory: str, names: Sequence[str]) -> int:
    """Its exit code. `names`: the hosts to be measured, of those in the inventory. Raises CannotDo."""
    limit = playbook.with_name("hosts")
    limit.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    forks = str(min(len(names), MOST_AT_ONCE))
    argv = [_program("ansible-playbook"), "-i", inventory, "--limit", f"@{limit}", "--forks", forks, str(playbook)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**QUIET, **os.environ}) as process:
        try:
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)  # it interrupts its forks, and they their commands
            raise


class Threads:
    """The same without Ansible: a process for each host, and one that is busy is tried again."""

    def __init__(self, argv: Callable[[FleetHost], Sequence[str]], directory: Path) -> None:
        """`argv`: what measures a host; what it prints is kept in `directory`, where it runs."""
        self._argv, self._directory = argv, directory
        self._stopped = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, hosts: Sequence[FleetHost], tell: Callable[[FleetHost, int, str], None]) -> Mapping[FleetHost, int]:
        """Exit codes. Calls `tell` with each host's code and the last line that it printed when its code is known, and
        when it is busy.
        """
        with ThreadPoolExecutor(max_workers=min(len(hosts), MOST_AT_ONCE)) as pool:
            try:
                return dict(zip(hosts, pool.map(lambda host: self._measure(host, tell), hosts), strict=True))
            except BaseException:
                self._stopped.set()
                for process in list(self._running):
                    process.send_signal(signal.SIGINT)
                raise

    def _measure(self, host: FleetHost, tell: Callable[[FleetHost, int, str], None]) -> int:
        log = self._directory / f"{''.join(c if c.isalnum() or c in '.-' else '_' for c in host.name)}.log"
        told = ""
        while True:
            with log.open("wb") as stream:
                process = subprocess.Popen(
                    self._argv(host), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=self._directory
                )
                self._running.add(process)
                code = process.wait()
                self._running.discard(process)
            words = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""])[-1]
            if code != BUSY or words != told:
                tell(host, code, words)
            told = words
            if code != BUSY or self._stopped.wait(DELAY_SECONDS):
                return code


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise CannotDo(f"{name} {MISSING}")
    return path
