"""The two sides of a change for each host: which of its runs are compared, and their mean. Pure."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.many.choose import OmittedRun, alike, by_machine
from vmtax.analysis.many.costs import PROPERTIES, CostFigure, CostSubject, RunCosts
from vmtax.analysis.sessions.work import unlike

SIDES = ("before", "after")


@dataclass(frozen=True, slots=True)
class HostSides:
    """The runs of one host that are compared, newest first."""

    before: tuple[RunCosts, ...]
    after: tuple[RunCosts, ...]

    def replicates(self) -> tuple[list[list[RunCosts]], list[list[RunCosts]]]:
        """The runs of each side, in groups that count as one each: runs of one boot if the host was rebooted between
        the sides, for then what a reboot changes is between them, too.
        """
        boots = [{run.boot for run in side if run.boot} for side in (self.before, self.after)]
        rebooted = all(boots) and not boots[0] & boots[1]
        sides = []
        for runs in (self.before, self.after):
            groups: dict[str, list[RunCosts]] = defaultdict(list)
            for run in runs:
                groups[run.boot if rebooted and run.boot else f"run {run.id}"].append(run)
            sides.append([*groups.values()])
        return sides[0], sides[1]


def host_sides(before: Sequence[RunCosts], after: Sequence[RunCosts]) -> tuple[list[HostSides], list[OmittedRun]]:
    """The hosts with runs on both sides whose work is that of the host's newest run, and the runs that are left out."""
    ids = {run.id for run in before}
    hosts, left_out = [], []
    for runs in by_machine([*before, *after]).values():
        newest = sorted(runs, key=lambda run: -run.created)
        sides = [[run for run in newest if (run.id in ids) is first] for first in (True, False)]
        if not all(sides):
            side = int(not sides[0])
            left_out.append(OmittedRun(sides[side][0].id, sides[side][0].host_name, f"measured only {SIDES[side]}"))
            continue
        anchor = sides[1][0]
        kept, others = zip(*(alike(side, anchor) for side in sides), strict=True)
        if not kept[0]:
            why = next(unlike(sides[0][0].work, anchor.work))
            words = why.replace(" in the first,", f" {SIDES[0]},").replace(" in the second", f" {SIDES[1]}")
            left_out.append(OmittedRun(anchor.id, anchor.host_name, words))
            continue
        hosts.append(HostSides(tuple(kept[0]), tuple(kept[1])))
        left_out += [one for side in others for one in side]
    return hosts, left_out


Drifts = Mapping[CostSubject, stats.RunDrift | None]


def drifts(hosts: Sequence[HostSides]) -> Drifts:
    """How much hosts differ from run to run in each figure; None: too few were measured several times on one side."""
    groups: dict[CostSubject, list[list[stats.HostEstimate]]] = defaultdict(list)
    for host in hosts:
        for side in host.replicates():
            for subject, estimates in _estimates(side).items():
                groups[subject].append(estimates)
    return {subject: stats.run_drift(found) for subject, found in groups.items()}


def averaged(host: HostSides, known: Drifts) -> tuple[RunCosts, RunCosts]:
    """The host before and after: of each side its newest run, with the mean of all in place of its figures."""
    before, after = (_mean(side, known) for side in host.replicates())
    return before, after


def _mean(side: Sequence[Sequence[RunCosts]], known: Drifts) -> RunCosts:
    runs = sorted((run for group in side for run in group), key=lambda run: -run.created)
    estimates = {subject: stats.repeated(found, known[subject]) for subject, found in _estimates(side).items()}
    figures: dict[CostSubject, list[CostFigure]] = defaultdict(list)
    for run in runs:
        for figure in (*run.levels, *run.figures):
            figures[figure.subject].append(figure)
    made = [_figure(found, estimates[subject]) for subject, found in figures.items()]
    return dataclasses.replace(
        runs[0],
        levels=tuple(one for one in made if not one.subject.baseline),
        figures=tuple(one for one in made if one.subject.baseline),
        properties=dict(_properties(runs)),
    )


def _figure(found: Sequence[CostFigure], mean: stats.HostEstimate) -> CostFigure:
    """`found`: of each run, newest first."""
    return dataclasses.replace(
        found[0],
        log=mean.log,
        error=mean.error,
        freedom=mean.freedom,
        rounds=sum(figure.rounds for figure in found),
        low=None,
        high=None,
        emulated=any(figure.emulated for figure in found),
    )


def _properties(runs: Sequence[RunCosts]) -> Iterator[tuple[str, str]]:
    """Those that differ within a side have all their values, the newest first."""
    for name in PROPERTIES:
        if values := [run.properties[name] for run in runs if name in run.properties]:
            yield name, " | ".join(dict.fromkeys(values))


def _estimates(side: Sequence[Sequence[RunCosts]]) -> dict[CostSubject, list[stats.HostEstimate]]:
    """Of each figure one for each group that has it."""
    found: dict[CostSubject, list[stats.HostEstimate]] = defaultdict(list)
    for group in side:
        together: dict[CostSubject, list[stats.HostEstimate]] = defaultdict(list)
        for run in group:
            for one in (*run.levels, *run.figures):
                together[one.subject].append(stats.HostEstimate(one.log, one.error, one.freedom))
        for subject, estimates in together.items():
            found[subject].append(stats.repeated(estimates))
    return found
