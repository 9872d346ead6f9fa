"""The costs of one host from run to run: where they changed, and how far they can have changed since. Pure."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.many.choose import OmittedRun, alike
from vmtax.analysis.many.costs import CostFigure, CostSubject, RunCosts, changed_properties
from vmtax.core.records import Metric

CHANGE_RATE = 0.05  # false discovery rate of changes, over all lines of a history
DAY = 86400.0  # seconds
TREND_DAYS = 30.0


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One run of a line."""

    run: str  # id of the run
    label: str  # label of the run; "": none
    created: float  # time of its start, in seconds since the epoch
    ratio: float  # ratio of the times for the same work
    low: float | None  # lower end of its interval; None: too few rounds
    high: float | None  # upper end of its interval
    rounds: int  # rounds in which both have a value
    odd: bool  # whether it differs from the other runs since the last change by more than these do among themselves


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """A place where a line changes."""

    run: str  # id of the first run after it
    since: float  # time of that run, in seconds since the epoch
    before: float  # time of the last run before it
    ratio: float  # times after it / times before it, between the neighbouring changes
    p: float  # p-value, corrected for all places of the line where it can be
    software: tuple[str, ...]  # what else differs between the two runs: "kernel A → B"


@dataclass(frozen=True, slots=True)
class HistoryLine:
    """One cost from run to run."""

    metric: Metric
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    primary: bool  # whether the metric is primary in the newest run
    emulated: bool  # whether any of its figures is emulated
    points: tuple[HistoryPoint, ...]  # oldest first
    changes: tuple[HistoryChange, ...]  # oldest first
    since: float  # time of the first run after the last change, or of the first run
    runs_since: int  # number of runs since then
    most: float | None  # how far the times can have changed since then, as a fraction; None: too few runs
    trend: float | None  # change of the times since then in 30 days, as a fraction; None: too few runs
    trend_low: float | None  # lower end of its interval
    trend_high: float | None  # upper end of its interval
    drifts: bool  # whether there is a trend, with a confidence that is corrected for the number of lines


@dataclass(frozen=True, slots=True)
class HostHistory:
    """The costs of one plan on one host over time."""

    plan: str  # name of the plan
    label: str  # that the runs were chosen by; "": by the plan
    host: str  # name of the host for a reader
    costs: tuple[RunCosts, ...]  # of each run, oldest first
    lines: tuple[HistoryLine, ...]  # primary metrics first
    since: float | None  # time of the first run after the newest change of a primary line; None: there is no run
    most: float | None  # how far any primary line can have changed since then, as a fraction; None: too few runs
    left_out: tuple[OmittedRun, ...]  # runs of this host whose work differs from that of the newest

    @property
    def runs(self) -> tuple[str, ...]:
        """Ids of the runs, oldest first."""
        return tuple(run.id for run in self.costs)

    @property
    def created(self) -> tuple[float, ...]:
        """Times of their starts, in seconds since the epoch."""
        return tuple(run.created for run in self.costs)

    @property
    def primary(self) -> tuple[HistoryLine, ...]:
        """The lines that its first sentence is about: all if none is primary."""
        return tuple(line for line in self.lines if line.primary) or self.lines


Line = list[tuple[RunCosts, CostFigure]]  # one cost, oldest run first


def history(runs: Sequence[RunCosts], label: str = "") -> HostHistory:
    """The history of runs of one machine, one at least; those whose work is not that of the newest are left out."""
    ordered = sorted(runs, key=lambda run: run.created)
    kept, left_out = alike(ordered, ordered[-1])
    by_subject = _lines_of(kept)
    limit = _limit([*by_subject.values()])
    odd = _odd(by_subject, limit)
    made = [_line(subject, found, limit, odd, stats.ALPHA / len(by_subject)) for subject, found in by_subject.items()]
    lines = sorted(made, key=lambda line: not line.primary)
    since, most = _bound(lines, by_subject)
    return HostHistory(
        *(kept[-1].plan, label, kept[-1].host_name),
        costs=tuple(kept),
        lines=tuple(lines),
        since=since,
        most=most,
        left_out=tuple(left_out),
    )


def _bound(lines: Sequence[HistoryLine], by_subject: Mapping[CostSubject, Line]) -> tuple[float | None, float | None]:
    """(since when no line of the first sentence changes, how far any of them can have changed since): all at once."""
    about = [line for line in lines if line.primary] or list(lines)
    if not about:
        return None, None
    since = max(line.since for line in about)
    bounds = []
    for line in about:
        found = by_subject[CostSubject(line.metric, line.baseline, line.treatment)]
        logs = [figure.log for run, figure in found if run.created >= since]
        bounds.append(stats.most_change(logs, stats.ALPHA / len(about)))
    known = [bound for bound in bounds if bound is not None]
    return since, math.expm1(max(known)) if len(known) == len(bounds) else None


def _lines_of(runs: Sequence[RunCosts]) -> dict[CostSubject, Line]:
    """What the newest run has, in its order, then what only earlier ones have."""
    found: dict[CostSubject, Line] = {figure.subject: [] for figure in runs[-1].figures}
    for run in runs:
        for figure in run.figures:
            found.setdefault(figure.subject, []).append((run, figure))
    return found


def _limit(lines: Sequence[Line]) -> float:
    """The p-value up to which a change is claimed; 0: none is."""
    largest = [stats.largest_step([figure.log for _, figure in line]) for line in lines]
    p_values = [step.p for step in largest if step is not None]
    claims = stats.discoveries(p_values, CHANGE_RATE)
    return max((p for p, claim in zip(p_values, claims, strict=True) if claim), default=0.0)


def _odd(lines: Mapping[CostSubject, Line], limit: float) -> frozenset[tuple[CostSubject, str]]:
    """(Cost, id of a run) of each odd one; the share of false ones is limited over all lines together."""
    found: dict[tuple[CostSubject, str], float] = {}
    for subject, line in lines.items():
        part = line[_last_part(line, limit) :]
        if len(part) >= stats.FEWEST_HOSTS and all(figure.error > 0 for _, figure in part):
            estimates = [stats.HostEstimate(figure.log, figure.error, figure.freedom) for _, figure in part]
            for (run, _), one in zip(part, stats.odd_hosts(estimates), strict=True):
                found[subject, run.id] = one.p
    claims = stats.discoveries([*found.values()], stats.ODD_RATE)
    return frozenset(key for key, claim in zip(found, claims, strict=True) if claim)


def _last_part(found: Line, limit: float) -> int:
    """The place of the first run after the last change."""
    steps = stats.steps([figure.log for _, figure in found], limit) if limit else ()
    return steps[-1].place if steps else 0


def _line(
    subject: CostSubject, found: Line, limit: float, odd: Container[tuple[CostSubject, str]], alpha: float
) -> HistoryLine:
    """`limit`: of the p-values of changes; `alpha`: of a trend that is claimed."""
    logs = [figure.log for _, figure in found]
    steps = stats.steps(logs, limit) if limit else ()
    first = steps[-1].place if steps else 0
    most = stats.most_change(logs[first:])
    days = [run.created / DAY for run, _ in found[first:]]
    trend, claimed = (stats.trend(days, logs[first:], level) for level in (stats.ALPHA, alpha))
    slopes = (None, None, None) if trend is None else (trend.slope, trend.low, trend.high)
    per_month = [None if slope is None else math.expm1(TREND_DAYS * slope) for slope in slopes]
    return HistoryLine(
        *(subject.metric, subject.baseline, subject.treatment, found[-1][1].primary),
        emulated=any(figure.emulated for _, figure in found),
        points=tuple(_point(run, figure, is_odd=(subject, run.id) in odd) for run, figure in found),
        changes=tuple(_change(found[step.place - 1][0], found[step.place][0], step) for step in steps),
        since=found[first][0].created,
        runs_since=len(found) - first,
        most=None if most is None else math.expm1(most),
        trend=per_month[0],
        trend_low=per_month[1],
        trend_high=per_month[2],
        drifts=claimed is not None and not claimed.low <= 0 <= claimed.high,
    )


def _point(run: RunCosts, figure: CostFigure, *, is_odd: bool) -> HistoryPoint:
    low, high = (None if end is None else math.exp(end) for end in (figure.low, figure.high))
    return HistoryPoint(run.id, run.label, run.created, math.exp(figure.log), low, high, figure.rounds, is_odd)


def _change(before: RunCosts, after: RunCosts, step: stats.LevelStep) -> HistoryChange:
    return HistoryChange(
        after.id, after.created, before.created, math.exp(step.shift), step.p, tuple(changed_properties(before, after))
    )
