"""The machines of a treatment: which ones work at the same time, and where each of them runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vmtax.core.layers import GUESTS
from vmtax.core.records import Treatment, Trial
from vmtax.design.guest import COUNT, GuestSettings
from vmtax.design.settings import UnknownLevel

COUNTED = "counted."  # prefix of a trial's readings that say which part of its time its figures cover


@dataclass(frozen=True, slots=True)
class Subject:
    """One machine whose work is measured. All subjects of a treatment work at the same time.

    On the host layer, each one after the first is another set of processes on the same machine.
    """

    name: str  # unique among the subjects of one parent: "host", "vm", "vm-2"
    layer: str  # of core/layers.py
    number: int = 1  # among its treatment's subjects, from 1: it determines disk, address and port
    levels: Mapping[str, str] = field(default_factory=dict)  # dotted factor name -> level
    outer: str | None = None  # name of the VM that carries it; None: it runs on the host itself


@dataclass(frozen=True, slots=True)
class Topology:
    """The machines of one treatment."""

    subjects: tuple[Subject, ...]

    @property
    def carried(self) -> dict[str, list[Subject]]:
        """The name of each outer VM -> the subjects that it carries."""
        found: dict[str, list[Subject]] = {}
        for subject in self.subjects:
            if subject.outer is not None:
                found.setdefault(subject.outer, []).append(subject)
        return found


def machines_at_once(treatment: Treatment) -> int | None:
    """How many machines do the treatment's work at the same time; None for a stored level that is unknown here."""
    try:
        return len(topology(treatment).subjects)
    except UnknownLevel:
        return None


def guest_count(treatment: Treatment) -> int:
    """The level of guest.count, which may be one that only another version has; 0 if it is no number."""
    level = treatment.levels.get(COUNT.name, COUNT.default)
    return int(level) if level.isascii() and level.isdigit() else 0


def none_alike(treatments: Sequence[Treatment]) -> bool:
    """Whether no two of them can be compared: it is a single one, or each has another number of machines at once."""
    return len({guest_count(treatment) for treatment in treatments}) == len(treatments)


Groups = dict[tuple[str, str, int], list[Treatment]]  # (layer, side, machines that work at once) -> its treatments


def groups(treatments: Iterable[Treatment]) -> Groups:
    """The treatments between which one can choose, without the A/A.

    How many machines work at once is a condition of an experiment, and no choice.
    """
    found: Groups = {}
    for treatment in treatments:
        if treatment.repeats is None:
            key = treatment.layer, treatment.side, guest_count(treatment)
            found.setdefault(key, []).append(treatment)
    return found


def hosts_of(grouped: Groups, side: str, count: int) -> list[Treatment]:
    """The host's treatments with which guests of that side and number are compared."""
    return grouped.get(("host", side, count)) or grouped.get(("host", "", count), [])  # two QEMUs share a host's layer


def varying(members: Sequence[Treatment]) -> tuple[str, ...]:
    """The factors in which the treatments differ, in order of appearance."""
    names = dict.fromkeys(name for treatment in members for name in treatment.levels)
    return tuple(name for name in names if len({treatment.levels.get(name) for treatment in members}) > 1)


def with_count(layer: str, count: int) -> str:
    """A group in words: "vm", "vm, 4 at once"."""
    return f"{layer}, {count} at once" if count > 1 else layer


def unlike(treatments: Sequence[Treatment]) -> str | None:
    """Which comparisons are omitted because the treatments differ in their number of machines at once, in one line."""
    if len({guest_count(treatment) for treatment in treatments}) < 2:
        return None
    return (
        "guest.count: only configurations with the same number of guests at once are compared; the report's table"
        ' "Several guests at once" has what more guests cost'
    )


def topology(treatment: Treatment) -> Topology:
    """The machines for a treatment's levels: its layer once, or as often as `guest.count` says."""
    settings, layer = GuestSettings.of(treatment.levels), treatment.layer
    subjects = []
    for number in range(1, settings.count + 1):
        name, outer = _numbered(layer if layer not in GUESTS else "vm", number), None
        if layer == "nested":
            name, outer = ("vm", name) if settings.outer == "own" else (name, "vm")
        subjects.append(Subject(name, layer, number, treatment.levels, outer))
    return Topology(tuple(subjects))


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


@dataclass(frozen=True, slots=True)
class Worked:
    """When one machine worked, in seconds since the epoch. Its figures cover the time from `begin` to `end`."""

    since: float
    begin: float
    end: float
    until: float

    @staticmethod
    def of(trial: Trial) -> Worked:
        """From the recorded parts; without them, all of its command's time."""
        until = trial.started + trial.wall_seconds
        found = trial.readings.get(trial.machine, {})
        if COUNTED + "seconds" not in found:
            return Worked(trial.started, trial.started, until, until)
        until -= found[COUNTED + "rest"]
        end = until - found[COUNTED + "after"]
        begin = end - found[COUNTED + "seconds"]
        return Worked(begin - found[COUNTED + "before"], begin, end, until)


def overlap(machines: Iterable[Worked]) -> float:
    """The smallest share, over the machines, of the time that counts in which all machines worked."""
    every = tuple(machines)
    since, until = max(each.since for each in every), min(each.until for each in every)
    return min(_share(each, since, until) for each in every)


def _share(one: Worked, since: float, until: float) -> float:
    seconds = one.end - one.begin
    return 1.0 if seconds <= 0 else max(0.0, min(one.end, until) - max(one.begin, since)) / seconds
