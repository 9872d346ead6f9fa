"""How long single operations took on each layer: distributions, because a mean hides the tail. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Treatment, Trial
from vmtax.workload.words import title

FEWEST = 3  # with this many treatments of a layer, its best and worst are shown besides its first
JUDGED = 0.99  # share of operations by which best and worst are chosen; lower if that is not reported


@dataclass(frozen=True, slots=True)
class Curve:
    """The latencies of one treatment in one case."""

    treatment: str  # its name
    layer: str  # of the treatment
    second: bool  # on the side that is interleaved with the plan's own
    emulated: bool  # whether the treatment is
    rounds: int  # that have latencies
    points: tuple[tuple[float, float], ...]  # (share of operations, seconds as the median over rounds), rising
    role: str = ""  # "best" or "worst" of its layer's treatments; "" for the first one

    def at(self, share: float) -> float | None:
        """The most seconds that this share of operations took; None if there were too few operations."""
        return dict(self.points).get(share)


@dataclass(frozen=True, slots=True)
class Distribution:
    """One case: the first treatment of each layer on each side, and the best and worst of many."""

    workload: str  # its name
    case: str  # "" for the workload's only one
    curves: tuple[Curve, ...]  # layers from the host upward, then the best and worst of each
    others: int = 0  # number of treatments with latencies that are not shown

    @property
    def name(self) -> str:
        """The case with its workload: "Disk randread-4k-qd1"."""
        return f"{title(self.workload)} {self.case}".strip()


def distributions(analysis: Analysis) -> tuple[Distribution, ...]:
    """Every case whose trials stored latencies, in order of appearance."""
    treatments = analysis.experiment.treatments
    compared = {t.name: t for t in treatments if t.repeats is None} | dict(analysis.firsts)
    kept: dict[tuple[str, str], dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for trial in analysis.trials:
        if trial.status == "ok" and trial.latencies and trial.treatment in compared:
            kept[trial.workload, trial.case][trial.treatment].append(trial)
    found = []
    for case, trials in kept.items():
        curves = {curve.treatment: curve for curve in _curves(compared.values(), trials, analysis.emulated)}
        shown = _shown(curves, compared, analysis.firsts)
        if shown:
            found.append(Distribution(*case, shown, len(curves) - len(shown)))
    return tuple(found)


def _shown(
    curves: Mapping[str, Curve], treatments: Mapping[str, Treatment], first: Mapping[str, Treatment]
) -> tuple[Curve, ...]:
    """The first of each layer, then its best and worst if it has many; layers from the host upward."""
    layers: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for name, curve in curves.items():
        layers[treatments[name].side, curve.layer].append(curve)
    shown = {name: curves[name] for name in first if name in curves}
    for (_, layer), members in layers.items():
        shares = set.intersection(*({share for share, _ in curve.points} for curve in members))
        judged = max((share for share in shares if share <= JUDGED), default=None)
        if layer == "host" or len(members) < FEWEST or judged is None:
            continue
        ordered = sorted(members, key=lambda curve: dict(curve.points)[judged])
        for role, curve in (("best", ordered[0]), ("worst", ordered[-1])):
            shown[curve.treatment] = replace(curve, role=role)
    return tuple(shown.values())


def _curves(
    treatments: Iterable[Treatment], trials: Mapping[str, Sequence[Trial]], emulated: frozenset[str]
) -> Iterator[Curve]:
    for treatment in treatments:
        mine = trials.get(treatment.name, ())
        points = _medians(mine)
        if points:
            rounds = len({trial.round for trial in mine})
            emulates = treatment.name in emulated
            yield Curve(treatment.name, treatment.layer, bool(treatment.side), emulates, rounds, points)


def _medians(trials: Sequence[Trial]) -> tuple[tuple[float, float], ...]:
    """For each share, the median over rounds of each round's median: the boot is the unit (METHOD.md).

    Only shares that every trial reports: a share that needs more operations would come from fast rounds only.
    """
    values: dict[float, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        for share, seconds in trial.latencies:
            if 0 <= share < 1 and seconds > 0:
                values[share][trial.round].append(seconds)
    return tuple(
        (share, statistics.median(map(statistics.median, rounds.values())))
        for share, rounds in sorted(values.items())
        if sum(map(len, rounds.values())) == len(trials)
    )
