"""The answer about one run, with everything that is known about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from vmtax.analysis import exits as counted
from vmtax.analysis import ledger as used
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.noise import noise_floor
from vmtax.analysis.spread import Spread, spreads
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
from vmtax.report.sections.requirements import recommendations_if_known


@dataclass(frozen=True)
class Treatment(Part):
    """One layer and one level of each factor."""

    name: str  # the layer, then the levels that differ within the plan
    layer: Literal["host", "vm", "nested"]  # the layer on which it ran
    levels: Mapping[str, str]  # factor -> level, for all factors that apply to its layer
    repeats: str | None  # name of the treatment that this one repeats in each round (the A/A); null: it is not a repeat
    side: str  # value of --interleave-with, for the treatments of that side; empty for all others
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class _Number(Part):
    metric: str  # name of the metric
    unit: str  # base unit: 1/s, s, B/s, bit/s, B, s/B or 1
    better: Better  # which direction is an improvement
    value: float  # the value, in `unit`
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class _Reason(Part):
    status: Literal["failed", "refused"]  # failed: the command did not work; refused: it worked, but its result must
    # not be compared
    error: str | None  # the reason, in one line; null: no reason was recorded


@dataclass(frozen=True)
class _Place(Part):
    treatment: str  # name of the treatment
    machine: str  # path of the machine whose work was measured, such as host/vm-2; empty in older runs
    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    round: int  # number of the round, from 1
    position: int  # position of the treatment within its round, from 1
    iteration: int  # number of the iteration within the boot, from 1
    started: float  # start time, in seconds since the epoch
    started_iso: str  # the same time as ISO 8601 writes it
    wall_seconds: float  # duration of the command in seconds, measured from outside
    warnings: Sequence[str]  # doubts about the result
    disturbance: Disturbance | None  # what else happened on the host under test; null: it was not read
    readings: Mapping[str, Mapping[str, float]]  # path of a machine -> what meters counted there, such as
    # vmstat.pgfault


@dataclass(frozen=True)
class Measurement(_Place, _Number):
    """One number of one trial that may be compared."""

    @classmethod
    def made(cls, trial: records.Trial, emulated: bool) -> Iterator[Self]:
        """All measurements of a trial; none if it was not successful."""
        if trial.status != "ok":
            return
        iso = written(trial.started)
        for one in trial.measurements:
            yield cls.of(trial, **about(one.metric), value=one.value, emulated=emulated, started_iso=iso)


@dataclass(frozen=True)
class Failure(_Place, _Reason):
    """A trial without a result: its command did not work, or its result must not be compared."""


@dataclass(frozen=True)
class Schedule(Part):
    """The iterations that the pilot planned for one case of a workload; they are the same in all boots."""

    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    metric: str  # name of the metric by which it was planned
    warm_up: int  # number of iterations at the beginning of every boot that do not count
    iterations: int  # number of iterations that count, in each boot after the pilot
    steady: bool  # whether the values settled; if not, there is no warm-up, and the first iterations of each boot are
    # compared
    reason: str  # how the warm-up was determined, or why it could not be

    @classmethod
    def made(cls, case: design.Case, planned: design.Schedule) -> Self:
        return cls.of(planned, workload=case[0], case=case[1], metric=planned.metric.name)


@dataclass(frozen=True)
class Variance(Part):
    """The variance of a metric's logarithm, between boots and within boots. Warm-up is left out."""

    metric: str  # name of a primary metric
    treatment: str  # name of the treatment
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU
    share_between: float  # share of the variance that lies between boots, 0 to 1
    between: float  # variance between boots
    within: float  # variance between the iterations of a boot
    boots: int  # number of boots that were used
    iterations: int  # number of iterations in all these boots

    @classmethod
    def made(cls, spread: Spread) -> Self:
        about = {"metric": spread.metric.name, "treatment": spread.treatment, "emulated": spread.emulated}
        return cls.of(spread.components, **about)


@dataclass(frozen=True)
class FactorEffect(Part):
    """The effect of one level of a factor, compared with the factor's first level; or the interaction of two levels:
    what both together do beyond the effects of each alone.
    """

    metric: str  # name of a primary metric
    layer: str  # host, vm or nested
    side: str  # `side` of these treatments
    count: int  # machines that work at once in each of these treatments
    factors: Sequence[str]  # name of the factor, or names of the two that interact
    levels: Sequence[str]  # one level for each factor
    overhead: float  # estimate of the effect, a fraction; above 0 is a cost
    low: float  # lower end of the interval for this level alone
    high: float  # upper end of the interval for this level alone
    share: float  # share of the variance within rounds that the factor or pair explains, with all its levels, 0 to 1
    shown: bool  # whether the factor or pair is shown to have an effect, over all its levels; one error rate holds for
    # all factors and pairs of a metric
    emulated: bool  # whether any treatment of the layer ran on an emulated CPU


@dataclass(frozen=True)
class Decision(Part):
    """The answer to the plan's question about one primary contrast."""

    metric: str  # name of the metric
    baseline: str  # name of the treatment that it is compared with
    treatment: str  # name of the treatment
    worse: Literal["yes", "no", "undecided"]  # whether the treatment is worse than the baseline by more than
    # decide.worse_than of the plan
    emulated: bool  # whether either side ran on an emulated CPU

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
    """How often one guest exited to KVM in all trials of one case; all its vCPUs are counted together."""

    treatment: str  # name of the treatment
    machine: str  # path of the guest that exits; a nested treatment also has an entry for its outer VM
    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    per_operation: float | None  # exits per operation; null: they are not counted, or the workload counts no operations
    per_second: float | None  # exits per second of the trials; null: they are not counted
    reasons: Mapping[str, float]  # KVM's reason -> share of the exits, 0 to 1; empty without guest.exit_trace
    why_not: str | None  # why exits are not counted; null: they are counted
    host_cycles: float | None  # share of the CPU cycles of the guest's QEMU that are outside of guest code, 0 to 1;
    # null without guest.cycles
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU

    @classmethod
    def made(cls, found: counted.Exits, emulated: frozenset[str]) -> Self:
        name = found.treatment.name
        return cls.of(found, treatment=name, emulated=name in emulated)


@dataclass(frozen=True)
class Ledger(Part):
    """What the CPUs of one machine were used for in the trials of one case; all figures are means of these trials.
    docs/explanation/ledger.md explains the entries.
    """

    treatment: str  # name of the treatment
    machine: str  # path of the machine that has these CPUs
    workload: str  # name of the workload
    case: str  # part of the workload; empty: there is only one
    trials: int  # number of trials
    seconds: float  # time between the two readings
    busy: float  # core-seconds in which the CPUs were busy: CPUs x seconds - idle - waiting for disks
    entries: Mapping[str, float]  # name of the entry -> core-seconds; with `remainder`, which may be below 0, they add
    # up to `busy`
    error: float  # core-seconds by which all entries together can be wrong
    operations: float | None  # number of operations that were done in that time; null: the workload counts none
    per_operation: Mapping[str, float]  # name of the entry -> core-seconds per operation; empty: operations are not
    # counted
    samples: float  # number of samples, in all trials together, that split the time of vCPUs into `guest`,
    # `vcpu_kernel` and `vcpu_user`
    sampled_trials: int  # number of trials with samples; in the others, ticks split the time of vCPUs of guests on KVM
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU

    @classmethod
    def made(cls, found: used.Ledger, emulated: frozenset[str]) -> Self:
        name, operations = found.treatment.name, found.operations
        each = {entry: value / operations for entry, value in found.entries.items()} if operations else {}
        return cls.of(found, treatment=name, emulated=name in emulated, per_operation=each)


@dataclass(frozen=True)
class Experiment(Part):
    """One run of a plan."""

    id: str  # id of the run; it is unique, and ids sort by time
    name: str  # name of the plan
    host: str  # the host that was measured, as given: local, ssh://[user@]host or lab[:NAME]
    command: str  # command line that repeats the run
    created: float  # time of the start, in seconds since the epoch
    created_iso: str  # the same time in UTC as ISO 8601 writes it: 2026-11-22T09:37:00Z
    finished: float | None  # time of the end, in seconds since the epoch; null: not finished
    finished_iso: str | None  # the same time as ISO 8601 writes it; null: not finished
    state: State  # whether the run is in progress, or how it ended
    ended: str | None  # why there were no more rounds; null: unknown, or the run did not end by itself
    label: str  # label that the user gave to the run; empty: none
    seconds: float | None  # duration, including set-up but not pauses; null: the run is in progress, or its duration is
    # unknown
    plan: Json  # the plan with every default filled in, as `vmtax plan show --json` prints it
    notes: Sequence[str]  # what was not measured and why, and what else a reader must know
    facts: Mapping[str, Any]  # path of a machine -> facts about that machine; a fact that could not be read is null
    treatments: Sequence[Treatment]  # the treatments that were compared
    boots: Sequence[Boot]  # every start of a guest
    measurements: Sequence[Measurement]  # every number of every successful trial
    failures: Sequence[Failure]  # every trial without a result
    comparisons: Sequence[Comparison]  # every comparison of two treatments by one metric
    schedules: Sequence[Schedule]  # the iterations that the pilot planned; empty without `iterations: auto`
    variance: Sequence[Variance]  # variance of primary metrics between and within boots; empty: every boot has one
    # iteration
    noise_floor: Sequence[Comparison]  # comparisons of one guest treatment with itself (the A/A), by primary metrics
    rankings: Sequence[Ranking]  # rankings of every layer with three treatments or more
    scores: Scores  # rankings of storage by a single figure: that of the article, and that of a mix
    within: Sequence[Within]  # what queue depth gains and what a first write loses; of every layer with three disks or
    # more
    advice: Advice | None  # which disk to choose; null: the run did not examine what its disks can do, or has no choice
    # of disks
    card_advice: CardAdvice | None  # which network card to choose; null: the run has no choice of network cards, or no
    # figures that compare them
    durability: Durability | None  # which acknowledged data survived the end of a guest or a power cut; null: no such
    # trial has a result
    effects: Sequence[FactorEffect]  # effects of the factors, for layers in which two factors or more vary
    decisions: Sequence[Decision]  # answers to the plan's question (decide); empty: the plan has no question
    exits: Sequence[Exits]  # how often guests exited to KVM and why; empty: no guest ran a command
    ledger: Sequence[Ledger]  # what the CPUs of the machines were used for; empty in runs of earlier versions
    summary: Summary  # the few figures that answer what the run was made for
    notices: Sequence[Notice]  # every cause of warnings once, the most serious first

    @classmethod
    def made(cls, analysis: Analysis) -> Self:
        """Everything but the raw output of the tools; treatments are given by their names."""
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
