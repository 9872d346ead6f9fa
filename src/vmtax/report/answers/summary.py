"""The few figures that answer the question of a run. The context is the analysis of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtax.analysis import summary as analysed
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import VERDICT_CODES, Json, VerdictCode
from vmtax.report.answers.shape import UNIT, AnswerKey, Shape

MEDIAN = Shape(
    analysed.ShownConfiguration,
    "treatment layer side median emulated",
    {"median": AnswerKey(float, "median over rounds, in the figure's unit")},
    name="Median",
    about="The median of one configuration.",
)
COST = Shape(
    analysed.Contrast,
    "treatment layer baseline against ratio low high rounds verdict_code same emulated notice_codes=notes",
    {
        "layer": AnswerKey(
            str, "layer of the treatment: host, vm or nested", lambda cost, analysis: _layer(cost.treatment, analysis)
        ),
        "against": AnswerKey(str, "layer of the baseline", lambda cost, analysis: _layer(cost.baseline, analysis)),
        "verdict_code": AnswerKey(VerdictCode, "what the interval shows", lambda cost, _: VERDICT_CODES[cost.verdict]),
    },
    name="Cost",
)
FIGURE = Shape(
    analysed.KeyFigure,
    "metric=metric.name label unit=metric.unit better=metric.better primary noise_floor=floor medians costs",
    {
        "unit": UNIT,
        "medians": AnswerKey(
            Sequence[analysed.ShownConfiguration],
            "medians of the first configuration of each layer, from the host upward",
        ),
        "costs": AnswerKey(
            Sequence[analysed.Contrast],
            "costs of VM against host, nested VM against VM, and nested VM against host; with --interleave-with, of one"
            " side against the other",
            lambda figure, _: [contrast for contrast in figure.contrasts if contrast is not None],
        ),
    },
    about="One of the metrics that answer what the run was made for.",
    parts=[MEDIAN, COST],
)
SUMMARY = Shape(
    analysed.Summary,
    "run emulated figures durable",
    {
        "run": AnswerKey(str, "id of the run", lambda _, analysis: analysis.experiment.id),
        "emulated": AnswerKey(
            bool,
            "whether any treatment of the run ran on an emulated CPU",
            lambda _, analysis: bool(analysis.emulated),
        ),
        "durable": AnswerKey(
            Mapping[str, str],
            "name of a treatment -> yes, no, or not shown; empty: no durability trial has a result",
            lambda _, analysis: {one.treatment: one.state for one in getattr(analysis.survival, "evidence", ())},
        ),
    },
    about="What `vmtax show` prints of a run: `data.summary`, and all of `--json=summary`.",
    parts=[FIGURE],
)


def summary(analysis: Analysis) -> Json:
    """The answer of `--json=summary`."""
    found = analysed.summary(analysis)
    figures = []
    for figure in found.figures:
        places = zip(found.places, figure.medians, strict=True)
        medians = [MEDIAN.made(place, median=median) for place, median in places if median is not None]
        figures.append(FIGURE.made(figure, analysis, medians=medians))
    return SUMMARY.made(found, analysis, figures=figures)


def _layer(treatment: str, analysis: Analysis) -> str:
    return next(one.layer for one in analysis.experiment.treatments if one.name == treatment)
