"""What changed on many hosts between two fleets: each host is compared with itself, and the host is the unit. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.many.choose import OmittedRun
from vmtax.analysis.many.costs import PROPERTIES, CostFigure, CostSubject, RunCosts, changed_properties
from vmtax.analysis.many.fleet import Fleet, FleetLine, fleet
from vmtax.analysis.many.sides import Drifts, HostSides, averaged, drifts, host_sides
from vmtax.analysis.sessions.change import Outcome, outcome
from vmtax.core.errors import BadInput


class NoPairs(BadInput):
    """No host has comparable runs on both sides; the text says why."""


@dataclass(frozen=True, slots=True)
class HostPair:
    """One host, with its runs on each side."""

    host: str  # its name for a reader
    before: tuple[str, ...]  # ids of its runs before, newest first
    after: tuple[str, ...]  # ids of its runs after, newest first
    software: tuple[str, ...]  # what differs between the two sides besides the times: "kernel A → B"


@dataclass(frozen=True, slots=True)
class ChangedLine:
    """The change of one time, or of one cost, over all hosts."""

    line: FleetLine  # its ratios are times after / times before
    verdict: Outcome  # same: the interval of the mean lies within same_within; worse, better: it does not, and excludes
    # no change; undecided: the interval is too wide, or there is none
    run_to_run: float | None  # standard deviation of a host from run to run, beyond the errors of its rounds, as a
    # fraction; None: too few hosts were measured several times on one side, so it is in no host's interval


@dataclass(frozen=True, slots=True)
class FleetChange:
    """The changes of all hosts."""

    before: str  # labels of the runs before, with commas between them
    after: str  # labels of the runs after, with commas between them
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
        """What differs between the two sides of hosts, and on how many of them; the most first."""
        return tuple(Counter(text for pair in self.pairs for text in pair.software).most_common())


def fleet_change(before: Sequence[RunCosts], after: Sequence[RunCosts], same_within: float) -> FleetChange:
    """The changes from runs of some labels to runs of others, of one plan. A host counts once, with the mean of its
    runs on each side. Raises NoPairs.
    """
    first, second = (",".join(dict.fromkeys(run.label for run in side)) for side in (before, after))
    hosts, left_out = host_sides(before, after)
    if not hosts:
        why = f": {left_out[0].host}: {left_out[0].why}" if left_out else ""
        raise NoPairs(f"no host has runs that can be compared in both {first!r} and {second!r}{why}")
    known = drifts(hosts)
    pairs = {host.after[0].id: averaged(host, known) for host in hosts}
    runs = {host.after[0].id: host for host in hosts}
    changes = fleet([_changed(*pair) for pair in pairs.values()])
    return FleetChange(
        *(first, second),
        pairs=tuple(_pair(run.host_name, runs[run.id], *pairs[run.id]) for run in changes.costs),
        changes=changes,
        lines=tuple(_line(line, same_within, known) for line in sorted(changes.lines, key=_order)),
        same_within=same_within,
        left_out=(*left_out, *changes.left_out),
    )


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


def _pair(name: str, host: HostSides, before: RunCosts, after: RunCosts) -> HostPair:
    first, second = (tuple(run.id for run in side) for side in (host.before, host.after))
    return HostPair(name, first, second, tuple(changed_properties(before, after)))


def _order(line: FleetLine) -> tuple[bool, bool]:
    return bool(line.baseline), not line.primary


def _line(line: FleetLine, same_within: float, known: Drifts) -> ChangedLine:
    low, high = (None if end is None else end - 1 for end in (line.low, line.high))
    drift = known.get(CostSubject(line.metric, line.baseline, line.treatment))
    return ChangedLine(
        line, outcome(low, high, same_within), None if drift is None else math.expm1(math.sqrt(drift.variance))
    )
