"""Differences between the machines of two sides: the first thing to know about a comparison of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vmtax.core.records import Experiment, Json

# Dotted names of facts that differ from run to run anyway, or that repeat another fact.
VOLATILE = (
    "hostname",
    "machine_id",
    "boot_id",
    "frequency_hz",
    "command_line",
    "disk.free_bytes",
    "image.manifest",
    "image.files",
    "accelerator.reason",
)
# The subjects of upgrades come first, then the rest in the order of the facts.
FIRST = ("cpu_model", "microcode", "kernel_release", "kernel_version", "qemu", "mitigations", "accelerator", "image")
FEATURES = "disk.features"  # what a run found out about its disks
ABSENT = "none"


@dataclass(frozen=True, slots=True)
class FactChange:
    """One fact that is not the same on both sides."""

    path: str  # path of the machine: "host", "host/vm"
    name: str  # name of the fact, with dots: "qemu.version"
    before: str  # the value before, for people; different values of several sessions are joined by " | "
    after: str  # the value after, in the same form


def changes(before: Sequence[Experiment], after: Sequence[Experiment]) -> tuple[FactChange, ...]:
    """Facts that differ between the sides, machine by machine; the subjects of upgrades come first."""
    sides = [[_flat_of_paths(experiment.facts) for experiment in side] for side in (before, after)]
    names = dict.fromkeys(name for side in sides for known in side for name in known)
    found = []
    for path, name in names:
        values = [_values(side, (path, name)) for side in sides]
        if values[0] != values[1] and all(any(path == known for known, _ in facts) for side in sides for facts in side):
            found.append(FactChange(path, name, *(" | ".join(value) for value in values)))
    paths = list(dict.fromkeys(change.path for change in found))
    return tuple(sorted(found, key=lambda change: (paths.index(change.path), _rank(change.name))))


def mixed(side: Sequence[Experiment]) -> tuple[str, ...]:
    """Names of host facts that differ among the sessions of one side."""
    known = [dict(flat(experiment.facts.get("host") or {})) for experiment in side]
    names = dict.fromkeys(name for facts in known for name in facts)
    return tuple(name for name in names if len({facts.get(name, ABSENT) for facts in known}) > 1)


def software(experiment: Experiment) -> tuple[tuple[str, str], ...]:
    """The host's facts that upgrades change: sessions with equal ones are repetitions of each other."""
    return tuple((n, text) for n, text in flat(experiment.facts.get("host") or {}) if _rank(n) < len(FIRST))


def flat(facts: Json, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, text) of every lasting fact."""
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if name in VOLATILE:
            continue
        if name == FEATURES and prefix and value is not None:
            yield from ((f"{name}.{treatment}", _answers(found)) for treatment, found in value.items())
        elif isinstance(value, dict):
            yield from flat(value, f"{name}.")
        else:
            yield name, _text(value)


def _answers(features: Sequence[Json]) -> str:
    """A disk's features; the text of a refusal is no property of the machine."""
    return ", ".join(f"{feature['name']} {feature['state']}" for feature in features)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(entry) for entry in value) or ABSENT
    if isinstance(value, dict):  # entries of a list, whose present free space is no property of the pool
        return " ".join(f"{key}={_text(entry)}" for key, entry in value.items() if key != "free")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ABSENT if value is None else str(value)


def _flat_of_paths(facts: Json) -> dict[tuple[str, str], str]:
    return {(path, name): text for path, known in facts.items() for name, text in flat(known or {})}


def _values(side: Sequence[dict[tuple[str, str], str]], key: tuple[str, str]) -> list[str]:
    return sorted({facts.get(key, ABSENT) for facts in side})


def _rank(name: str) -> int:
    return FIRST.index(name.partition(".")[0]) if name.partition(".")[0] in FIRST else len(FIRST)
