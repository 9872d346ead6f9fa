"""Every trial in its order of execution, relative to its treatment's median, which shows drift of the machine. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Metric, Trial
from vmtax.workload.words import case, label, title

THIRDS_ROUNDS = 6  # with fewer, the first and last thirds are just single rounds


@dataclass(frozen=True, slots=True)
class Point:
    """One trial."""

    place: float  # position in the run, in rounds: 3.5 is the middle of round 3
    round: int  # its number, from 1
    treatment: str  # its name
    layer: str  # of the treatment
    emulated: bool  # whether the treatment is
    relative: float | None  # value / the treatment's median; None: the trial failed
    value: float | None  # in the metric's unit; None: the trial failed
    error: str  # why there is no value: the trial's status and error; "" if there is one


@dataclass(frozen=True, slots=True)
class Course:
    """The metric that represents a workload, over the whole run."""

    metric: Metric  # the one that represents the workload
    points: tuple[Point, ...]  # in their order of execution
    rounds: tuple[tuple[int, float], ...]  # (round, median of its points' `relative`)
    thinned: int = 1  # only one in this many of the successful trials is in `points`

    @property
    def name(self) -> str:
        """Workload, case and label of its metric."""
        return f"{title(self.metric.workload)}: {', '.join(filter(None, (case(self.metric), label(self.metric))))}"

    @property
    def failed(self) -> int:
        return sum(point.relative is None for point in self.points)

    @property
    def relative(self) -> list[float]:
        """Of every successful trial, smallest first."""
        return sorted(point.relative for point in self.points if point.relative is not None)

    @property
    def middle(self) -> tuple[float, float]:
        """The range of the middle half of the values, as shares of their treatments' medians."""
        low, _, high = statistics.quantiles(self.relative, n=4, method="inclusive")
        return low, high

    @property
    def farthest(self) -> float:
        """The value farthest from its treatment's median in either direction, as a share of it."""
        return max(self.relative, key=lambda relative: abs(math.log(relative)))

    @property
    def shift(self) -> float | None:
        """Median of the last third of the rounds / median of the first third; None if there are too few rounds."""
        values = [relative for _, relative in self.rounds]
        third = len(values) // 3
        if len(values) < THIRDS_ROUNDS:
            return None
        return statistics.median(values[-third:]) / statistics.median(values[:third])


def courses(analysis: Analysis, metrics: Sequence[Metric]) -> tuple[Course, ...]:
    """One course for each of `metrics` that some treatment has in more than one round."""
    trials = sorted(analysis.experiment.trials, key=lambda trial: trial.started)
    values: dict[Metric, list[tuple[Trial, float | None]]] = {metric: [] for metric in metrics}
    for trial in trials:
        for measurement in trial.measurements if trial.status == "ok" else ():
            if measurement.metric in values:
                values[measurement.metric].append((trial, measurement.value))
    points_of = _Points(analysis)
    every = (
        _course(metric, values[metric], list(_failures(metric, values[metric], trials)), points_of)
        for metric in metrics
    )
    return tuple(course for course in every if len(course.rounds) > 1)


def thin(course: Course, most: int) -> Course:
    """The course with about `most` of its points, evenly selected; failures are kept."""
    step = -(-(len(course.points) - course.failed) // most)
    if step <= 1:
        return course
    worked = itertools.count()
    points = tuple(point for point in course.points if point.relative is None or next(worked) % step == 0)
    return replace(course, points=points, thinned=step)


class _Points:
    """Converts trials to points."""

    def __init__(self, analysis: Analysis) -> None:
        run = analysis.experiment
        self.medians = analysis.medians
        self.layers = {treatment.name: treatment.layer for treatment in run.treatments}
        self.emulated = analysis.emulated
        self.positions = max((trial.position for trial in run.trials), default=1)

    def point(self, metric: Metric, trial: Trial, value: float | None) -> Point:
        middle = self.medians.get((metric, trial.treatment))
        return Point(
            place=trial.round + (trial.position - 0.5) / self.positions,
            round=trial.round,
            treatment=trial.treatment,
            layer=self.layers[trial.treatment],
            emulated=trial.treatment in self.emulated,
            relative=value / middle if value and middle and value / middle > 0 else None,
            value=value,
            error=f"{trial.status}: {trial.error}" if value is None else "",
        )


def _failures(
    metric: Metric, values: Sequence[tuple[Trial, float | None]], trials: Iterable[Trial]
) -> Iterator[tuple[Trial, None]]:
    """Trials that should have had a value; a lost guest has none for any workload."""
    have = {(trial.round, trial.treatment) for trial, _ in values}
    concerned = ((metric.workload, metric.case), ("boot", ""))
    for trial in trials:
        mine = trial.status != "ok" and (trial.workload, trial.case) in concerned
        if mine and (trial.round, trial.treatment) not in have:
            yield trial, None


def _course(
    metric: Metric,
    values: Sequence[tuple[Trial, float | None]],
    failures: Sequence[tuple[Trial, None]],
    points_of: _Points,
) -> Course:
    ran = sorted((*values, *failures), key=lambda pair: pair[0].started)
    points = tuple(points_of.point(metric, trial, value) for trial, value in ran)
    rounds: dict[int, list[float]] = defaultdict(list)
    for point in points:
        if point.relative is not None:
            rounds[point.round].append(point.relative)
    return Course(metric, points, tuple((number, statistics.median(found)) for number, found in sorted(rounds.items())))
