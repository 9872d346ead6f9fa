"""The parts of an answer about disks and network cards: scores, what each choice gives up, and the advice."""

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

    metric: str  # name of the metric
    weight: float  # above 0; only its share of the sum of all weights matters
    yardstick: Yardstick | None  # the treatment that the metric is scaled by; null: the metric is used as it is,
    # because the article's factor scales the other metric of the pair to it


@dataclass(frozen=True)
class ScoreValue(Part):
    """The score of one treatment."""

    treatment: str  # name of the treatment; a host that has all parts is included
    value: float  # median over rounds, in the score's unit
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class OtherWinner(Part):
    """A treatment that wins with other weights."""

    treatment: str  # name of the treatment
    draws_won: float  # share of the random sets of weights with which it wins, 0 to 1; 0: it wins only if weights are
    # halved or doubled


@dataclass(frozen=True)
class Stability(Part):
    """Whether the winner also wins with other weights."""

    winner: str  # name of the treatment with the best score
    corners: int  # number of sets in which every weight is halved or doubled: all of them, or a fixed sample of 256
    corners_won: float  # share of these sets with which the winner stays first, 0 to 1
    draws: int  # number of sets that are drawn at random around the score's weights, with a fixed seed
    draws_won: float  # share of these sets with which the winner stays first, 0 to 1
    draws_near: float  # share of these sets with which it is first, or within same_within of the first, 0 to 1
    behind: float  # the most that it is behind the first, over all sets, as a fraction
    others: Sequence[OtherWinner]  # treatments that win with other weights, most frequent winner first
    emulated: bool  # whether any guest or the host of the winner ran on an emulated CPU

    @classmethod
    def made(cls, found: scores.Stability, emulated: frozenset[str]) -> Self:
        others = [OtherWinner(name, share) for name, share in found.others]
        return cls.of(found, others=others, emulated=found.winner in emulated)


@dataclass(frozen=True)
class Score(Part):
    """One score of the disks of one layer: the article's, its variant with a geometric mean, or that of a mix."""

    ranking: Ranking  # the treatments ranked by score.read, score.both.geometric, score.database, ...; higher is better
    unit: str  # unit of the score: B/s, or 1 for a mix
    mean: Literal["arithmetic", "geometric"]  # which weighted mean of the parts the score is
    parts: Sequence[ScorePart]  # the metrics that the score is made of
    values: Sequence[ScoreValue]  # the score of each treatment
    left_out: Sequence[str]  # metrics of a mix that are left out, because they were not measured on this layer
    untold: Sequence[str]  # percentiles of a mix that are left out, because some boot had too few operations for them
    measured: float  # share of the mix's weight that the score includes, 0 to 1
    unranked: Sequence[str]  # names of treatments that are not ranked, because they have all parts in fewer than half
    # of the rounds
    stability: Stability | None  # whether the winner also wins with other weights; null: the score has one part, or is
    # of reads or writes alone, or no round has all parts of all treatments

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
    """The storage scores of every layer with three treatments or more. The article is a comparison of KVM storage that
    was published in 2013; docs/how-to/rank-storage.md describes its score.
    """

    found: Sequence[Score]  # the scores, layer by layer: first those of the article, then that of a mix if --for or
    # --weights asks for one
    missing: Sequence[str]  # why a score, or the stability of its winner, could not be computed, for people

    @classmethod
    def made(cls, found: scores.Scores, emulated: frozenset[str]) -> Self:
        return cls.of(found, found=[Score.made(score, emulated) for score in found.found])


@dataclass(frozen=True)
class Within(Part):
    """The ratio of two figures of the same disk in the same boot."""

    upper: str  # name of the metric that is divided
    lower: str  # name of the metric that it is divided by
    treatment: str  # name of the treatment
    ratio: float  # upper / lower: exp of the Hodges-Lehmann estimate of its logarithm over rounds
    low: float | None  # lower end of the ratio's interval; null: too few rounds
    high: float | None  # upper end of the ratio's interval
    rounds: int  # rounds in which the boot has both figures
    first: str | None  # name of the treatment whose ratio this one is compared with; null: this is that treatment, the
    # first of its layer
    less: Overhead | None  # how much smaller this ratio is than that of `first`, as a fraction, over the rounds that
    # both have; null: there is no such round, or `first` is null
    emulated: bool  # whether this treatment or `first` ran on an emulated CPU

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
    """A disk or network card that meets the needs."""

    treatment: str  # name of the treatment
    features: Sequence[str]  # features that it is shown, or documented, to have
    unusual: Sequence[str]  # its settings that are not the default, such as disk.cache=writeback
    best: Against  # how it compares with the first of `options`
    in_pareto_set: bool  # whether it is in the Pareto set of speed, host CPU and features
    tie: bool  # whether its interval against the first of `options` lies within same_within; true for that one itself
    emulated: bool  # whether any guest or the host of this treatment ran on an emulated CPU


@dataclass(frozen=True)
class Refused(Part):
    """A choice that was not considered."""

    treatment: str  # name of the treatment
    why: str  # why it was not considered, for people


@dataclass(frozen=True)
class GivenUp(Part):
    """One row of the table of what each choice gives up."""

    treatment: str  # name of the treatment
    features: Sequence[Feature]  # its features, each once


@dataclass(frozen=True)
class Advised(Part):
    """What to choose for the guests of the outermost layer, and why."""

    layer: str  # the layer of all choices
    by: str  # what the choices are ranked by, for people
    by_cpu: bool  # whether they are ranked by the host's CPU time; otherwise by speed
    needs: Sequence[str]  # features that a choice must have
    accept_loss: bool  # whether choices that lose flushed data were considered
    choice: Candidate | None  # the recommended choice; null: nothing can be recommended, and the notes say why
    reasons: Sequence[str]  # reasons for the choice, for people
    runner_up: Candidate | None  # the second choice; null: there is no other
    runner_up_words: str  # what the runner-up costs compared with the choice, and which features it adds or lacks, for
    # people
    options: Sequence[Candidate]  # all choices that meet the needs, the best first
    refused: Sequence[Refused]  # the choices that were not considered
    notes: Sequence[str]  # doubts, for people
    same_within: float  # differences within this fraction do not matter
    metric: str | None  # name of the metric that ranks the choices; null: a mean of several metrics does
    apply: str | None  # command that prints `export` for people; null: there is no choice
    give_ups: Sequence[GivenUp]  # the features of every treatment that was examined

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
    """Which disk to choose for the guests of the outermost layer, and why."""

    export: DiskExport | None  # the choice, ready to be applied; null: there is no choice


@dataclass(frozen=True)
class CardAdvice(Advised):
    """Which network card to choose for the guests of the outermost layer, and why."""

    export: CardExport | None  # the choice, ready to be applied; null: there is no choice
