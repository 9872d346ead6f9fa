"""Make a plan of an existing guest: its settings as the baseline, and beside each the choices that are as safe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtax.design.factors import FACTORS, idle, why_illegal
from vmtax.existing.guest import HIDDEN, KINDS, MOST_VCPUS, ExistingDisk, ExistingGuest, NoGuest, Remark
from vmtax.plan.schema import parse

LEAST_MEMORY, MOST_MEMORY = 256 * 2**20, 1024 * 2**40
# Factor -> other levels that lose nothing that was promised to the guest, the recommended one first. A level that does
# not go with the rest of the guest is left out by itself.
AS_SAFE: Mapping[str, tuple[str, ...]] = {
    "disk.cache": ("none", "writeback"),
    "disk.aio": ("native", "io_uring", "threads"),
    "disk.bus": ("virtio",),
    "disk.iothread": ("on",),
    "cpu.model": ("host",),
    "cpu.hyperv": ("all",),
    "net.path": ("vhost",),
}
WORKLOADS = """\
workloads:
  - chess
  - disk:
      size: 1GiB
      seconds: 4
      percentiles: [p50, p99]
      patterns: [randread-4k-qd1, randwrite-4k-qd32, randwrite-4k-fsync, read-1m]
"""
PRIMARY = ("chess.nodes_per_second", "disk.randread-4k-qd1.iops", "disk.randwrite-4k-fsync.iops")
NETWORK, OF_NETWORK = "  - net: {cases: [tcp-in, tcp-out], seconds: 2}\n", "net.tcp-in.bits_per_second"


@dataclass(frozen=True, slots=True)
class ExistingPlan:
    """A plan of an existing guest."""

    text: str  # YAML
    levels: Mapping[str, str]  # factor -> the level that the guest has
    remarks: tuple[Remark, ...]  # what is not measured as it is configured


def plan_of(guest: ExistingGuest, disk_name: str = "", *, host: str = "local") -> ExistingPlan:
    """The plan that measures a guest of ours with these settings. `disk_name`: the disk whose settings it has.

    Raises NoGuest if there is no such disk, or if the guest is too large for a plan.
    """
    disk = _disk(guest, disk_name)
    card = guest.cards[0] if guest.cards else None
    wanted = {**guest.levels, **(disk.levels if disk else {}), **(card.levels if card else {})}
    levels, more = _legal(wanted)
    remarks = [*guest.remarks, *more]
    if len(guest.cards) > 1:
        names = ", ".join(each.name for each in guest.cards)
        remarks.append(Remark(names, f"{len(guest.cards)} cards", f"{guest.cards[0].name} is measured"))
    memory, vcpus = _size(guest, remarks)
    lines = [
        f"# {guest.name}, as {KINDS[guest.kind]} describes it{f', with its disk {disk.name}' if disk else ''}.",
        "# The first level of each factor is the guest's own; the others are as safe. What is not measured as it is",
        "# configured is listed at the end.",
        f"name: {_slug(guest.name)}",
        *([f"host: {host}"] if host != "local" else []),
        "layers: [host, vm]",
        f"guest: {{vcpus: {vcpus}, memory: {memory >> 20}MiB}}",
        "factors:",
        *(
            f"  {name}: [{', '.join(_quoted(level) for level in (own, *_others(name, levels)))}]"
            for name, own in levels.items()
        ),
        "design: one-at-a-time",
    ]
    if not levels:
        lines[-2:] = []
    network = NETWORK if card else ""
    primary = (*PRIMARY, *([OF_NETWORK] if card else []))
    text = "\n".join(lines) + "\n" + WORKLOADS + network + "primary:\n" + "".join(f"  - {name}\n" for name in primary)
    text += "rounds: {min: 7, max: 10}\nbudget: 1h\n"
    text += "".join(f"# {line}\n" for line in remark_lines(remarks))
    parse(text, guest.name)  # a plan that could not be read would be a fault of ours
    return ExistingPlan(text, levels, tuple(remarks))


def remark_lines(remarks: Sequence[Remark]) -> list[str]:
    """One line for each."""
    return [f"{each.where}{_in_brackets(each.text)}: {each.why}" for each in remarks]


def _in_brackets(text: str) -> str:
    return "" if not text else f" {text}" if text == HIDDEN else f" ({text})"


def _disk(guest: ExistingGuest, name: str) -> ExistingDisk | None:
    if not name:
        return guest.first_disk
    names = [disk.name for disk in guest.disks if not disk.is_cd]
    if name not in names:
        have = f"it has {', '.join(names)}" if names else "it has none"
        raise NoGuest(f"{guest.name}: has no disk {name!r}; {have}")
    return next(disk for disk in guest.disks if disk.name == name)


def _legal(wanted: Mapping[str, str]) -> tuple[dict[str, str], list[Remark]]:
    """The levels that a plan can have, in the order of the factors; and why others are left out."""
    remarks: list[Remark] = []
    levels: dict[str, str] = {}
    for name in (name for name in FACTORS if name in wanted):
        level = wanted[name]
        if not FACTORS[name].takes(level):
            remarks.append(Remark(name, level, f"cannot be measured; it is measured as {FACTORS[name].default}"))
            continue
        without = why_illegal({**levels, name: level})
        if without is None:
            levels[name] = level
        else:
            remarks.append(Remark(name, level, f"{without}; it is measured as {FACTORS[name].default}"))
    for name, needs in idle(levels).items():
        remarks.append(Remark(name, levels.pop(name), f"has no meaning without {needs}"))
    return levels, remarks


def _others(name: str, levels: Mapping[str, str]) -> list[str]:
    """The other levels that are compared, of those that go with the rest."""
    others = [level for level in AS_SAFE.get(name, ()) if level != levels[name]]
    if name == "disk.cache" and levels[name] == "none":
        others = []  # which every other choice only approaches
    return [
        level
        for level in others
        if why_illegal({**levels, name: level}) is None and name not in idle({**levels, name: level})
    ]


def _size(guest: ExistingGuest, remarks: list[Remark]) -> tuple[int, int]:
    """Bytes of memory, and CPUs."""
    if not (guest.memory_bytes <= MOST_MEMORY and 0 < guest.vcpus <= MOST_VCPUS):
        raise NoGuest(
            f"{guest.name}: {guest.memory_bytes >> 30} GiB and {guest.vcpus} CPUs are more than a plan can have"
        )
    memory = max(guest.memory_bytes, LEAST_MEMORY) >> 20 << 20
    if memory != guest.memory_bytes:
        remarks.append(Remark("memory", f"{guest.memory_bytes} bytes", f"{memory >> 20} MiB are measured"))
    return memory, guest.vcpus


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:64].strip("-.") or "guest"


def _quoted(level: str) -> str:
    """As YAML text: a level of digits, or `off`, is no text for every reader."""
    return level if re.fullmatch(r"[A-Za-z][\w.+-]*", level) else f'"{level}"'
