"""The answer of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis import calibration
from vmtax.report.answers.part import Part


@dataclass(frozen=True)
class Target(Part):
    """A precision, and what it takes to reach it on this machine."""

    half_width: float  # half-width of the 95 % interval, as a fraction: 0.02 is 2 %
    rounds: int  # number of rounds that it takes to reach this half-width
    seconds: float  # time that these rounds take


@dataclass(frozen=True)
class Reach(Part):
    """One primary metric of a guest that is compared with itself."""

    metric: str  # name of the metric
    cv: float | None  # coefficient of variation of a single value, as a fraction; null: too few rounds
    half_width: float | None  # half-width of the 95 % interval that was reached, as a fraction; null: too few rounds
    rounds: int  # rounds in which both boots have a value
    targets: Sequence[Target]  # what half-widths of 1, 2 and 5 % take; empty: too few rounds
    between_sessions_sd: float | None  # standard deviation of the logarithm of the metric from one calibration to the
    # next; null: there are too few calibrations


@dataclass(frozen=True)
class Calibration(Part):
    """The precision that a machine can reach, and the time that it takes."""

    run: str  # id of the run
    host: str  # the host that was measured, as given: local, ssh://[user@]host or lab[:NAME]
    emulated: bool  # whether the guest, or its host, ran on an emulated CPU
    seconds_per_round: float  # time of one round: two boots and their workloads
    sessions: int  # number of similar calibrations, including this one
    metrics: Sequence[Reach]  # the primary metrics, in the plan's order

    @classmethod
    def made(cls, found: calibration.Calibration) -> Self:
        metrics = [
            Reach.of(
                reach,
                metric=reach.metric.name,
                targets=[Target.of(target) for target in reach.targets],
                between_sessions_sd=reach.between.sd if reach.between else None,
            )
            for reach in found.metrics
        ]
        run = found.experiment
        return cls.of(found, run=run.id, host=run.host, metrics=metrics)
