"""The costs of one plan on many hosts: their mean, where the next host lies, which hosts are odd, and what goes with
the differences. The host is the unit. Pure.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vmtax import stats
from vmtax.analysis.many.choose import OmittedRun, alike, by_machine
from vmtax.analysis.many.costs import PROPERTIES, CostFigure, CostSubject, RunCosts
from vmtax.core.records import Metric

Key = TypeVar("Key")
FEWEST_OF_MEAN = 2  # hosts
GROUP_ALPHA = 0.05  # over all properties of all primary costs, by Holm
MARK = 6  # digits that tell hosts of one name apart, at least


@dataclass(frozen=True, slots=True)
class HostCost:
    """One cost of one host."""

    host: str  # name of the host for a reader
    run: str  # id of its run
    ratio: float  # ratio of the times for the same work
    low: float | None  # lower end of its interval within the run; None: too few rounds
    high: float | None  # upper end of its interval
    rounds: int  # rounds in which both have a value
    deviation: float  # times on this host / times on the median host
    p: float | None  # p-value of the deviation; None: too few hosts
    odd: bool  # whether it differs from the others by more than they do among themselves


@dataclass(frozen=True, slots=True)
class GroupCost:
    """The hosts that have the same value of a property."""

    value: str  # of the property, such as "6.12.48+deb13-amd64"
    hosts: int  # number of hosts
    ratio: float  # mean ratio of the times for the same work
    low: float  # lower end of its interval
    high: float  # upper end of its interval


@dataclass(frozen=True, slots=True)
class PropertyCost:
    """A property of the hosts with which a cost goes, or not: an association, for other things differ between them."""

    name: str  # of the property: CPU, microcode, kernel, QEMU, system
    groups: tuple[GroupCost, ...]  # values that two hosts or more have; the fastest first
    p: float  # p-value by permutation of the hosts, corrected for the number of properties and primary costs
    shown: bool  # whether the cost goes with it: p is 0.05 or less
    same_as: tuple[str, ...]  # other properties that group the hosts in the same way: which of them matters is unknown


@dataclass(frozen=True, slots=True)
class FleetLine:
    """One cost over all hosts."""

    metric: Metric
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    primary: bool  # whether the metric is primary
    emulated: bool  # whether the figure of any host is emulated
    ratio: float | None  # mean ratio of the times for the same work; None: fewer than two hosts
    low: float | None  # lower end of the interval of the mean
    high: float | None  # upper end of the interval of the mean
    between: float | None  # standard deviation between hosts, beyond their own errors, as a fraction: 0.01 is 1 %
    next_low: float | None  # lower end of the prediction interval: where the next host lies; None: fewer than 3 hosts
    next_high: float | None  # upper end of the prediction interval
    hosts: tuple[HostCost, ...]  # those that have it, in the order of the fleet
    properties: tuple[PropertyCost, ...]  # those in which the hosts differ; none unless the metric is primary

    @property
    def odd(self) -> tuple[HostCost, ...]:
        """The odd hosts, the farthest first."""
        return tuple(sorted((one for one in self.hosts if one.odd), key=lambda one: -abs(math.log(one.deviation))))


@dataclass(frozen=True, slots=True)
class MergedHost:
    """A machine with several runs, of which the newest counts."""

    host: str  # its name for a reader
    run: str  # id of the run that counts
    others: tuple[str, ...]  # ids of the others, newest first
    names: tuple[str, ...]  # its names in all of them, if there are several


@dataclass(frozen=True, slots=True)
class Fleet:
    """The costs of one plan on many hosts."""

    plan: str  # name of the plan
    label: str  # that the runs were chosen by; "": by the plan
    costs: tuple[RunCosts, ...]  # of each host, by name
    lines: tuple[FleetLine, ...]  # primary metrics first
    merged: tuple[MergedHost, ...]  # machines with several runs
    left_out: tuple[OmittedRun, ...]  # hosts whose work differs from that of the most

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return tuple(run.host_name for run in self.costs)

    @property
    def primary(self) -> tuple[FleetLine, ...]:
        """The lines of primary metrics; all if none is primary."""
        return tuple(line for line in self.lines if line.primary) or self.lines


def fleet(runs: Sequence[RunCosts], label: str = "") -> Fleet:
    """The fleet of these runs, one at least. Of each machine the newest counts; those of other work are left out."""
    machines = [sorted(found, key=lambda run: -run.created) for found in by_machine(runs).values()]
    newest = [found[0] for found in machines]
    kept, left_out = _most_alike(newest)
    kept = sorted(_told_apart(kept), key=lambda run: (run.host_name, run.id))
    lines = [_line(subject, found) for subject, found in _by_subject(kept).items()]
    primary = [*_with_groups([line for line in lines if line.primary])]
    return Fleet(
        *(kept[0].plan, label),
        costs=tuple(kept),
        lines=(*_with_odd(primary), *_with_odd([line for line in lines if not line.primary])),
        merged=tuple(_merged(found) for found in machines if len(found) > 1),
        left_out=tuple(left_out),
    )


def _with_odd(lines: Sequence[FleetLine]) -> Iterator[FleetLine]:
    """The lines with their odd hosts; the share of false ones is limited over all hosts, whose costs are a family
    each.
    """
    families: dict[str, dict[int, float]] = {}  # run of a host -> line -> its p-value
    for line in lines:
        for host in line.hosts:
            if host.p is not None:
                families.setdefault(host.run, {})[id(line)] = host.p
    claims = stats.family_discoveries([[*family.values()] for family in families.values()], stats.ODD_RATE)
    odd = {
        (line, run)
        for (run, family), mine in zip(families.items(), claims, strict=True)
        for line, claim in zip(family, mine, strict=True)
        if claim
    }
    for line in lines:
        hosts = tuple(dataclasses.replace(host, odd=(id(line), host.run) in odd) for host in line.hosts)
        yield dataclasses.replace(line, hosts=hosts)


def _with_groups(lines: Sequence[FleetLine]) -> Iterator[FleetLine]:
    """The lines with the properties that they go with; the chance of any false one is limited over all of them."""
    adjusted = _holm({(number, one.name): one.p for number, line in enumerate(lines) for one in line.properties})
    for number, line in enumerate(lines):
        found = (dataclasses.replace(one, p=adjusted[number, one.name]) for one in line.properties)
        properties = tuple(dataclasses.replace(one, shown=one.p <= GROUP_ALPHA) for one in found)
        yield dataclasses.replace(line, properties=properties)


def _told_apart(runs: Sequence[RunCosts]) -> Iterator[RunCosts]:
    """With a name for each host that no other has: several machines may call themselves "localhost"."""
    alike = defaultdict[str, list[RunCosts]](list)
    for run in runs:
        alike[run.host_name].append(run)
    for name, same in alike.items():
        marks = [run.machine_id or run.id for run in same]
        digits = next(count for count in itertools.count(MARK) if len({mark[:count] for mark in marks}) == len(marks))
        for run, mark in zip(same, marks, strict=True):
            yield dataclasses.replace(run, host_name=f"{name} {mark[:digits]}" if len(same) > 1 else name)


def _most_alike(runs: Sequence[RunCosts]) -> tuple[list[RunCosts], list[OmittedRun]]:
    """The largest set of runs of the same work; of equally large ones that with the newest run."""
    rest = sorted(runs, key=lambda run: -run.created)
    best: tuple[list[RunCosts], list[OmittedRun]] = ([], [])
    while len(rest) > len(best[0]):
        found = alike(rest, rest[0])
        if len(found[0]) > len(best[0]):
            best = (found[0], alike(runs, rest[0])[1])
        ids = {run.id for run in found[0]}
        rest = [run for run in rest if run.id not in ids]
    return best


def _merged(runs: Sequence[RunCosts]) -> MergedHost:
    names = tuple(dict.fromkeys(run.host_name for run in runs))
    return MergedHost(runs[0].host_name, runs[0].id, tuple(run.id for run in runs[1:]), names if len(names) > 1 else ())


Hosts = list[tuple[RunCosts, CostFigure]]  # one cost


def _by_subject(runs: Sequence[RunCosts]) -> dict[CostSubject, Hosts]:
    found: dict[CostSubject, Hosts] = {}
    for run in sorted(runs, key=lambda run: -len(run.figures)):  # the one that has most gives the order
        for figure in run.figures:
            found.setdefault(figure.subject, [])
    for run in runs:
        for figure in run.figures:
            found[figure.subject].append((run, figure))
    return found


def _line(subject: CostSubject, found: Hosts) -> FleetLine:
    estimates = _estimates([figure for _, figure in found])
    mean = stats.fleet_mean(estimates) if len(estimates) >= FEWEST_OF_MEAN else None
    deviations = stats.odd_hosts(estimates)
    is_tested = len(estimates) >= stats.FEWEST_HOSTS
    is_primary = any(figure.primary for _, figure in found)
    ends = (
        (None, None, None, None, None)
        if mean is None
        else (mean.mean, mean.low, mean.high, mean.next_low, mean.next_high)
    )
    ratio, low, high, next_low, next_high = (None if log is None else math.exp(log) for log in ends)
    return FleetLine(
        *(subject.metric, subject.baseline, subject.treatment),
        primary=is_primary,
        emulated=any(figure.emulated for _, figure in found),
        ratio=ratio,
        low=low,
        high=high,
        between=None if mean is None else math.expm1(mean.between),
        next_low=next_low,
        next_high=next_high,
        hosts=tuple(
            _host(run, figure, one, is_tested=is_tested)
            for (run, figure), one in zip(found, deviations or (None,) * len(found), strict=True)
        ),
        properties=tuple(_properties([run for run, _ in found], estimates)) if is_tested and is_primary else (),
    )


def _estimates(figures: Sequence[CostFigure]) -> list[stats.HostEstimate]:
    """For the statistics. An error of 0, which only coarse figures have, becomes the smallest of the others."""
    known = [figure.error for figure in figures if figure.error > 0]
    if not known:
        return []
    return [stats.HostEstimate(one.log, one.error or min(known), one.freedom) for one in figures]


def _host(run: RunCosts, figure: CostFigure, one: stats.HostDeviation | None, *, is_tested: bool) -> HostCost:
    low, high = (None if end is None else math.exp(end) for end in (figure.low, figure.high))
    return HostCost(
        *(run.host_name, run.id, math.exp(figure.log), low, high, figure.rounds),
        deviation=1.0 if one is None else math.exp(one.deviation),
        p=one.p if one is not None and is_tested else None,
        odd=False,  # which all lines together decide
    )


def _properties(runs: Sequence[RunCosts], estimates: Sequence[stats.HostEstimate]) -> Iterator[PropertyCost]:
    """Properties that group the hosts, each way of grouping once."""
    if not estimates:
        return
    found: dict[tuple[int, ...], list[str]] = {}
    labels: dict[str, list[str]] = {}
    for name in PROPERTIES:
        labels[name] = [run.properties.get(name, "unknown") for run in runs]
        order = {value: place for place, value in enumerate(dict.fromkeys(labels[name]))}
        found.setdefault(tuple(order[value] for value in labels[name]), []).append(name)
    tested = [(names, stats.by_group(estimates, labels[names[0]])) for names in found.values()]
    made = [(names, groups) for names, groups in tested if groups is not None]
    for names, groups in made:
        # All lines together decide what is shown
        yield PropertyCost(names[0], tuple(_groups(groups.means)), groups.p, False, tuple(names[1:]))


def _groups(means: Mapping[str, stats.FleetMean]) -> list[GroupCost]:
    made = (
        GroupCost(value, one.hosts, math.exp(one.mean), math.exp(one.low), math.exp(one.high))
        for value, one in means.items()
    )
    return sorted(made, key=lambda group: group.ratio)


def _holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """The p-values, corrected for their number: Holm, Scand. J. Stat. 6 (1979)."""
    largest, adjusted = 0.0, dict[Key, float]()
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return adjusted
