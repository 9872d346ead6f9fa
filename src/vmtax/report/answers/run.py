"""The answer about one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from vmtax.analysis import exits as counted
from vmtax.analysis import ledger as used
from vmtax.analysis.analysis import Analysis
from vmtax.core import records
from vmtax.core.records import Better, Boot, Disturbance, Json, State
from vmtax.design import iterations as design
from vmtax.design import stopping
from vmtax.recommend import CARD, DISK
from vmtax.report.answers.comparison import Comparison, Ranking, about
from vmtax.report.answers.disks import Advice, CardAdvice, Scores, Within
from vmtax.report.answers.durability import Durability
from vmtax.report.answers.notice import Notice
from vmtax.report.answers.part import Part, written
from vmtax.report.answers.summary import Summary
from vmtax.report.sections.iterations import Spread, spreads
from vmtax.report.sections.noise import noise_floor
from vmtax.report.sections.requirements import recommendations_if_known


@dataclass(frozen=True)
class Treatment(Part):
    """One layer and one level of each factor."""

    name: str  # the layer, then the levels that differ within the plan
    layer: Literal["host", "vm", "nested"]  # where it ran
    levels: Mapping[str, str]  # every factor's level
    repeats: str | None  # name of the treatment that it is once more in each round: the A/A
    side: str  # what --interleave-with names, for the treatments of that side
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU


@dataclass(frozen=True)
class _Number(Part):
    metric: str  # its name
    unit: str  # base unit: 1/s, s, B/s, bit/s, B, s/B or 1
    better: Better  # which direction is an improvement
    value: float  # in unit
    emulated: bool  # a boot of the treatment, or its host, ran on an emulated CPU


@dataclass(frozen=True)
class _Reason(Part):
    status: Literal["failed", "refused"]  # did not work; worked, but must not be compared
    error: str | None  # why, one line


@dataclass(frozen=True)
class _Place(Part):
    treatment: str  # name of a treatment
    machine: str  # path of the machine whose work it is, as "host/vm-2"; "" in older runs
    workload: str  # name of a workload
    case: str  # part of the workload; empty where there is only one
    round: int  # from 1
    position: int  # of the treatment within its round, from 1
    iteration: int  # within the boot, from 1
    started: float  # seconds since the epoch
    started_iso: str  # the same as ISO 8601 writes it
    wall_seconds: float  # of the command, in seconds, seen from outside
    warnings: Sequence[str]  # doubts about the number
    disturbance: Disturbance | None  # what else happened on the host under test; null: not read
    readings: Mapping[str, Mapping[str, float]]  # machine path to what meters counted: vmstat.pgfault …


@dataclass(frozen=True)
class Measurement(_Place, _Number):
    """One number of one trial that may be compared."""

    @classmethod
    def made(cls, trial: records.Trial, emulated: bool) -> Iterator[Self]:
        """All of a trial's."""
        if trial.status != "ok":
            return
        iso = written(trial.started)
        for one in trial.measurements:
            yield cls.of(trial, **about(one.metric), value=one.value, emulated=emulated, started_iso=iso)


@dataclass(frozen=True)
class Failure(_Place, _Reason):
    """A trial without a number: what it ran did not work, or must not be compared."""


@dataclass(frozen=True)
class Schedule(Part):
    """What the pilot planned for one case of a workload, the same in all boots."""

    workload: str  # name of a workload
    case: str  # part of the workload; empty where there is only one
    metric: str  # that it was planned by
    warm_up: int  # leading iterations of every boot that no comparison counts
    iterations: int  # that count, in each boot after the pilot
    steady: bool  # false: values never settled; then the first iterations of each boot are compared
    reason: str  # how the warm-up was found, or why not

    @classmethod
    def made(cls, case: design.Case, planned: design.Schedule) -> Self:
        return cls.of(planned, workload=case[0], case=case[1], metric=planned.metric.name)


@dataclass(frozen=True)
class Variance(Part):
    """Where the variance of a metric's logarithm is; warm-up left out."""

    metric: str  # a primary one
    treatment: str  # name of a treatment
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU
    share_between: float  # the part of the variance that is between boots, 0 to 1
    between: float  # variance between boots
    within: float  # variance of iterations within a boot
    boots: int  # how many it is from
    iterations: int  # in all of them together

    @classmethod
    def made(cls, spread: Spread) -> Self:
        about = {"metric": spread.metric.name, "treatment": spread.treatment, "emulated": spread.emulated}
        return cls.of(spread.components, **about)


@dataclass(frozen=True)
class FactorEffect(Part):
    """One level of a factor against its first, or what two levels do together beyond each alone."""

    metric: str  # its name, one of the plan's primary
    layer: str  # host, vm or nested
    side: str  # as of its treatments
    factors: Sequence[str]  # one, or two that interact
    levels: Sequence[str]  # one for each factor
    overhead: float  # estimate, a fraction, above 0 is a cost
    low: float  # lower end of the interval of this level alone
    high: float  # upper end of the interval of this level alone
    share: float  # of the variance within rounds that the factors explain so, 0 to 1
    shown: bool  # all levels at once do something; one error rate over a metric's factors and pairs
    emulated: bool  # any treatment of the layer is


@dataclass(frozen=True)
class Decision(Part):
    """The answer to the plan's question about one primary contrast."""

    metric: str  # its name
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    worse: Literal["yes", "no", "undecided"]  # by more than the plan's decide.worse_than
    emulated: bool  # either side is

    @classmethod
    def made(cls, found: stopping.Decision, emulated: frozenset[str]) -> Self:
        contrast = found.comparison
        return cls.of(
            contrast,
            metric=contrast.metric.name,
            worse=found.answer,
            emulated=not emulated.isdisjoint((contrast.baseline, contrast.treatment)),
        )


@dataclass(frozen=True)
class Exits(Part):
    """How often one guest left to KVM in all trials of one case, all its vCPUs together."""

    treatment: str  # name of a treatment
    machine: str  # path of the guest that exits: of a nested treatment its outer VM too
    workload: str  # name of a workload
    case: str  # part of the workload; empty where there is only one
    per_operation: float | None  # exits by operations; null: not counted, or the workload counts no operations
    per_second: float | None  # exits in a second of the trial; null: not counted
    reasons: Mapping[str, float]  # share of the exits, 0 to 1, by KVM's reason; empty without guest.exit_trace
    why_not: str | None  # why exits are not counted; null: they are
    host_cycles: float | None  # share of its QEMU's CPU cycles outside of guest code, 0 to 1; null without guest.cycles
    emulated: bool  # a boot of the treatment, or its host, ran on an emulated CPU

    @classmethod
    def made(cls, found: counted.Exits, emulated: frozenset[str]) -> Self:
        name = found.treatment.name
        return cls.of(found, treatment=name, emulated=name in emulated)


@dataclass(frozen=True)
class Ledger(Part):
    """Who used a machine's CPU in the trials of one case, as means of a trial: docs/explanation/ledger.md."""

    treatment: str  # name of a treatment
    machine: str  # path of the machine whose CPUs they are
    workload: str  # name of a workload
    case: str  # part of the workload; empty where there is only one
    trials: int  # how many it is the mean of
    seconds: float  # between the two readings
    busy: float  # core-seconds: CPUs x seconds - idle - waiting for disks
    entries: Mapping[str, float]  # core-seconds; with remainder, which may be below 0, they add up to busy
    error: float  # core-seconds by which the entries can be off together
    operations: float | None  # that were done meanwhile; null: the workload counts none
    per_operation: Mapping[str, float]  # entries by operations; empty where none are counted
    emulated: bool  # a boot of the treatment, or its host, ran on an emulated CPU

    @classmethod
    def made(cls, found: used.Ledger, emulated: frozenset[str]) -> Self:
        name, operations = found.treatment.name, found.operations
        each = {entry: value / operations for entry, value in found.entries.items()} if operations else {}
        return cls.of(found, treatment=name, emulated=name in emulated, per_operation=each)


@dataclass(frozen=True)
class Experiment(Part):
    """One run of a plan."""

    id: str  # unique; sorts by time
    name: str  # the plan's
    host: str  # where it was measured, as given: local, ssh://[user@]host or lab[:NAME]
    command: str  # what repeats it
    created: float  # seconds since the epoch
    created_iso: str  # the same in UTC as ISO 8601 writes it: 2026-11-22T09:37:00Z
    finished: float | None  # seconds since the epoch; null: not finished
    finished_iso: str | None  # the same as ISO 8601 writes it
    state: State  # how far it is
    ended: str | None  # why there were no more rounds; null: not known, or not ended by itself
    label: str  # what its user calls it; empty where it has none
    seconds: float | None  # that it took, set-up included and pauses not; null: not finished
    plan: Json  # the plan with every default, as `vmtax plan show --json` gives it
    notes: Sequence[str]  # what was not measured, and why; what a reader must know
    facts: Mapping[str, Any]  # machine path to the facts of that machine; null: it could not be read
    treatments: Sequence[Treatment]  # what was compared
    boots: Sequence[Boot]  # every start of a guest
    measurements: Sequence[Measurement]  # every number, trial by trial
    failures: Sequence[Failure]  # every trial without a number
    comparisons: Sequence[Comparison]  # what came out
    schedules: Sequence[Schedule]  # what the pilot planned; empty without `iterations: auto`
    variance: Sequence[Variance]  # of primary metrics; empty where boots have one iteration
    noise_floor: Sequence[Comparison]  # one guest treatment against itself: the A/A, primary metrics
    rankings: Sequence[Ranking]  # of every layer with three treatments or more
    scores: Scores  # storage ranked by one figure: as the article does, and by mixes
    within: Sequence[Within]  # what queue depth gains, what a first write loses; of three or more disks
    advice: Advice | None  # null: the run did not find out what its disks can do, or has no choice
    card_advice: CardAdvice | None  # null: the run has no choice of network cards, or no figures that compare them
    durability: Durability | None  # what survived when the power went, by trial; null: no such trial has a result
    effects: Sequence[FactorEffect]  # of layers in which two factors or more differ
    decisions: Sequence[Decision]  # answers to the plan's decide; empty where it asks nothing
    exits: Sequence[Exits]  # how often guests left to KVM, and why; empty where no guest ran a command
    ledger: Sequence[Ledger]  # who used the host's CPU; empty in runs of earlier versions
    summary: Summary  # the few figures that answer what the run was made for
    notices: Sequence[Notice]  # every cause of warnings once, the gravest first

    @classmethod
    def made(cls, analysis: Analysis) -> Self:
        """All but the tools' raw output; treatments by name."""
        run, emulated = analysis.experiment, analysis.emulated
        layers = analysis.emulated_layers
        advice = {one.kind: one for one in recommendations_if_known(analysis)}
        return cls.of(
            run,
            created_iso=written(run.created),
            finished_iso=None if run.finished is None else written(run.finished),
            seconds=run.took,
            treatments=[Treatment.of(t, emulated=t.name in emulated) for t in run.treatments],
            measurements=[one for t in run.trials for one in Measurement.made(t, t.treatment in emulated)],
            failures=[
                Failure.of(trial, started_iso=written(trial.started)) for trial in run.trials if trial.status != "ok"
            ],
            comparisons=[Comparison.made(found, emulated) for found in analysis.comparisons],
            schedules=[Schedule.made(case, planned) for case, planned in analysis.schedules.items()],
            variance=[Variance.made(spread) for spread in spreads(analysis)],
            noise_floor=[Comparison.made(floor.effect.comparison, emulated) for floor in noise_floor(analysis)],
            rankings=[Ranking.made(ranking, emulated) for ranking in analysis.rankings],
            scores=Scores.made(analysis.scores, emulated),
            within=[Within.made(gain, emulated) for gain in analysis.gains],
            advice=Advice.made(advice[DISK]) if DISK in advice else None,
            card_advice=CardAdvice.made(advice[CARD]) if CARD in advice else None,
            durability=analysis.survival and Durability.made(analysis.survival, emulated),
            effects=[
                FactorEffect.of(effect, metric=effect.metric.name, emulated=effect.layer in layers)
                for effect in analysis.factor_effects
            ],
            decisions=[Decision.made(decision, emulated) for decision in analysis.decisions],
            exits=[Exits.made(found, emulated) for found in analysis.exits],
            ledger=[Ledger.made(found, emulated) for found in analysis.ledger],
            summary=Summary.made(analysis),
            notices=[Notice.of_cause(cause, analysis) for cause in analysis.causes],
        )
