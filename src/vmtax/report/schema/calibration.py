"""The answer of a calibration."""

from __future__ import annotations

from pydantic import Field

from vmtax.report.schema.part import Part


class Target(Part):
    """A half-width, and what it takes here."""

    half_width: float = Field(description="of the 95 % interval, a fraction")
    rounds: int = Field(description="until it is reached")
    seconds: float = Field(description="that they take")


class Reach(Part):
    """One primary metric of a guest against itself."""

    metric: str = Field(description="its name")
    cv: float | None = Field(description="coefficient of variation of one run, a fraction; null: too few rounds")
    half_width: float | None = Field(description="that was reached, a fraction")
    rounds: int = Field(description="in which both have a value")
    targets: list[Target] = Field(description="1, 2 and 5 %")
    between_sessions_sd: float | None = Field(description="of the level, in log, over calibrations; null: too few")


class Calibration(Part):
    """What precision a machine can reach, in how long."""

    run: str = Field(description="id of the experiment")
    host: str = Field(description="where it was measured")
    emulated: bool = Field(description="the guest, or its host, ran on an emulated CPU")
    seconds_per_round: float = Field(description="of two boots and their workloads")
    sessions: int = Field(description="calibrations that are alike, this one included")
    metrics: list[Reach] = Field(description="primary, in the plan's order")
