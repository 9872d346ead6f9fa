"""What an answer says of disks and network cards: scores, what each gives up, the advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from vmtax.analysis import gains, scores
from vmtax.analysis.scores import Yardstick
from vmtax.design.features import Feature
from vmtax.recommend import CardExport, DiskExport
from vmtax.recommend.records import Against, Option
from vmtax.report.answers.comparison import Overhead, Ranking
from vmtax.report.answers.part import Part
from vmtax.report.sections.recommendation import Recommendation


@dataclass(frozen=True)
class ScorePart(Part):
    """One metric of a score."""

    metric: str  # its name
    weight: float  # above 0; its share of the sum counts
    yardstick: Yardstick | None  # null: taken as it is, the article's factor scales to it


@dataclass(frozen=True)
class ScoreValue(Part):
    """One treatment's score."""

    treatment: str  # its name; of a host too, where it has all parts
    value: float  # median over rounds, in the score's unit
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU


@dataclass(frozen=True)
class OtherWinner(Part):
    """Who wins by other weights."""

    treatment: str  # its name
    draws_won: float  # share of the drawn sets of weights, 0 to 1; 0: only a corner


@dataclass(frozen=True)
class Stability(Part):
    """Whether the winner wins also by other weights."""

    winner: str  # name of the treatment that stands first
    corners: int  # sets with every weight halved or doubled; 256 drawn of them where they are more
    corners_won: float  # share of them in which it stays first, 0 to 1
    draws: int  # sets drawn at random around the weights, with a fixed seed
    draws_won: float  # share of them in which it stays first
    draws_near: float  # share in which it is first or within same_within of the first
    behind: float  # the most that it is behind the first, over all sets; a fraction
    others: Sequence[OtherWinner]  # who wins otherwise, most often first
    emulated: bool  # the winner is

    @classmethod
    def made(cls, found: scores.Stability, emulated: frozenset[str]) -> Self:
        others = [OtherWinner(name, share) for name, share in found.others]
        return cls.of(found, others=others, emulated=found.winner in emulated)


@dataclass(frozen=True)
class Score(Part):
    """A figure for a whole disk: the article's, its geometric sister, or a mix's; of one layer's treatments."""

    ranking: Ranking  # of score.read, score.both.geometric, score.database, ...; higher is better
    unit: str  # B/s; 1 for a mix
    mean: Literal["arithmetic", "geometric"]  # of the parts, weighted
    parts: Sequence[ScorePart]  # what it is made of
    values: Sequence[ScoreValue]  # the scores themselves
    left_out: Sequence[str]  # metrics of a mix that were not measured in this layer
    untold: Sequence[str]  # its percentiles that some boot had too few operations for: left out as well
    measured: float  # share of the mix's weight that is in the score, 0 to 1
    unranked: Sequence[str]  # treatments that have all parts in fewer than half of the rounds
    stability: Stability | None  # null: one part only, reads or writes alone, or no round has all

    @classmethod
    def made(cls, found: scores.Score, emulated: frozenset[str]) -> Self:
        values = [ScoreValue(name, value, name in emulated) for name, value in found.values.items()]
        return cls.of(
            found,
            ranking=Ranking.made(found.ranking, emulated),
            unit=found.metric.unit,
            parts=[ScorePart.of(part) for part in found.parts],
            values=values,
            stability=found.stability and Stability.made(found.stability, emulated),
        )


@dataclass(frozen=True)
class Scores(Part):
    """Storage scores, of every layer with three treatments or more."""

    found: Sequence[Score]  # layer by layer, the article's first; a mix where --for or --weights asks
    missing: Sequence[str]  # why a score could not be made, for people

    @classmethod
    def made(cls, found: scores.Scores, emulated: frozenset[str]) -> Self:
        return cls.of(found, found=[Score.made(score, emulated) for score in found.found])


@dataclass(frozen=True)
class Within(Part):
    """Two figures of the same disk in the same boot, one over the other."""

    upper: str  # metric of the figure above the line
    lower: str  # metric of the figure below it
    treatment: str  # its name
    ratio: float  # upper / lower, Hodges-Lehmann over rounds
    low: float | None  # lower end of its interval; null: too few rounds
    high: float | None  # upper end of its interval
    rounds: int  # in which the boot has both
    first: str | None  # treatment that it is held against; null: it is the first of its layer
    less: Overhead | None  # how much smaller than that one's, a fraction, in the same rounds
    emulated: bool  # either treatment is

    @classmethod
    def made(cls, gain: gains.Gain, emulated: frozenset[str]) -> Self:
        return cls.of(
            gain,
            upper=gain.pair.upper,
            lower=gain.pair.lower,
            less=gain.less and Overhead(*gain.less),
            emulated=not emulated.isdisjoint((gain.treatment, gain.first)),
        )


@dataclass(frozen=True)
class Candidate(Part):
    """A disk or network card that meets what is needed."""

    treatment: str  # its name
    features: Sequence[str]  # that it is shown, or documented, to have
    unusual: Sequence[str]  # its settings that are not the default
    best: Against  # against the first of the options
    in_pareto_set: bool  # of speed, host CPU and features
    tie: bool  # its interval against the first of the options lies within same_within
    emulated: bool  # a boot of it, or its host, ran on an emulated CPU


@dataclass(frozen=True)
class Refused(Part):
    """A choice that was not considered."""

    treatment: str  # its name
    why: str  # for people


@dataclass(frozen=True)
class GivenUp(Part):
    """One row of the table of what each choice gives up."""

    treatment: str  # its name
    features: Sequence[Feature]  # each once


@dataclass(frozen=True)
class Advised(Part):
    """What to choose, and why: of the guests of the outermost layer."""

    layer: str  # of all choices
    by: str  # what ranks them, for people
    by_cpu: bool  # that is the host's CPU time; else it is speed
    needs: Sequence[str]  # features that were needed
    accept_loss: bool  # what loses flushed data was considered
    choice: Candidate | None  # null: none meets what is needed; the notes say so
    reasons: Sequence[str]  # for the choice, for people
    runner_up: Candidate | None  # null: there is no other
    runner_up_words: str  # what it costs against the choice, and what it can do, for people
    options: Sequence[Candidate]  # all that meet what is needed, the best first
    refused: Sequence[Refused]  # those that were not considered
    notes: Sequence[str]  # doubts, for people
    same_within: float  # fraction: what does not matter
    metric: str | None  # name of what ranks them; null: a mean of several
    apply: str | None  # the command that prints the same for people
    give_ups: Sequence[GivenUp]  # of every treatment that was looked at

    @classmethod
    def made(cls, found: Recommendation) -> Self:
        def choice(option: Option | None) -> Candidate | None:
            return Candidate.of(option, emulated=option.treatment in found.emulated) if option else None

        advice = found.advice
        return cls.of(
            advice,
            metric=found.metric,
            choice=choice(advice.choice),
            runner_up=choice(advice.runner_up),
            options=[choice(option) for option in advice.options],
            refused=[Refused(*pair) for pair in advice.refused],
            apply=found.apply if advice.export else None,
            give_ups=[GivenUp(*row) for row in found.rows],
        )


@dataclass(frozen=True)
class Advice(Advised):
    """Of disks."""

    export: DiskExport | None  # the choice, ready to be applied


@dataclass(frozen=True)
class CardAdvice(Advised):
    """Of network cards."""

    export: CardExport | None  # the choice, ready to be applied
