"""Collect facts of the hosts under test, and list those in which two hosts, or two layers of one host, differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vmtax.core.records import Json
from vmtax.image.additions import digests
from vmtax.meter.facts import differences, read_facts
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.session import There
from vmtax.testbed.storage.host_disk import find_logged
from vmtax.testbed.subjects.provisioned import Provisioned
from vmtax.testbed.subjects.windows import is_windows, windows_facts
from vmtax.workload.durability import Durability

# Facts that may explain a difference in speed; those that change by the minute, or only name the host, are left out.
TOLD = (
    *("cpu_model", "microcode", "sockets", "cores", "threads_per_core", "cpus_online", "smt_active", "cpus_allowed"),
    *("cgroup_cpu_limit", "mitigations", "governor", "turbo", "max_frequency_hz", "frequency_limit_hz", "numa_nodes"),
    *("memory_bytes", "thp_enabled", "kernel_release", "kernel_version", "kernel_command_line", "os", "hypervisor"),
    *("clocksource", "qemu.text", "disk.file_system", "disk.stack", "disk.disks", "disk.named"),
)


def host_facts(sides: Sequence[Examined]) -> dict[str, Json]:
    """Facts of every host under test, its image, QEMU and disk, of the host to which guests move, and of an existing
    VM, by the path under which they are stored.
    """
    found = {root_facts_path(one): _facts_of_qemu(one) if one.second_qemu else _facts_of_host(one) for one in sides}
    found |= {there.machine.path: facts_of_destination(there) for one in sides if (there := one.destination)}
    found |= {one.watching.path: one.watching.facts for one in sides if one.watching}
    return found | {vm.host.path: _facts_of_existing(vm) for one in sides if (vm := one.existing)}


def _facts_of_existing(vm: Examined) -> Json:
    return windows_facts(vm) if is_windows(vm) else _facts_of_host(vm)


def facts_of_destination(there: There) -> Json:
    """Facts of the host to which guests move, and of its QEMU."""
    qemu = there.qemu
    return read_facts(there.machine) | {
        "qemu": {"command": list(qemu.identity), "version": qemu.version, "text": qemu.described},
        "accelerator": {"name": there.accelerator},
    }


def _facts_of_host(side: Examined) -> Json:
    facts = read_facts(side.host)
    if side.entered is not None:
        facts["uuid"] = side.entered.uuid
    if side.is_plugged:
        facts["os"] = None  # what is read there is the image's own
    facts["image"] = {
        "identity": side.session.image.identity,
        "kernel": side.session.image.kernel,
        "manifest": side.session.image.manifest(),
    }
    if files := digests(side.session.image.tree):
        facts["image"]["files"] = files
    made = side.kernel_pack if isinstance(side, Provisioned) else None
    if pack := made.pack if made else side.session.kernel_pack:
        facts["kernel_pack"] = {"version": pack.version, "digest": pack.digest}
    databases = side.database_pack if isinstance(side, Provisioned) else None
    if pack := databases.pack if databases else side.session.postgresql_pack:
        facts["postgresql_pack"] = {"version": pack.version, "digest": pack.digest}
    facts["cpus_measured"] = side.cpus
    facts["measured_as_root"] = side.is_root
    facts |= _facts_of_qemu(side)
    if side.has_disks and not side.is_plugged:
        target = side.target
        facts["disk"] = target.facts(side.host)
        if side.wants(Durability.name) and find_logged(side.lab, side.host, target) is not None:
            facts["disk"]["logged"] = True
        if isinstance(side, Provisioned) and side.features:
            facts["disk"]["features"] = dict(side.features)
    return facts


def _facts_of_qemu(side: Examined) -> Json:
    facts: Json = {}
    if side.platform is not None:
        qemu, accelerator = side.platform.qemu, side.platform.accelerator
        facts["qemu"] = {"command": list(qemu.identity), "version": qemu.version, "text": qemu.described}
        facts["accelerator"] = {"name": accelerator.name, "reason": accelerator.reason}
    return facts


def root_facts_path(side: Examined) -> str:
    """The path under which facts of a side's host are stored; a second QEMU stores only what differs from the first."""
    return side.facts_path(side.host.path)


def layer_differences(facts: Mapping[str, Json], sides: Sequence[Examined]) -> list[str]:
    """`differences` within each side; `facts` by path."""
    found: dict[str, None] = {}
    for side in sides:
        root = side.host.path
        for text in differences({path: facts[path] for path in facts if _is_of(path, root, side)}):
            found[text] = None
    return list(found)


def side_differences(facts: Mapping[str, Json], sides: Sequence[Examined]) -> list[str]:
    """One line for each fact in which the sides' hosts, or QEMUs, differ; `facts` by path."""
    if len(sides) < 2:
        return []
    own, theirs = sides
    where = f"with {theirs.side}" if theirs.second_qemu else f"on {theirs.side}"
    before, after = (facts[root_facts_path(side)] for side in (own, theirs))
    return [
        f"{name} differs between the sides: {_word(one)}; {where} {_word(another)}"
        for path in TOLD
        if path.partition(".")[0] in before and path.partition(".")[0] in after
        for name, one, another in _differing(path, _fact(before, path), _fact(after, path))
    ]


def _is_of(path: str, root: str, side: Examined) -> bool:
    name, _, qemu = path.partition(" with ")
    here = name == root or name.startswith(f"{root}/")
    return here and qemu == (side.side if side.second_qemu else "")


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
