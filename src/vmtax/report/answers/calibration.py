"""The answer of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vmtax.analysis import calibration
from vmtax.report.answers.part import Part


@dataclass(frozen=True)
class Target(Part):
    """A half-width, and what it takes here."""

    half_width: float  # of the 95 % interval, a fraction
    rounds: int  # until it is reached
    seconds: float  # that they take


@dataclass(frozen=True)
class Reach(Part):
    """One primary metric of a guest against itself."""

    metric: str  # its name
    cv: float | None  # coefficient of variation of one run, a fraction; null: too few rounds
    half_width: float | None  # that was reached, a fraction
    rounds: int  # in which both have a value
    targets: Sequence[Target]  # 1, 2 and 5 %
    between_sessions_sd: float | None  # of the level, in log, over calibrations; null: too few


@dataclass(frozen=True)
class Calibration(Part):
    """What precision a machine can reach, in how long."""

    run: str  # id of the experiment
    host: str  # where it was measured
    emulated: bool  # the guest, or its host, ran on an emulated CPU
    seconds_per_round: float  # of two boots and their workloads
    sessions: int  # calibrations that are alike, this one included
    metrics: Sequence[Reach]  # primary, in the plan's order

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
