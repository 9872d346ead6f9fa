"""The parts of an answer about disks and network cards: scores, what each choice gives up, and the advice.

The context is the analysis of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmtax.analysis import gains, scores
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.durability import FEATURE, Basis
from vmtax.core.records import Json
from vmtax.design.features import Feature
from vmtax.recommend import Advice, CardExport, DiskExport, Option
from vmtax.recommend.records import Refused
from vmtax.report.answers.comparison import OVERHEAD, RANKING
from vmtax.report.answers.part import AnswerRecord
from vmtax.report.answers.shape import EMULATED, AnswerKey, Shape
from vmtax.report.sections.recommendation import Recommendation


@dataclass(frozen=True)
class ScoreValue(AnswerRecord):
    """The score of one treatment."""

    treatment: str  # name of the treatment; a host that has all parts is included
    value: float  # median over rounds, in the score's unit
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class GivenUp(AnswerRecord):
    """One row of the table of what each choice gives up."""

    treatment: str  # name of the treatment
    features: Sequence[Feature]  # its features, each once
    durable_by: Basis | None  # what is known of a disk's durability rests on this; null: nothing is known, or a card


STABILITY = Shape(
    scores.Stability,
    "winner corners corners_won draws draws_won draws_near behind others emulated",
    {
        "emulated": AnswerKey(
            bool,
            "whether any guest or the host of the winner ran on an emulated CPU",
            lambda found, analysis: found.winner in analysis.emulated,
        ),
    },
    parts=[Shape(scores.OtherWinner, "treatment draws_won")],
)
SCORE = Shape(
    scores.Score,
    "ranking unit=metric.unit mean parts values left_out untold measured unranked stability",
    {
        "unit": AnswerKey(str, "unit of the score: B/s, or 1 for a mix"),
        "values": AnswerKey(
            Sequence[ScoreValue],
            "the score of each treatment",
            lambda score, analysis: [
                ScoreValue(name, value, name in analysis.emulated) for name, value in score.values.items()
            ],
        ),
    },
    parts=[RANKING, STABILITY, Shape(scores.ScorePart, "metric weight yardstick", name="ScorePart")],
)
SCORES = Shape(scores.Scores, "found missing", parts=[SCORE])
WITHIN = Shape(
    gains.Gain,
    "upper=pair.upper lower=pair.lower treatment ratio low high rounds first less emulated",
    {
        "emulated": AnswerKey(
            bool,
            "whether this treatment or `first` ran on an emulated CPU",
            lambda gain, analysis: not analysis.emulated.isdisjoint((gain.treatment, gain.first)),
        ),
    },
    name="Within",
    parts=[OVERHEAD],
)
CANDIDATE = Shape(
    Option, "treatment features unusual best in_pareto_set tie emulated", {"emulated": EMULATED}, name="Candidate"
)
REFUSED = Shape(Refused, "treatment why")


def _advice(name: str, what: str, export: Any) -> Shape:
    own = {
        "metric": AnswerKey(
            str | None, "name of the metric that ranks the choices; null: a mean of several metrics does"
        ),
        "apply": AnswerKey(str | None, "command that prints `export` for people; null: there is no choice"),
        "give_ups": AnswerKey(Sequence[GivenUp], "the features of every treatment that was examined"),
        "export": AnswerKey(export | None, "the choice, ready to be applied; null: there is no choice"),
    }
    keys = (
        "layer by by_cpu needs accept_loss choice reasons runner_up runner_up_words options refused notes same_within"
        " metric apply give_ups export"
    )
    about = f"Which {what} to choose for the guests of the outermost layer, and why."
    return Shape(Advice, keys, own, name=name, about=about, parts=[CANDIDATE, REFUSED])


ADVICE = _advice("Advice", "disk", DiskExport)
CARD_ADVICE = _advice("CardAdvice", "network card", CardExport)


def advised(shape: Shape, found: Recommendation | None, analysis: Analysis) -> Json | None:
    """What to choose; None if there is no such choice."""
    if found is None:
        return None
    apply = found.apply if found.advice.export else None
    named = {one.name: one for one in analysis.experiment.treatments}
    rows = [GivenUp(name, has, found.kind.basis(analysis, named[name], FEATURE)) for name, has in found.rows]
    return shape.made(found.advice, analysis, metric=found.metric, apply=apply, give_ups=rows)
