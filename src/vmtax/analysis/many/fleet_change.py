"""What changed on many hosts between two fleets: each host is compared with itself, and the host is the unit. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.many.choose import MachineKey, OmittedRun, by_machine
from vmtax.analysis.many.costs import PROPERTIES, CostFigure, RunCosts, changed_properties
from vmtax.analysis.many.fleet import Fleet, FleetLine, fleet
from vmtax.analysis.sessions.change import Outcome, outcome
from vmtax.analysis.sessions.work import unlike
from vmtax.core.errors import BadInput

SIDES = ("before", "after")


class NoPairs(BadInput):
    """No host has comparable runs on both sides; the text says why."""


@dataclass(frozen=True, slots=True)
class HostPair:
    """One host, with its newest run on each side."""

    host: str  # its name for a reader
    before: str  # id of its run before
    after: str  # id of its run after
    software: tuple[str, ...]  # what differs between the two runs besides the times: "kernel A → B"


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """The change of one time, or of one cost, over all hosts."""

    line: FleetLine  # its ratios are times after / times before
    verdict: Outcome  # same: the interval of the mean lies within same_within; worse, better: it does not, and excludes
    # no change; undecided: the interval is too wide, or there is none


@dataclass(frozen=True, slots=True)
class FleetChange:
    """The changes of all hosts."""

    before: str  # label of the runs before
    after: str  # label of the runs after
    pairs: tuple[HostPair, ...]  # in the order of the names of hosts
    changes: Fleet  # each run of it is the change of one host: its ratios are times after / times before
    lines: tuple[ChangedLine, ...]  # times of primary metrics first, then other times, then costs
    same_within: float  # differences of the mean up to this count as the same, as a fraction
    left_out: tuple[OmittedRun, ...]  # hosts that cannot be compared, with the reason

    @property
    def plan(self) -> str:
        """Name of the plan."""
        return self.changes.plan

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that are compared."""
        return self.changes.hosts

    @property
    def primary(self) -> tuple[ChangedLine, ...]:
        """The lines that its first sentence is about: the times of primary metrics; all times if none is primary."""
        times = tuple(one for one in self.lines if not one.line.baseline)
        return tuple(one for one in times if one.line.primary) or times

    @property
    def software(self) -> tuple[tuple[str, int], ...]:
        """What differs between the two runs of hosts, and on how many of them; the most first."""
        return tuple(Counter(text for pair in self.pairs for text in pair.software).most_common())


def fleet_change(before: Sequence[RunCosts], after: Sequence[RunCosts], same_within: float) -> FleetChange:
    """The changes from runs of one label to runs of another one, of one plan. Raises NoPairs."""
    first, second = before[0].label, after[0].label
    left_out: list[OmittedRun] = []
    pairs = []
    for sides in _by_machine(before, after):
        if len(sides) == 1:
            ((side, run),) = sides.items()
            left_out.append(OmittedRun(run.id, run.host_name, f"measured only {SIDES[side]}"))
        elif why := next(unlike(sides[0].work, sides[1].work), None):
            words = why.replace(" in the first,", f" {SIDES[0]},").replace(" in the second", f" {SIDES[1]}")
            left_out.append(OmittedRun(sides[1].id, sides[1].host_name, words))
        else:
            pairs.append((sides[0], sides[1]))
    if not pairs:
        why = f": {left_out[0].host}: {left_out[0].why}" if left_out else ""
        raise NoPairs(f"no host has runs that can be compared in both {first!r} and {second!r}{why}")
    changes = fleet([_changed(*pair) for pair in pairs])
    known = {pair[1].id: pair for pair in pairs}
    return FleetChange(
        *(first, second),
        pairs=tuple(_pair(run.host_name, *known[run.id]) for run in changes.costs),
        changes=changes,
        lines=tuple(_line(line, same_within) for line in sorted(changes.lines, key=_order)),
        same_within=same_within,
        left_out=(*left_out, *changes.left_out),
    )


def _by_machine(before: Sequence[RunCosts], after: Sequence[RunCosts]) -> Iterator[dict[int, RunCosts]]:
    """For each machine, its newest run on each side (0: before) that has one."""
    ids = {run.id for run in before}
    machines: dict[MachineKey, list[RunCosts]] = by_machine([*before, *after])
    for runs in machines.values():
        yield {int(run.id not in ids): run for run in sorted(runs, key=lambda run: run.created)}


def _changed(before: RunCosts, after: RunCosts) -> RunCosts:
    """The change of one host, as the costs of a run are: logarithms of ratios with errors, properties by which hosts
    are grouped.
    """
    known = {figure.subject: figure for figure in (*before.levels, *before.figures)}
    pairs = [(known[figure.subject], figure) for figure in (*after.levels, *after.figures) if figure.subject in known]
    values = {name: [run.properties.get(name, "unknown") for run in (before, after)] for name in PROPERTIES}
    return dataclasses.replace(
        after,
        figures=tuple(_figure(*pair) for pair in pairs),
        levels=(),
        properties={name: " → ".join(dict.fromkeys(texts)) for name, texts in values.items()},
    )


def _figure(before: CostFigure, after: CostFigure) -> CostFigure:
    one, other = (stats.HostEstimate(figure.log, figure.error, figure.freedom) for figure in (before, after))
    change = stats.paired(one, other)
    return dataclasses.replace(
        after,
        log=change.log,
        error=change.error,
        rounds=min(before.rounds, after.rounds),
        freedom=change.freedom,
        low=change.low,
        high=change.high,
        primary=after.primary and not after.subject.baseline,
        emulated=before.emulated or after.emulated,
    )


def _pair(name: str, before: RunCosts, after: RunCosts) -> HostPair:
    return HostPair(name, before.id, after.id, tuple(changed_properties(before, after)))


def _order(line: FleetLine) -> tuple[bool, bool]:
    return bool(line.baseline), not line.primary


def _line(line: FleetLine, same_within: float) -> ChangedLine:
    low, high = (None if end is None else end - 1 for end in (line.low, line.high))
    return ChangedLine(line, outcome(low, high, same_within))
