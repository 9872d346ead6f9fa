"""The answer about one run."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from vmtax.core.notices import Code
from vmtax.core.records import Better, Boot, Disturbance, Json, State
from vmtax.report.schema.comparison import Comparison, Ranking
from vmtax.report.schema.disks import Advice, Scores, Within
from vmtax.report.schema.part import Part
from vmtax.report.schema.summary import Summary


class Treatment(Part):
    """One layer and one level of each factor."""

    name: str = Field(description="the layer, then the levels that differ within the plan")
    layer: Literal["host", "vm", "nested"] = Field(description="where it ran")
    levels: dict[str, str] = Field(description="every factor's level")
    repeats: str | None = Field(description="name of the treatment that it is once more in each round: the A/A")
    side: str = Field(description="what --interleave-with names, for the treatments of that side")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class _Place(Part):
    treatment: str = Field(description="name of a treatment")
    workload: str = Field(description="name of a workload")
    case: str = Field(description="part of the workload; empty where there is only one")
    round: int = Field(description="from 1")
    position: int = Field(description="of the treatment within its round, from 1")
    iteration: int = Field(description="within the boot, from 1")
    machine: str = Field(description='path of the machine whose work it is, as "host/vm-2"; "" in older runs')
    started: float = Field(description="seconds since the epoch")
    started_iso: str = Field(description="the same as ISO 8601 writes it")
    wall_seconds: float = Field(description="of the command, in seconds, seen from outside")
    warnings: list[str] = Field(description="doubts about the number")
    disturbance: Disturbance | None = Field(description="what else happened on the host under test; null: not read")
    readings: dict[str, dict[str, float]] = Field(description="machine path to what meters counted: vmstat.pgfault …")


class Measurement(_Place):
    """One number of one trial that may be compared."""

    metric: str = Field(description="its name")
    unit: str = Field(description="base unit: 1/s, s, B/s, bit/s, B, s/B or 1")
    better: Better = Field(description="which direction is an improvement")
    value: float = Field(description="in unit")
    emulated: bool = Field(description="a boot of the treatment, or its host, ran on an emulated CPU")


class Failure(_Place):
    """A trial without a number: what it ran did not work, or must not be compared."""

    status: Literal["failed", "refused"] = Field(description="did not work; worked, but must not be compared")
    error: str | None = Field(description="why, one line")


class Schedule(Part):
    """What the pilot planned for one case of a workload, the same in all boots."""

    workload: str = Field(description="name of a workload")
    case: str = Field(description="part of the workload; empty where there is only one")
    metric: str = Field(description="that it was planned by")
    warm_up: int = Field(description="leading iterations of every boot that no comparison counts")
    iterations: int = Field(description="that count, in each boot after the pilot")
    steady: bool = Field(description="false: values never settled; then the first iterations of each boot are compared")
    reason: str = Field(description="how the warm-up was found, or why not")


class Variance(Part):
    """Where the variance of a metric's logarithm is; warm-up left out."""

    metric: str = Field(description="a primary one")
    treatment: str = Field(description="name of a treatment")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")
    share_between: float = Field(description="the part of the variance that is between boots, 0 to 1")
    between: float = Field(description="variance between boots")
    within: float = Field(description="variance of iterations within a boot")
    boots: int = Field(description="how many it is from")
    iterations: int = Field(description="in all of them together")


class FactorEffect(Part):
    """One level of a factor against its first, or what two levels do together beyond each alone."""

    metric: str = Field(description="its name, one of the plan's primary")
    layer: str = Field(description="host, vm or nested")
    side: str = Field(description="as of its treatments")
    factors: list[str] = Field(description="one, or two that interact")
    levels: list[str] = Field(description="one for each factor")
    overhead: float = Field(description="estimate, a fraction, above 0 is a cost")
    low: float = Field(description="lower end of the interval of this level alone")
    high: float = Field(description="upper end of the interval of this level alone")
    share: float = Field(description="of the variance within rounds that the factors explain so, 0 to 1")
    shown: bool = Field(description="all levels at once do something; one error rate over a metric's factors and pairs")
    emulated: bool = Field(description="any treatment of the layer is")


class Decision(Part):
    """The answer to the plan's question about one primary contrast."""

    metric: str = Field(description="its name")
    baseline: str = Field(description="name of the treatment that it is compared with")
    treatment: str = Field(description="name of the treatment")
    worse: Literal["yes", "no", "undecided"] = Field(description="by more than the plan's decide.worse_than")
    emulated: bool = Field(description="either side is")


class Notice(Part):
    """One cause of warnings; warnings.md has all codes."""

    code: Code = Field(description="identifier of the cause")
    cause: str = Field(description="what it was, one sentence")
    effect: str = Field(description="what it does to the figures that it is about, one sentence")
    cure: str = Field(description="what to do about it, one sentence")
    about: str = Field(description="the figures that it is about, for people")
    treatments: list[str] = Field(description="names of those that it is about; empty: all")
    metrics: list[str] = Field(description="names of those that it is about; empty: all")
    rounds: list[int] = Field(description="those that it is about; empty: all, or it is about no rounds")


class Experiment(Part):
    """One run of a plan."""

    id: str = Field(description="unique; sorts by time")
    name: str = Field(description="the plan's")
    host: str = Field(description="where it was measured, as given: local, ssh://[user@]host or lab[:NAME]")
    command: str = Field(description="what repeats it")
    created: float = Field(description="seconds since the epoch")
    created_iso: str = Field(description="the same in UTC as ISO 8601 writes it: 2026-11-22T09:37:00Z")
    finished: float | None = Field(description="seconds since the epoch; null: not finished")
    finished_iso: str | None = Field(description="the same as ISO 8601 writes it")
    state: State = Field(description="how far it is")
    ended: str | None = Field(description="why there were no more rounds; null: not known, or not ended by itself")
    label: str = Field(description="what its user calls it; empty where it has none")
    seconds: float | None = Field(description="that it took, set-up included and pauses not; null: not finished")
    plan: Json = Field(description="the plan with every default, as `vmtax plan show --json` gives it")
    notes: list[str] = Field(description="what was not measured, and why; what a reader must know")
    facts: dict[str, Any] = Field(description="machine path to the facts of that machine; null: not to be found out")
    treatments: list[Treatment] = Field(description="what was compared")
    boots: list[Boot] = Field(description="every start of a guest")
    measurements: list[Measurement] = Field(description="every number, trial by trial")
    failures: list[Failure] = Field(description="every trial without a number")
    comparisons: list[Comparison] = Field(description="what came out")
    schedules: list[Schedule] = Field(description="what the pilot planned; empty without `iterations: auto`")
    variance: list[Variance] = Field(description="of primary metrics; empty where boots have one iteration")
    noise_floor: list[Comparison] = Field(description="one guest treatment against itself: the A/A, primary metrics")
    rankings: list[Ranking] = Field(description="of every layer with three treatments or more")
    scores: Scores = Field(description="storage ranked by one figure: as the article does, and by mixes")
    within: list[Within] = Field(description="what queue depth gains, what a first write loses; of three or more disks")
    advice: Advice | None = Field(description="null: the run did not find out what its disks can do, or has no choice")
    effects: list[FactorEffect] = Field(description="of layers in which two factors or more differ")
    decisions: list[Decision] = Field(description="answers to the plan's decide; empty where it asks nothing")
    ledger: list[Any] = Field(description="who used the host's CPU; empty in this version")
    summary: Summary = Field(description="the few figures that answer what the run was made for")
    notices: list[Notice] = Field(description="every cause of warnings once, the gravest first")
