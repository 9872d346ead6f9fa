"""A guest of the user's, by its settings: `vmtax plan from`, and what `vmtax doctor GUEST` prints."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from vmtax.attach import LIBVIRT, PROXMOX
from vmtax.attach.proxmox.vm import UNTRIED
from vmtax.cli.app import BadUse, answer, document, say_wrapped
from vmtax.cli.files import check_output
from vmtax.core.records import Experiment
from vmtax.core.units import count_of, format_cost, format_room
from vmtax.existing.advice import SettingAdvice, advice
from vmtax.existing.guest import KINDS, ExistingGuest
from vmtax.existing.limits import limits
from vmtax.existing.measured import MeasuredSetting, by_cost
from vmtax.existing.numa import HostNode, host_nodes, node_advice
from vmtax.existing.plan import plan_of, remark_lines
from vmtax.existing.source import existing, is_of_host
from vmtax.machine.login_shell import NEVER_RUN
from vmtax.machine.reader import LocalReader
from vmtax.plan import rules
from vmtax.report.answers.existing import guest_answer
from vmtax.store import Store
from vmtax.system.output_file import replacing
from vmtax.testbed.host.hosts import open_reader

MOST_RUNS = 10  # that are looked at


def plan_from(source: str, disk: str, host: str | None, output: Path | None, *, json: bool) -> None:
    """Print the plan, or write it to a file with what cannot be measured on the terminal."""
    if output is not None:
        check_output(output)
    guest, nodes = existing_guest(source, host)
    plan = plan_of(guest, disk, host=host or "local")
    if json:
        answer("guest", guest_answer(guest, nodes, plan, runs_here(host)))
    elif output is None:
        document(plan.text)
    if output is None:
        return
    with replacing(output) as stream:
        stream.write(plan.text.encode())
    if not json:
        for line in remark_lines(plan.remarks):
            say_wrapped(line)
        say_wrapped(f"{output}: measured by `vmtax run {output}`; what is listed above is not measured as configured")


def existing_guest(source: str, host: str | None) -> tuple[ExistingGuest, tuple[HostNode, ...]]:
    """The guest on that host, with the host's NUMA nodes, or in a file here, without. Raises BadUse, and as
    `open_reader`.
    """
    try:
        where = rules.host(host or "local")
    except ValueError as error:
        raise BadUse(f"--host {error}") from error
    if not is_of_host(source):
        return existing(source, LocalReader()), ()
    with open_reader(where) as reader:
        return existing(source, reader), host_nodes(reader)


def print_advice(source: str, host: str | None, *, json: bool) -> None:
    """What manuals call unsafe or slow in a guest's settings."""
    guest, nodes = existing_guest(source, host)
    if json:
        answer("guest", guest_answer(guest, nodes, plan_of(guest, host=host or "local"), runs_here(host)))
        return
    disks = sum(not disk.is_cd for disk in guest.disks)
    size = f"{count_of(guest.vcpus, 'CPU')}, {format_room(guest.memory_bytes)}"
    say_wrapped(
        f"{guest.name}, as {KINDS[guest.kind]} describes it: {size}, {count_of(disks, 'disk')},"
        f" {count_of(len(guest.cards), 'card')}"
    )
    found, held = (*advice(guest), *node_advice(guest, nodes)), limits(guest)
    number = source.removeprefix(PROXMOX) if source.startswith(PROXMOX) else "VMID"
    for limit in held:
        why = "no run measures a limit, and while it is reached, nothing else in it matters"
        say_wrapped(f"{limit.where}: {limit.text}: {why}", first="  limit  ", indent=9)
        say_wrapped(limit.change.replace("VMID", number), first="         → ", indent=11)
    for each, cost in by_cost(found, runs_here(host)):
        _print_one(each, each.patch(guest).replace("VMID", number), cost)
    if not found and not held:
        say_wrapped("The manuals call nothing in it unsafe or slow.")
    words = shlex.join([source, *(["--host", host] if host else [])])
    clones = f" --guest {shlex.quote(source)} --clone" if source.startswith(LIBVIRT) else ""
    where = "here" if clones else "a Linux guest here"
    say_wrapped(f"What your settings cost {where}: vmtax plan from {words} -o plan.yaml && vmtax run plan.yaml{clones}")
    if source.startswith(PROXMOX):
        say_wrapped(f"What it costs as it runs: vmtax run quick --guest {words}; {UNTRIED}")
    if source.startswith((PROXMOX, LIBVIRT)):
        cloned = ", and so are its clones" if source.startswith(LIBVIRT) else ""
        say_wrapped(
            f"A Windows is entered by its guest agent{cloned}; or by --guest ssh://Administrator@ADDRESS; {NEVER_RUN}"
        )
    sys.stdout.flush()


def runs_here(host: str | None) -> list[Experiment]:
    """The newest runs with results on that host."""
    with Store(reads=True) as store:
        alike = [each.id for each in store.experiments() if each.host == (host or "local") and each.ok][:MOST_RUNS]
        return store.load_all(lambda entry: entry.id in alike)


def _in_words(cost: MeasuredSetting | None, change: SettingAdvice) -> str:
    """What was measured of it."""
    if cost is None:
        return "not measured here"
    emulated = ", emulated" if cost.is_emulated else ""
    where = f"{cost.metric.name} in run {cost.run}{emulated}"
    if not cost.is_shown:
        return f"measured: no difference shown, {where}"
    times = format_cost(cost.ratio, cost.low, cost.high)
    return f"measured: {times} time with {change.level} against {change.better}, {where}"


def _print_one(each: SettingAdvice, patch: str, cost: MeasuredSetting | None) -> None:
    setting = f"{each.factor}={each.level}"
    say_wrapped(f"{each.where}: {setting}: {each.why}", first=f"  {each.weight:<7}", indent=9)
    say_wrapped(_in_words(cost, each), first="         ", indent=9)
    say_wrapped(patch or f"{each.factor}={each.better}", first="         → ", indent=11)
