"""Two hosts, or two QEMUs, in the same shuffled rounds: what `run --interleave-with` makes of a plan.

Two QEMUs share their host and so its drift: nothing lies between the sides but themselves, and their contrast needs no
correction for sessions. Two hosts share the hour, but each drifts by itself; a warning beside their contrasts says so.
`sides.py` has what is pure of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from vmtax.core.events import Event, Notice, Step
from vmtax.core.records import Json
from vmtax.design.interleaved import is_host, qemu_name
from vmtax.hypervisor.qemu.detect import DEFAULT
from vmtax.image.cache import Image
from vmtax.machine import Machine
from vmtax.meter.disk import disk_facts, named_disks
from vmtax.meter.facts import differences, read_facts
from vmtax.plan.rules import host as checked_host
from vmtax.plan.schema import Plan
from vmtax.testbed.environment import (
    CannotMeasure,
    Environment,
    EnvironmentOptions,
    Hosts,
    choose_hypervisor,
    examine,
)
from vmtax.testbed.provision import provision

Environments = Mapping[str, Environment]  # Treatment.side -> where its treatments are measured, the plan's own first

# What may tell two hosts apart in speed; what changes by the minute, or names the host only, is not in it.
TOLD = (
    *("cpu_model", "microcode", "sockets", "cores", "threads_per_core", "cpus_online", "smt_active", "cpus_allowed"),
    *("cgroup_cpu_limit", "mitigations", "governor", "turbo", "max_frequency_hz", "frequency_limit_hz", "numa_nodes"),
    *("memory_bytes", "thp_enabled", "kernel_release", "kernel_version", "kernel_command_line", "os", "hypervisor"),
    *("clocksource", "qemu.text", "disk.file_system", "disk.stack", "disk.disks", "disk.named"),
)
BOOT_ID = "/proc/sys/kernel/random/boot_id"
# The path that a shell would start it by: constant text, the name stays an argument.
WHICH = ("sh", "-c", 'command -v -- "$1"', "sh")


def other_host(options: EnvironmentOptions) -> str | None:
    """The second host under test; None where there is none."""
    other = options.interleave_with
    return other if other is not None and is_host(other) else None


def why_not(plan: Plan, options: EnvironmentOptions) -> str | None:
    """Why the plan cannot be interleaved with what the options name, in one line; None where it can, or nothing is."""
    other = options.interleave_with
    if other is None:
        return None
    if is_host(other):
        try:
            checked_host(other)
        except ValueError as error:
            return str(error)
        if options.target.erase:
            return f"--erase would hold for {other} too, whose disks are others: empty what is meant, and leave it out"
        return f"{other} is the plan's own host: name another, or a QEMU" if other == plan.host else None
    if not other or other.startswith("-"):
        return f"must be local, ssh://[user@]host, lab[:NAME] or a QEMU program, not {other!r}"
    if set(plan.layers) <= {"host"}:
        return f"{other} is taken for a QEMU, and this plan has no guests to run: name a host, or add a layer"
    own = options.qemu or DEFAULT
    return f"{other} is the QEMU that the plan is measured with: name another, or a host" if other == own else None


def set_up(
    hosts: Hosts,
    plan: Plan,
    image: Image,
    emit: Callable[[Event], None],
    options: EnvironmentOptions,
    check: Callable[[Environments], None] = lambda environments: None,
) -> Environments:
    """Set up what the plan needs, on every side; the hosts' guards undo it.

    Raises CannotMeasure, also where the sides are unlike, what the parts raise, and what `check` does when the hosts
    are known and nothing is made yet; nothing slow is done before that.
    """
    other = options.interleave_with
    if other is None:
        sides = [examine(hosts.local, hosts.host, plan, image, emit, options)]
    elif hosts.other is not None:
        sides = _two_hosts(hosts, hosts.other, plan, image, emit, options)
    else:
        sides = _two_qemus(hosts, other, plan, image, emit, options)
    check({side.side: side for side in sides})
    sides = list(_provisioned(sides, emit))
    for side, note in zip(sides, _notes(sides), strict=True):
        side.notes = note
        for text in note:
            emit(Notice(text))
    return {side.side: side for side in sides}


def _two_hosts(
    hosts: Hosts, other: Machine, plan: Plan, image: Image, emit: Callable[[Event], None], options: EnvironmentOptions
) -> list[Environment]:
    if hosts.host.read_text(BOOT_ID) == other.read_text(BOOT_ID):
        raise CannotMeasure(f"{other.path} is the machine that {plan.host} is: interleave with another, or with a QEMU")
    own = examine(hosts.local, hosts.host, plan, image, emit, options)
    theirs = examine(hosts.local, other, own.plan, image, _telling(emit, other.path), options, own.credentials)
    theirs.side = other.path
    refuse_unlike(own, theirs)
    return [own, theirs]


def _two_qemus(
    hosts: Hosts, program: str, plan: Plan, image: Image, emit: Callable[[Event], None], options: EnvironmentOptions
) -> list[Environment]:
    """Everything is shared but QEMU, and KVM, which is tried with each."""
    own = examine(hosts.local, hosts.host, plan, image, emit, options)
    theirs = dataclasses.replace(own, side=program, qemu=None, accelerator=None, notes=[])
    choose_hypervisor(theirs, program, emit)
    assert own.qemu is not None
    if _which(own.host, own.qemu.identity[0]) == _which(own.host, program):
        raise CannotMeasure(f"{program} is the QEMU that the plan is measured with: name another, or a host")
    refuse_unlike(own, theirs)
    return [own, theirs]


def _provisioned(sides: Sequence[Environment], emit: Callable[[Event], None]) -> Iterator[Environment]:
    """A second QEMU has what was set up for the first."""
    own = sides[0]
    examined = len(own.notes)
    provision(own, emit)
    yield own
    for theirs in sides[1:]:
        if theirs.second_qemu:
            notes = [*theirs.notes, *own.notes[examined:]]
            qemu, accelerator = theirs.qemu, theirs.accelerator
            yield dataclasses.replace(own, side=theirs.side, qemu=qemu, accelerator=accelerator, notes=notes)
        else:
            provision(theirs, _telling(emit, theirs.side))
            yield theirs


def refuse_unlike(own: Environment, theirs: Environment) -> None:
    """Raises CannotMeasure where the sides would be set up so differently that no contrast of them means anything."""
    labels = _labels(own, theirs)
    if own.host_emulated != theirs.host_emulated:
        real, played = labels if theirs.host_emulated else reversed(labels)
        raise CannotMeasure(
            f"{played} is itself emulated (TCG) and {real} is not: emulated is not compared with not emulated; "
            "interleave two hosts of one kind"
        )
    if _guests_emulated(own) != _guests_emulated(theirs):
        kvm, tcg = labels if _guests_emulated(theirs) else reversed(labels)
        emulated = theirs if _guests_emulated(theirs) else own
        assert emulated.accelerator is not None
        raise CannotMeasure(
            f"{kvm} runs guests on KVM, {tcg} emulates them ({emulated.accelerator.reason}): emulated is not"
            " compared with not emulated; mend KVM there, or compare hosts only, with --layers host"
        )
    if own.is_root != theirs.is_root:
        root, user = labels if own.is_root else reversed(labels)
        raise CannotMeasure(
            f"root on {root} and a user on {user}: bridge and cold caches would be on one side only; "
            "be root on both, or on neither"
        )


def _guests_emulated(environment: Environment) -> bool:
    return environment.accelerator is not None and environment.accelerator.name == "tcg"


def host_facts(environments: Environments) -> dict[str, Json]:
    """Facts of every host under test, with its image, QEMU and disk; by path."""
    return {
        root_facts_path(each): _facts_of_qemu(each) if each.second_qemu else _facts_of_host(each)
        for each in environments.values()
    }


def _facts_of_host(environment: Environment) -> Json:
    facts = read_facts(environment.host)
    facts["image"] = {
        "identity": environment.image.identity,
        "kernel": environment.image.kernel,
        "manifest": environment.image.manifest(),
    }
    facts["cpus_measured"] = environment.cpus
    facts["measured_as_root"] = environment.is_root
    facts |= _facts_of_qemu(environment)
    if environment.wants("disk"):
        target = environment.target
        facts["disk"] = disk_facts(environment.host, target.directory)
        if named := named_disks(environment.host, target.devices, target.group, target.pool):
            facts["disk"]["named"] = named
        if environment.features:
            facts["disk"]["features"] = environment.features
    return facts


def _facts_of_qemu(environment: Environment) -> Json:
    facts: Json = {}
    if environment.qemu is not None:
        qemu = environment.qemu
        facts["qemu"] = {"command": list(qemu.identity), "version": qemu.version, "text": qemu.described}
    if environment.accelerator is not None:
        facts["accelerator"] = {"name": environment.accelerator.name, "reason": environment.accelerator.reason}
    return facts


def root_facts_path(environment: Environment) -> str:
    """Under which the facts of a side's host are kept; of a second QEMU's only what differs from the plan's own."""
    return environment.facts_path(environment.host.path)


def layer_differences(facts: Mapping[str, Json], environments: Environments) -> list[str]:
    """`differences`, each side for itself; `facts` by path."""
    found: dict[str, None] = {}
    for environment in environments.values():
        root = environment.host.path
        for text in differences({path: facts[path] for path in facts if _is_of(path, root, environment)}):
            found[text] = None
    return list(found)


def side_differences(facts: Mapping[str, Json], environments: Environments) -> list[str]:
    """One line for each fact in which the sides' hosts, or QEMUs, differ; `facts` by path."""
    if len(environments) < 2:
        return []
    own, theirs = environments.values()
    where = f"with {theirs.side}" if theirs.second_qemu else f"on {theirs.side}"
    before, after = (facts[root_facts_path(environment)] for environment in (own, theirs))
    return [
        f"{name} differs between the sides: {_word(one)}; {where} {_word(another)}"
        for path in TOLD
        if path.partition(".")[0] in before and path.partition(".")[0] in after
        for name, one, another in _differing(path, _fact(before, path), _fact(after, path))
    ]


def _is_of(path: str, root: str, environment: Environment) -> bool:
    name, _, qemu = path.partition(" with ")
    here = name == root or name.startswith(f"{root}/")
    return here and qemu == (environment.side if environment.second_qemu else "")


def _labels(own: Environment, theirs: Environment) -> tuple[str, str]:
    """What to call the plan's own side, and the other."""
    if theirs.second_qemu and own.qemu is not None:
        return qemu_name(own.qemu.identity), theirs.side
    return own.plan.host, theirs.side


def _notes(sides: Sequence[Environment]) -> Iterator[list[str]]:
    """The notes of each side: what is true of both is said once, anything else says of which side it is."""
    if len(sides) == 1:
        yield sides[0].notes
        return
    labels = _labels(*sides)
    own, theirs = (side.notes for side in sides)
    yield [note if note in theirs else f"{labels[0]}: {note}" for note in own]
    yield [f"{labels[1]}: {note}" for note in theirs if note not in own]


def _telling(emit: Callable[[Event], None], who: str) -> Callable[[Event], None]:
    """Steps of the second host say so."""

    def tell(one: Event) -> None:
        emit(dataclasses.replace(one, what=f"{who}: {one.what}") if isinstance(one, Step) else one)

    return tell


def _which(host: Machine, program: str) -> str:
    outcome = host.try_run(*WHICH, program)
    return outcome.stdout.strip() or program


def _differing(name: str, one: object, another: object) -> Iterator[tuple[str, object, object]]:
    if isinstance(one, dict) and isinstance(another, dict):
        for key in dict.fromkeys((*one, *another)):
            yield from _differing(f"{name}.{key}", one.get(key), another.get(key))
    elif one != another:
        yield name, one, another


def _fact(facts: Json, dotted: str) -> object:
    found: object = facts
    for part in dotted.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _word(value: object) -> str:
    return "not known" if value is None else str(value)
