"""The few figures of a run that answer what it was made for."""

from __future__ import annotations

from pydantic import Field

from vmtax.core.notices import Code
from vmtax.core.records import Better, VerdictCode
from vmtax.report.schema.part import Part


class Median(Part):
    """What one configuration gave."""

    treatment: str = Field(description="its name")
    layer: str = Field(description="host, vm or nested")
    side: str = Field(description="as of the treatment")
    median: float = Field(description="over rounds, in the figure's unit")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class Cost(Part):
    """Time for the same work of one configuration against another: 1.031 is +3.1 %, 24 is 24 times the time."""

    treatment: str = Field(description="its name")
    layer: str = Field(description="host, vm or nested")
    baseline: str = Field(description="name of the treatment that it is compared with")
    against: str = Field(description="layer of that")
    ratio: float | None = Field(description="of times for the same work; null: no round has both")
    low: float | None = Field(description="lower end of its interval; null: too few rounds")
    high: float | None = Field(description="upper end of its interval")
    rounds: int = Field(description="rounds in which both have a value")
    verdict_code: VerdictCode = Field(description="what the interval shows")
    same: bool = Field(description="no more than what a guest costs against itself in this run")
    emulated: bool = Field(description="either is")
    notice_codes: list[Code] = Field(description="what casts doubt on it; `notices` of the run has causes and cures")


class Figure(Part):
    """One metric that matters."""

    metric: str = Field(description="its name")
    label: str = Field(description="what people call it, for people")
    unit: str = Field(description="base unit of the medians")
    better: Better = Field(description="which direction is an improvement")
    primary: bool = Field(description="the plan is about it")
    noise_floor: float | None = Field(description="what a guest's interval against itself reaches, a ratio above 1")
    medians: list[Median] = Field(description="of the first configuration of each layer, from the host upward")
    costs: list[Cost] = Field(description="VM against host, nested against VM, nested against host; or between sides")


class Summary(Part):
    """What `vmtax show` prints of a run: `data.summary`, and all of `--json=summary`."""

    run: str = Field(description="its id")
    emulated: bool = Field(description="any of its figures is")
    figures: list[Figure] = Field(description="in the order in which a reader asks")
