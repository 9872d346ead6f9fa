"""What the commands `vmtax fleet` do."""

from __future__ import annotations

import getpass
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from vmtax.cli.app import BadUse, agree, document, fail, say, warn
from vmtax.cli.files import check_input
from vmtax.cli.fleet_task import refuse_stopped
from vmtax.cli.store_address import pin_store
from vmtax.core.errors import DONE, FAILED
from vmtax.core.names import label_problem
from vmtax.fleet.dashboard import dashboard
from vmtax.fleet.engine import Threads, read_inventory, run_playbook
from vmtax.fleet.inventory import FleetHost, HostLook, hosts_of_file, hosts_of_inventory, look_of, without_twins
from vmtax.fleet.playbook import playbook
from vmtax.plan.rules import host as legal_host
from vmtax.store import Store

AT_ONCE = 8  # hosts that are looked at
OURS = ("--host", "--fleet", "--label", "--output", "-o", "--json", "--yes", "-y", "--resume", "--after-reboot")
# Of OpenSSH, in ten lines and in one
KEY_CHANGED, KEY_REFUSED = "REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed"
OURSELVES = "vmtax: "  # how our messages begin
SELF = (sys.executable, "-m", "vmtax")
LOOK = (sys.executable, "-m", "vmtax.cli.look")


def carry_out_fleet(
    plan: str, options: Sequence[str], inventory: str | None, hosts: Path | None, fleet: str | None, *, yes: bool
) -> None:
    """Look at all hosts, ask, and measure those that the plan fits."""
    fleet = name_of(plan, fleet)
    if bad := next((word for word in options if word.partition("=")[0] in OURS), None):
        raise BadUse(f"{bad}: is given to each run by the fleet; leave it out")
    pin_store()
    with Store() as store:
        refuse_stopped(store, fleet)
    directory = Path(f"vmtax-fleet-{fleet}".replace("/", "_")).absolute()
    text = playbook(_plan_word(plan), fleet, options, SELF)
    looks = looked_at(plan, options, inventory, hosts)
    fits = [look.host for look in looks if not look.refused]
    left = sum(bool(look.refused) and not look.is_twin for look in looks)
    if not fits:
        fail(f"plan {plan} fits none of the {len(looks)} hosts", FAILED)
    agree(yes, f"Measure {len(fits)} of {len(looks)} hosts as fleet {fleet}? [Y/n]")
    directory.mkdir(exist_ok=True)
    if inventory is not None:
        (directory / "playbook.yml").write_text(text, encoding="utf-8")
        code = run_playbook(directory / "playbook.yml", inventory, [host.name for host in fits])
    else:
        code = _with_threads(plan, options, fleet, fits, directory)
    say(f"reports: {directory}; `vmtax fleet status {shlex.quote(fleet)}` lists the runs", file=sys.stderr)
    if code:
        fail(f"not all hosts were measured; the same command with --fleet {shlex.quote(fleet)} goes on", FAILED)
    if left:
        fail(f"{left} of {len(looks)} hosts were left out, for the reasons above", FAILED)


def _with_threads(plan: str, options: Sequence[str], fleet: str, hosts: Sequence[FleetHost], directory: Path) -> int:
    words = ["--fleet", fleet, "--yes", *options]
    threads = Threads(lambda host: [*SELF, "run", _plan_word(plan), "--host", host.address, *words], directory)
    codes = threads.run(
        hosts, lambda host, code, line: say(f"{host.name}: {'done' if code == DONE else line.removeprefix(OURSELVES)}")
    )
    return next((code for code in codes.values() if code), 0)  # that of a killed one is negative


def looked_at(plan: str, options: Sequence[str], inventory: str | None, hosts: Path | None) -> list[HostLook]:
    """All hosts, with what was said of each: printed line by line. `plan`: "" to see only who is there."""
    if (inventory is None) == (hosts is None):
        raise BadUse("name the hosts: -i INVENTORY of Ansible's, or --hosts FILE with one address in each line")
    if hosts is not None:
        check_input(hosts, "has one address in each line")
        named = hosts_of_file(hosts.read_text(encoding="utf-8", errors="replace"), str(hosts))
    else:
        named = hosts_of_inventory(read_inventory(str(inventory)))
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(named))) as pool:
        looks = [*without_twins([*pool.map(lambda host: _look(host, plan, options), named)])]
    for look in looks:
        host = look.host
        at = "" if host.address in (host.name, "") else f" ({host.address})"
        say(f"{host.name}{at}: {look.refused or 'can be measured'}", file=sys.stderr)
        if host.ignored:
            warn(f"{host.name}: {', '.join(host.ignored)}: not used; put keys and jumps into ~/.ssh/config")
    return looks


def _look(host: FleetHost, plan: str, options: Sequence[str]) -> HostLook:
    """In a process of its own, so that none can hold up or end the others."""
    if not host.address:
        return HostLook(host, refused=host.problem)
    try:
        legal_host(host.address)  # what begins with a hyphen would be an option of ssh's
    except ValueError as error:
        return HostLook(host, refused=f"its address {error}")
    argv = [*LOOK, *([_plan_word(plan)] if plan else []), "--host", host.address, *options]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        return HostLook(host, refused=_why(done.stderr))
    return look_of(host, done.stdout)


def _why(text: str) -> str:
    """Why a host cannot be looked at, in one line, from what was printed."""
    if KEY_CHANGED in text:
        return (
            "its host key has changed, or another machine answers there: if that is right, `ssh-keygen -R` removes it"
        )
    if KEY_REFUSED in text:
        return "its host key is not in known_hosts: log in once by ssh"
    line = (text.strip().splitlines() or ["vmtax: cannot be looked at"])[-1]
    return line.removeprefix(OURSELVES)


def stop(fleet: str, *, undo: bool) -> None:
    user = str(os.geteuid())
    with suppress(OSError, KeyError):  # a user without a name
        user = getpass.getuser()
    with Store() as store:
        if undo:
            store.stops.allow(fleet)
            say(f"fleet {fleet} goes on where something repeats it: `vmtax fleet run`, a playbook, cron")
            return
        known = bool(store.experiments(label=fleet))
        store.stops.stop(fleet, f"{user} on {platform.node()}, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC")
        running = sum(entry.state == "running" for entry in store.experiments(label=fleet))
    status = f"`vmtax fleet status {shlex.quote(fleet)}`"
    say(f"fleet {fleet} is stopped; runs that end within seconds: {running}; {status} lists them")
    if not known:
        warn(f"no run has the label {fleet} yet: is that its name? `vmtax runs` lists the labels")


def name_of(plan: str, fleet: str | None) -> str:
    """What the fleet is called. Raises BadUse."""
    name = fleet or f"{Path(plan).stem[:20]} {time.strftime('%d %b %Y', time.gmtime())}"
    if problem := label_problem(name):
        raise BadUse(f"--fleet {name!r}: {problem}")
    return name


def print_playbook(plan: str, options: Sequence[str], fleet: str | None) -> None:
    """Of the same runs that `carry_out_fleet` begins."""
    document(playbook(plan, name_of(plan, fleet), options))


def print_dashboard() -> None:
    """As JSON, which Grafana imports."""
    document(json.dumps(dashboard(), indent=2))


def _plan_word(plan: str) -> str:
    """A plan's file by its absolute path: the runs have another directory."""
    return str(Path(plan).absolute()) if Path(plan).is_file() else plan
