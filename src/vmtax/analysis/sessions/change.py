"""Compare before and after: what differs between the machines, then a line for each metric of each treatment."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vmtax import stats
from vmtax.analysis.comparisons import Overhead, as_overhead
from vmtax.analysis.emulation import emulated_treatments
from vmtax.analysis.hosts import host_name
from vmtax.analysis.sessions import facts, refusal
from vmtax.analysis.sessions.calibration import CalibratedRun, fits, replicates, stored
from vmtax.analysis.sessions.facts import FactChange
from vmtax.analysis.sessions.level import SessionSubject
from vmtax.core.notices import Notice
from vmtax.core.records import Experiment, Metric
from vmtax.core.units import format_percent
from vmtax.stats import SessionMethod

Outcome = Literal["worse", "better", "same", "undecided"]
Gate = Literal["passed", "failed", "undecided"]

CURE = (
    "repeat both sides in several sessions (vmtax run; then vmtax compare A1,A2,A3 B1,B2,B3), or calibrate this"
    " machine in three sessions or more (vmtax calibrate), or measure both in the same rounds"
    " (vmtax run --interleave-with)"
)
MORE = "more sessions a side make it narrower"


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of one treatment, or of one contrast between two treatments: the sessions after compared with those
    before.
    """

    metric: Metric
    treatment: str  # name of the treatment; for a contrast, such as `vm against host`, the line is about the overhead
    # itself, in which changes of the whole machine cancel out
    primary: bool  # whether the line counts for the gate, as a primary metric of all runs does; the other lines are
    # exploratory, and some differ by chance
    ratio: float  # after / before: exp of the difference between the mean logarithms of the sessions; NaN: a side has
    # no result
    low: float | None  # lower end of the ratio's 95 % interval; None: there is no interval, and `why` gives the reason
    high: float | None  # upper end of the ratio's 95 % interval
    sessions: tuple[int, int]  # number of sessions before and after: boots of the host if it was rebooted between the
    # two sides, otherwise runs
    method: SessionMethod  # source of the variance between sessions; welch: the compared sessions; stored:
    # calibrations; other side: the side with several sessions; none: there is no interval
    verdict: Outcome  # same: the interval of the cost lies within same_within; worse, better: it does not, and excludes
    # 0; undecided: neither, or there is no interval
    gate: Gate | None  # failed: the whole interval is worse than fail_if_worse; passed: no part of it is; undecided: a
    # part of it is, or there is no interval; None: no limit was given, or the line is not primary
    emulated: bool  # whether either side ran on an emulated CPU
    why: str | None  # why the gate is undecided (the verdict if there is no gate), and what would decide it; None: it
    # is decided

    @property
    def cost(self) -> Overhead:
        """The ratio as a cost of the change; above 0 is worse after than before."""
        return as_overhead(self.metric.better, self.ratio, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Change:
    """The result of `vmtax compare`: runs after a change compared with runs before it."""

    before: tuple[str, ...]  # ids of the runs before the change
    after: tuple[str, ...]  # ids of the runs after the change
    hosts: tuple[str, str]  # the hosts that were measured before and after, as given
    host_names: tuple[str, str]  # their names for a reader
    facts: tuple[FactChange, ...]  # facts about the machines that differ between the sides
    lines: tuple[MetricChange, ...]  # the results, primary lines first
    emulated: tuple[str, ...]  # names of the treatments that ran on an emulated CPU
    same_within: float  # fraction within which two figures count as the same
    limit: float | None  # fraction by which figures may be worse after the change; None: no limit was given
    notices: tuple[Notice, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notices as sentences."""
        return tuple(notice.text for notice in self.notices)

    @property
    def gate(self) -> Gate | None:
        """Failed: a primary line failed; undecided: none failed, but one is undecided; passed: all passed; None: no
        limit was given.
        """
        gates = {line.gate for line in self.lines if line.primary}
        return next((gate for gate in ("failed", "undecided", "passed") if gate in gates), None)


def compared(
    before: Sequence[Experiment],
    after: Sequence[Experiment],
    calibrations: Sequence[Experiment] = (),
    *,
    same_within: float = 0.03,
    limit: float | None = None,
) -> Change:
    """Raises Unlike if these must not be compared, have nothing in common, or no primary metric for the limit."""
    doubts = refusal.check(before, after)
    sides = [[CalibratedRun.of(experiment) for experiment in side] for side in (before, after)]
    boots = [{session.boot for session in side} for side in sides]
    lines = _Lines(sides, calibrations, by_boot=not boots[0] & boots[1], same_within=same_within, limit=limit)
    made = tuple(sorted(lines.all(), key=lambda line: (not line.primary, line.metric.name not in lines.primary)))
    if not any(math.isfinite(line.ratio) for line in made):
        raise refusal.Unlike(f"{before[0].id} and {after[0].id} have no metric in common with a value on both sides")
    if limit is not None and not made[0].primary:
        raise refusal.Unlike("no primary metric is common to all runs: a limit is about those; set primary in the plan")
    return Change(
        before=tuple(experiment.id for experiment in before),
        after=tuple(experiment.id for experiment in after),
        hosts=(before[0].host, after[0].host),
        host_names=(host_name(before[0]), host_name(after[0])),
        facts=facts.changes(before, after),
        lines=made,
        emulated=tuple(dict.fromkeys(line.treatment for line in made if line.treatment in lines.emulated)),
        same_within=same_within,
        limit=limit,
        notices=(*doubts, *_mixed(before, after), *lines.doubts()),
    )


class _Lines:
    """Makes the lines of two sides."""

    def __init__(
        self,
        sides: Sequence[Sequence[CalibratedRun]],
        calibrations: Sequence[Experiment],
        *,
        by_boot: bool,
        same_within: float,
        limit: float | None,
    ) -> None:
        self.sides, self.by_boot, self.same_within, self.limit = sides, by_boot, same_within, limit
        every = [session.experiment for side in sides for session in side]
        ids = {experiment.id for experiment in every}
        others = [
            CalibratedRun.of(one) for one in calibrations if one.id not in ids and any(fits(one, e) for e in every)
        ]
        # Calibrations of each side's machine; the same list twice for a single machine.
        self.calibrations = [[c for c in others if fits(c.experiment, side[0].experiment)] for side in sides]
        self.primary = set.intersection(*({*experiment.plan.get("primary", ())} for experiment in every))
        self.named = [
            {t.name for session in side for t in session.experiment.treatments if t.repeats is None} for side in sides
        ]
        self.common = self.named[0] & self.named[1]
        self.emulated = {name for experiment in every for name in emulated_treatments(experiment)}
        self.borrowed: dict[str, str] = {}  # treatment -> the one whose variance between sessions it uses

    def all(self) -> Iterator[MetricChange]:
        """Everything that both sides have, and primary metrics that only one has, because these must not seem to have
        passed.
        """
        known = [{subject: None for session in side for subject in session.levels} for side in self.sides]
        for subject in known[0] | known[1]:
            if all(subject in names for names in known) or (
                self._primary(subject) and subject.treatment in self.common
            ):
                yield self._line(subject)

    def doubts(self) -> Iterator[Notice]:
        """What a reader of the lines must know."""
        for side, name in zip(self.sides, ("before", "after"), strict=True):
            boots = len({session.boot for session in side})
            if self.by_boot and boots < len(side):
                yield Notice(
                    "boots-as-sessions",
                    f"The {len(side)} runs {name} are of {boots} boot{'' if boots == 1 else 's'} of the host and count"
                    f" as {boots} session{'' if boots == 1 else 's'}, because the host was rebooted between the sides",
                )
        alone = sorted((self.named[0] | self.named[1]) - self.common)
        if alone:
            cause = f"{', '.join(alone)} {'was' if len(alone) == 1 else 'were'} measured on one side only"
            yield Notice("one-side", cause, treatments=tuple(alone))
        known = self.calibrations[0]
        boots = len({calibration.boot for calibration in known})
        if self.by_boot and 0 < boots < min(len(known), stats.FEWEST_SESSIONS):
            yield Notice(
                "boots-of-calibrations",
                f"The {len(known)} calibrations are of {boots} boot{'' if boots == 1 else 's'} of the host and do not"
                " show what a reboot changes, which lies between the sides",
            )
        if self.borrowed:
            given = ", ".join(self.borrowed)
            (lender, *_) = self.borrowed.values()
            cause = f"For {given} the variance between sessions is that of {lender}, the only one that was calibrated"
            yield Notice("borrowed-variance", cause, treatments=tuple(self.borrowed))

    def _line(self, subject: SessionSubject) -> MetricChange:
        sides = [replicates(side, subject, by_boot=self.by_boot) for side in self.sides]
        result = self._result(subject, sides) if all(sides) else _missing(*map(len, sides))
        primary = self._primary(subject)
        interval = as_overhead(subject.metric.better, result.ratio, result.low, result.high)[1:]
        verdict = outcome(*interval, self.same_within)
        gate = _gate(*interval, self.limit) if primary and self.limit is not None else None
        return MetricChange(
            metric=subject.metric,
            treatment=subject.name,
            primary=primary,
            ratio=result.ratio,
            low=result.low,
            high=result.high,
            sessions=result.sessions,
            method=result.method,
            verdict=verdict,
            gate=gate,
            emulated=bool({subject.treatment, subject.baseline} & self.emulated),
            why=self._why(result, verdict, gate),
        )

    def _primary(self, subject: SessionSubject) -> bool:
        return subject.baseline is None and subject.metric.name in self.primary

    def _result(self, subject: SessionSubject, sides: Sequence[Sequence[stats.SessionLevel]]) -> stats.SessionResult:
        known = self._stored(subject) if min(map(len, sides)) == 1 else None
        result = stats.compare_sessions(sides[0], sides[1], known)
        if result.why_undecided is None:
            return result
        return replace(result, why_undecided=f"{result.why_undecided}: {CURE}")

    def _stored(self, subject: SessionSubject) -> stats.BetweenSessions | None:
        """For two machines, the variance of the one with fewer calibrations; None unless both are calibrated.

        A treatment without calibration gets the variance of another one, with a notice: most of the change from session
        to session affects the whole machine. A contrast does not: in it, that part cancels out.
        """
        found = [stored(calibrations, subject, by_boot=self.by_boot) for calibrations in self.calibrations]
        if subject.baseline is None and not all(found):
            others = dict.fromkeys(other for c in self.calibrations[0] for other in c.levels)
            for other in others:
                if other.metric == subject.metric and other.baseline is None:
                    found = [stored(calibrations, other, by_boot=self.by_boot) for calibrations in self.calibrations]
                    if all(found):
                        self.borrowed[subject.treatment] = other.treatment
                        break
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            return None
        return stats.BetweenSessions(
            max(one.sd for one in known), min(one.df for one in known), min(one.sessions for one in known)
        )

    def _why(self, result: stats.SessionResult, verdict: Outcome, gate: Gate | None) -> str | None:
        if result.why_undecided:
            return result.why_undecided
        if gate == "undecided" and self.limit is not None:
            return f"the interval reaches from below to above {format_percent(self.limit)}: {MORE}"
        if gate is None and verdict == "undecided":
            return f"the interval includes 0 and reaches beyond {format_percent(self.same_within)}: {MORE}"
        return None


def _missing(before: int, after: int) -> stats.SessionResult:
    side = "after" if before else "before"
    why = f"no session {side} has two rounds with a result: vmtax show says what failed"
    return stats.SessionResult(math.nan, None, None, (before, after), "none", why)


def outcome(low: float | None, high: float | None, same_within: float) -> Outcome:
    """What an interval says, whose ends are fractions: above 0 is worse. None: there is no interval."""
    if low is None or high is None:
        return "undecided"
    if -same_within <= low and high <= same_within:
        return "same"
    return "worse" if low > 0 else "better" if high < 0 else "undecided"


def _gate(low: float | None, high: float | None, limit: float) -> Gate:
    if low is None or high is None or low <= limit < high:
        return "undecided"
    return "failed" if low > limit else "passed"


def _mixed(before: Sequence[Experiment], after: Sequence[Experiment]) -> Iterator[Notice]:
    for name, side in (("before", before), ("after", after)):
        names = facts.mixed(side)
        if names:
            yield Notice("mixed-runs", f"The runs {name} differ from each other in {', '.join(names)}")
