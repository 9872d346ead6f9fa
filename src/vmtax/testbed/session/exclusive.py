"""One measurement on a host at a time, whoever asks: two would disturb each other, and neither would notice."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from vmtax.core.errors import BUSY, BadInput, CannotDo
from vmtax.machine.guarded import GuardedMachine
from vmtax.machine.hold import EARLIER, Turn
from vmtax.testbed.session.session import Hosts

LOCK = "VMTAX_LOCK"  # environment variable: measurements with different values exclude each other no more
LEGAL = re.compile(r"[A-Za-z0-9._-]{1,60}", re.ASCII)  # values of it
MACHINE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
TOKEN = re.compile(r"[0-9a-f]{16}", re.ASCII)
WAIT_SECONDS = 1.0  # between two questions whether a host is free


class HostBusy(CannotDo):
    """Somebody else measures there; the text says who. Nothing was begun."""

    exit_code = BUSY


@dataclass(frozen=True, slots=True)
class Claim:
    """What others read who want to measure on the same host. Of two with one token, neither disturbs the other."""

    token: str
    words: str

    @classmethod
    def of(cls, work: str) -> Claim:
        """Of this process. `work`: what it does; every user of the host can read it."""
        user = str(os.geteuid())
        with suppress(OSError, KeyError):  # a user without a name
            user = getpass.getuser()
        since = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        words = f"{user} on {platform.node()} measures there since {since} UTC: {work}"
        return cls(secrets.token_hex(8), " ".join(words.split()))

    def holder(self, machine: GuardedMachine) -> str:
        """Claim a machine until its guard ends; returns "", or who measures there. Raises BadInput if LOCK has no
        legal value.
        """
        text = machine.guard.hold(_name(), f"{self.token} {self.words}")
        token, _, words = text.partition(" ")
        if token == self.token:
            machine.guard.let_go()  # another guard of ours has it, so this one has no business in the line
            return ""
        return words if TOKEN.fullmatch(token) else text


def hold(hosts: Hosts, claim: Claim, *, tell_waiting: Callable[[str], None] | None = None) -> None:
    """Claim all hosts of a run, or none. Raises HostBusy; with `tell_waiting`, waits until they are free instead, and
    calls it for everyone who is waited for.
    """
    machines = _machines(hosts)
    said = ""
    while busy := _busy(machines, claim):
        if tell_waiting is None:
            raise HostBusy(f"{busy}; wait until that has ended, as `vmtax run --wait` does")
        if busy != said:
            tell_waiting(busy)
            said = busy
        time.sleep(WAIT_SECONDS)


def others_first(turn: Turn, host: str) -> str:
    """Who of this machine's users wants to measure on that host for longer than we do; "" if nobody does. `turn`: ours
    among them, which is kept for some time. Those of other machines meet us in the line on the host itself.
    """
    turn.keep(hashlib.sha256(f"{_name()} {host}".encode()).hexdigest()[:32])
    return "" if turn.is_next() else f"{host}: {EARLIER}"


def ids_of(hosts: Hosts) -> list[str]:
    """What names the machines of a run in a store that several controllers share, whatever each of them calls these
    hosts; without those that have no machine-id(5), as a lab may not.
    """
    answers = [machine.try_run("cat", "/etc/machine-id").stdout.strip() for machine in _machines(hosts)]
    return [f"{_name()} {answer}" for answer in answers if MACHINE_ID.fullmatch(answer)]


def _name() -> str:
    """What is claimed on a host. Raises BadInput."""
    name = os.environ.get(LOCK) or "measures"
    if not LEGAL.fullmatch(name):
        raise BadInput(f"{LOCK}={name[:70]!r}: must be 1 to 60 letters, digits, dots, hyphens or underscores")
    return name


def _machines(hosts: Hosts) -> list[GuardedMachine]:
    """Those whose figures others would change."""
    every = (hosts.host, hosts.other, hosts.peer, hosts.destination)
    return [machine for machine in dict.fromkeys(every) if isinstance(machine, GuardedMachine)]


def _busy(machines: Sequence[GuardedMachine], claim: Claim) -> str:
    """Who measures on which of the machines; "" if all are claimed now. Otherwise none is, and only on that machine we
    wait in the line: who kept a place, or a machine, while he waits for another, would keep everybody from it.
    """
    for busy in machines:
        if holder := claim.holder(busy):
            for other in machines:
                if other is not busy:
                    other.guard.let_go()
            return f"{busy.path}: {holder}"
    return ""
