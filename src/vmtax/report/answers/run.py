"""The answer about one run, with everything that is known about it. The context is the analysis of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from vmtax.analysis import exits, idle, ledger, rankings, summary, tiles
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.noise import noise_floor
from vmtax.analysis.spread import Spread, spreads
from vmtax.core import records
from vmtax.core.compact import unpacked
from vmtax.core.layers import LAYERS
from vmtax.core.records import Better, Json
from vmtax.design import iterations, stopping
from vmtax.recommend import CARD, DISK, Advice
from vmtax.report.answers.comparison import COMPARISON, RANKING
from vmtax.report.answers.disks import ADVICE, CARD_ADVICE, SCORES, WITHIN, advised
from vmtax.report.answers.durability import DURABILITY
from vmtax.report.answers.envelope import pieces
from vmtax.report.answers.notice import NoticeAnswer
from vmtax.report.answers.part import written
from vmtax.report.answers.shape import EITHER_EMULATED, EMULATED, UNIT, AnswerKey, Shape
from vmtax.report.answers.summary import SUMMARY
from vmtax.report.answers.summary import summary as summary_of
from vmtax.report.sections.requirements import recommendations_if_known

TREATMENT = Shape(
    records.Treatment,
    "name layer levels repeats side emulated",
    {
        "layer": AnswerKey(Literal[tuple(LAYERS)], "the layer on which it ran"),
        "emulated": AnswerKey(bool, EMULATED.meaning, lambda treatment, analysis: treatment.name in analysis.emulated),
    },
)
PLACE = (
    "treatment machine workload case round position iteration started started_iso wall_seconds warnings disturbance"
    " readings"
)
STARTED = AnswerKey(str, "the same time as ISO 8601 writes it", lambda trial, _: written(trial.started))
MEASUREMENT = Shape(
    records.Trial,
    f"metric unit better value emulated {PLACE}",
    {
        "metric": AnswerKey(str, "name of the metric"),
        "unit": UNIT,
        "better": AnswerKey(Better, "which direction is an improvement"),
        "value": AnswerKey(float, "the value, in `unit`"),
        "emulated": EMULATED,
        "started_iso": STARTED,
    },
    name="Measurement",
    about="One number of one trial that may be compared.",
)
STATUS = AnswerKey(
    Literal["failed", "refused"],
    "failed: the command did not work; refused: it worked, but its result must not be compared",
)
FAILURE = Shape(
    records.Trial,
    f"status error {PLACE}",
    {"status": STATUS, "started_iso": STARTED},
    name="Failure",
    about="A trial without a result: its command did not work, or its result must not be compared.",
)
SCHEDULE = Shape(
    iterations.Schedule,
    "workload case metric=metric.name warm_up iterations steady reason",
    {
        "workload": AnswerKey(str, "name of the workload"),
        "case": AnswerKey(str, "part of the workload; empty: there is only one"),
        "metric": AnswerKey(str, "name of the metric by which it was planned"),
    },
)
VARIANCE = Shape(
    Spread,
    "metric=metric.name treatment emulated share_between=components.share_between between=components.between"
    " within=components.within boots=components.boots iterations=components.iterations",
    {"treatment": AnswerKey(str, "name of the treatment"), "emulated": EMULATED},
    name="Variance",
    about="The variance of a primary metric's logarithm, between boots and within boots. Warm-up is left out.",
)
EFFECT_EMULATED = AnswerKey(
    bool,
    "whether any treatment of the layer ran on an emulated CPU",
    lambda effect, analysis: effect.layer in analysis.emulated_layers,
)
EFFECT = Shape(
    rankings.FactorEffect,
    "metric=metric.name layer side count factors levels overhead low high share shown emulated",
    {"emulated": EFFECT_EMULATED},
)
DECISION = Shape(
    stopping.Decision,
    "metric=comparison.metric.name baseline=comparison.baseline treatment=comparison.treatment worse=answer emulated",
    {"emulated": AnswerKey(bool, EITHER_EMULATED.meaning, lambda one, analysis: analysis.is_emulated(one.comparison))},
)
NAMED_EMULATED = AnswerKey(bool, EMULATED.meaning, lambda found, analysis: found.treatment.name in analysis.emulated)
NAMED = {"treatment": AnswerKey(str, "name of the treatment"), "emulated": NAMED_EMULATED}
EXITS = Shape(
    exits.Exits,
    "treatment=treatment.name machine workload case per_operation per_second reasons why_not host_cycles emulated",
    NAMED,
)
LEDGER = Shape(
    ledger.Ledger,
    "treatment=treatment.name machine workload case trials seconds busy entries error operations per_operation samples"
    " sampled_trials emulated",
    NAMED,
)
IDLE_GUEST = Shape(
    idle.IdleGuest,
    "treatment baseline rounds seconds low high emulated",
    {
        "emulated": AnswerKey(
            bool,
            EITHER_EMULATED.meaning,
            lambda one, analysis: not analysis.emulated.isdisjoint((one.baseline, one.treatment)),
        )
    },
)
OF_ROLE = Shape(
    tiles.OfRole, "treatment=treatment.name role tiles p99_seconds=p99 of_asked=done steal alone times emulated", NAMED
)
EXPERIMENT = Shape(
    Analysis,
    "id=experiment.id name=experiment.name host=experiment.host command=experiment.command created=experiment.created"
    " created_iso finished=experiment.finished finished_iso state=experiment.state ended=experiment.ended"
    " label=experiment.label seconds=experiment.took plan=experiment.plan notes=experiment.notes facts=experiment.facts"
    " treatments=experiment.treatments boots=experiment.boots measurements failures comparisons schedules variance"
    " noise_floor rankings scores within=gains advice card_advice durability=survival effects=factor_effects decisions"
    " idle_guests tiles exits ledger summary notices",
    {
        "created_iso": AnswerKey(str, "the same time in UTC as ISO 8601 writes it: 2026-11-22T09:37:00Z"),
        "finished_iso": AnswerKey(str | None, "the same time as ISO 8601 writes it; null: not finished"),
        "measurements": AnswerKey(
            Sequence[Annotated[records.Trial, MEASUREMENT]], "every number of every successful trial"
        ),
        "failures": AnswerKey(Sequence[Annotated[records.Trial, FAILURE]], "every trial without a result"),
        "schedules": AnswerKey(
            Sequence[Annotated[iterations.Schedule, SCHEDULE]],
            "the iterations that the pilot planned; empty without `iterations: auto`",
        ),
        "variance": AnswerKey(
            Sequence[Spread],
            "variance of primary metrics between and within boots; empty: every boot has one iteration",
        ),
        "noise_floor": AnswerKey(
            Sequence[records.Comparison],
            "comparisons of one guest treatment with itself (the A/A), by primary metrics",
            lambda _, analysis: [floor.effect.comparison for floor in noise_floor(analysis)],
        ),
        "advice": AnswerKey(
            Annotated[Advice, ADVICE] | None,
            "which disk to choose; null: the run did not examine what its disks can do, or has no choice of disks",
        ),
        "card_advice": AnswerKey(
            Annotated[Advice, CARD_ADVICE] | None,
            "which network card to choose; null: the run has no choice of network cards, or no figures that compare"
            " them",
        ),
        "summary": AnswerKey(
            Annotated[summary.Summary, SUMMARY], "the few figures that answer what the run was made for"
        ),
        "notices": AnswerKey(
            Sequence[NoticeAnswer],
            "every cause of warnings once, the most serious first",
            lambda _, analysis: [NoticeAnswer.of_cause(cause, analysis) for cause in analysis.causes],
        ),
    },
    name="Experiment",
    about="One run of a plan.",
    parts=[
        TREATMENT,
        COMPARISON,
        VARIANCE,
        RANKING,
        SCORES,
        WITHIN,
        DURABILITY,
        EFFECT,
        DECISION,
        IDLE_GUEST,
        OF_ROLE,
        EXITS,
        LEDGER,
    ],
)


def experiment(analysis: Analysis) -> Json:
    """Everything but the raw output of the tools; treatments are given by their names."""
    answer = with_iterators(analysis)
    return {key: list(value) if isinstance(value, Iterator) else value for key, value in answer.items()}


def written_pieces(analysis: Analysis) -> Iterator[str]:
    """The answer as the text of a file, piece by piece."""
    yield from pieces("experiment", with_iterators(analysis))
    yield "\n"


def with_iterators(analysis: Analysis) -> Json:
    """The same, with iterators in place of its long lists: all measurements of a large run take a GB."""
    run = analysis.experiment
    advice = {one.kind: one for one in recommendations_if_known(analysis)}
    return EXPERIMENT.made(
        analysis,
        analysis,
        created_iso=written(run.created),
        finished_iso=None if run.finished is None else written(run.finished),
        measurements=(one for trial in run.trials for one in _measurements(trial, analysis)),
        failures=(FAILURE.made(unpacked(trial)) for trial in run.trials if trial.status != "ok"),
        schedules=[
            SCHEDULE.made(planned, workload=workload, case=case)
            for (workload, case), planned in analysis.schedules.items()
        ],
        variance=[VARIANCE.made(spread, analysis) for spread in spreads(analysis)],
        advice=advised(ADVICE, advice.get(DISK), analysis),
        card_advice=advised(CARD_ADVICE, advice.get(CARD), analysis),
        summary=summary_of(analysis),
    )


def _measurements(trial: records.Trial, analysis: Analysis) -> Iterator[Json]:
    """All measurements of a trial; none if it was not successful."""
    if trial.status != "ok" or not trial.measurements:
        return
    place = MEASUREMENT.made(unpacked(trial), analysis, metric=None, unit=None, better=None, value=None)
    for one in trial.measurements:
        metric = one.metric
        yield {**place, "metric": metric.name, "unit": metric.unit, "better": metric.better, "value": one.value}
