"""The precision that a machine can reach, and the time it takes, from runs that compare a guest with itself. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.emulation import emulated_treatments
from vmtax.analysis.sessions import CALIBRATE, fits
from vmtax.analysis.sessions.calibration import CalibratedRun, stored
from vmtax.analysis.sessions.level import SessionSubject
from vmtax.core.errors import BadInput
from vmtax.core.layers import GUESTS
from vmtax.core.records import Experiment, Metric
from vmtax.plan.schema import Plan, from_data
from vmtax.stats import ALPHA, BetweenSessions, PrecisionRule, rounds_needed

TARGETS = (0.01, 0.02, 0.05)  # half-widths, as fractions


class CannotCalibrate(BadInput):
    """A plan or run without a guest that is compared with itself; the text says which have one."""


@dataclass(frozen=True, slots=True)
class PrecisionTarget:
    """A precision, and what it takes to reach it on this machine."""

    half_width: float  # half-width of the 95 % interval, as a fraction: 0.02 is 2 %
    rounds: int  # number of rounds that it takes to reach this half-width
    seconds: float  # time that these rounds take


@dataclass(frozen=True, slots=True)
class SelfComparison:
    """One primary metric of a guest that is compared with itself."""

    metric: Metric
    cv: float | None  # coefficient of variation of a single value, as a fraction, from the half-width; None: too few
    # rounds
    half_width: float | None  # half-width of the 95 % interval that was reached, as a fraction; None: too few rounds
    rounds: int  # rounds in which both boots have a value
    targets: tuple[PrecisionTarget, ...]  # what half-widths of 1, 2 and 5 % take; empty: too few rounds
    between: BetweenSessions | None  # how the level varies from one similar calibration to the next; None: too few


@dataclass(frozen=True, slots=True)
class Calibration:
    """The precision that a machine can reach, and the time that it takes."""

    experiment: Experiment  # the run of `vmtax calibrate`
    seconds_per_round: float  # time of one round: two boots and their workloads
    metrics: tuple[SelfComparison, ...]  # the primary metrics, in the plan's order
    sessions: int  # number of similar calibrations, including this one

    @property
    def emulated(self) -> bool:
        """Whether its guest, or its host, ran on an emulated CPU."""
        return bool(emulated_treatments(self.experiment))


def plan_of(plan: Plan, seconds: float) -> Plan:
    """The same work as `plan`, for one guest treatment compared with itself, for that time. Raises CannotCalibrate."""
    layer = next((layer for layer in GUESTS if layer in plan.layers), None)
    if layer is None:
        raise CannotCalibrate(f"plan {plan.name} has no guest: a plan with layer vm or nested can be calibrated for")
    kinds = {workload.name: workload for workload in plan.build_workloads() if layer in workload.layers}
    primary = [name for name in plan.primary if name.partition(".")[0] in kinds]
    if not primary:
        raise CannotCalibrate(f"plan {plan.name} has no primary metric on layer {layer}: name one under primary")
    data = plan.model_dump(mode="json")
    wanted = {name.partition(".")[0] for name in primary}
    data |= {
        "name": CALIBRATE,
        "layers": [layer],
        "factors": {},
        "exclude": [],
        "workloads": [entry for entry in data["workloads"] if entry["name"] in wanted],
        "primary": primary,
        "only_primary": True,
        "decide": None,
        "precision": None,
        "rounds": {"min": 7, "max": 1000},
        "budget": seconds,
    }
    return from_data(data, source=CALIBRATE)


def calibration(experiment: Experiment, earlier: Sequence[Experiment]) -> Calibration:
    """The results of `experiment`; `earlier`: other stored runs. Raises CannotCalibrate for a run without an A/A."""
    again = next((treatment for treatment in experiment.treatments if treatment.repeats is not None), None)
    if experiment.name != CALIBRATE or again is None or again.repeats is None or not experiment.trials:
        raise CannotCalibrate(
            f"{experiment.id} is no calibration, a guest against itself alone: vmtax calibrate makes one"
        )
    alike = [other for other in earlier if fits(other, experiment)] + [experiment]
    sessions = [CalibratedRun.of(other) for other in alike]
    seconds = _seconds_per_round(experiment)
    primary = {name: place for place, name in enumerate(experiment.plan["primary"])}
    found = []
    for comparison in Analysis(experiment).comparisons:
        if comparison.treatment != again.name or comparison.metric.name not in primary:
            continue
        cv = half_width = None
        if comparison.low is not None and comparison.high is not None:
            half_width = math.log(comparison.high / comparison.low) / 2
            cv = _cv(half_width, comparison.rounds)
        found.append(
            SelfComparison(
                metric=comparison.metric,
                cv=cv,
                half_width=None if half_width is None else math.expm1(half_width),
                rounds=comparison.rounds,
                targets=_targets(cv, seconds),
                between=stored(sessions, SessionSubject(comparison.metric, again.repeats), by_boot=False),
            )
        )
    ordered = sorted(found, key=lambda reach: primary[reach.metric.name])
    return Calibration(experiment, seconds, tuple(ordered), len(alike))


def _cv(half_width: float, rounds: int) -> float:
    """The coefficient of variation of one run for which a 95 % interval over `rounds` differences has this half-width,
    by Student's t.
    """
    from scipy.special import stdtrit

    return half_width * math.sqrt(rounds / 2) / float(stdtrit(rounds - 1, 1 - ALPHA / 2))


def _targets(cv: float | None, seconds: float) -> tuple[PrecisionTarget, ...]:
    """A run with a precision rule has at least as many rounds as its first look."""
    if cv is None:
        return ()
    fewest = PrecisionRule(1.0).first
    wanted = [max(fewest, rounds_needed(cv, math.log1p(target))) for target in TARGETS]
    return tuple(
        PrecisionTarget(target, number, number * seconds) for target, number in zip(TARGETS, wanted, strict=True)
    )


def _seconds_per_round(experiment: Experiment) -> float:
    """Median over rounds of the time from one round's first trial to the next round's; a pause affects only one of
    them.
    """
    begins: dict[int, float] = {}
    for trial in experiment.trials:
        begins[trial.round] = min(begins.get(trial.round, math.inf), trial.started)
    end = max(trial.started + trial.wall_seconds for trial in experiment.trials)
    starts = [begins[number] for number in sorted(begins)]
    return statistics.median(after - before for before, after in itertools.pairwise([*starts, end]))
