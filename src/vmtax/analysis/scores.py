"""Scores of disks: the article's, its geometric variant, and those of weight profiles; with rankings. Pure.

The article (published comparison of KVM storage, 2013) multiplies the 4 KiB random figure by the factor that makes bare
metal's equal to its sequential figure, and takes the mean of both: for reads, for writes, and the mean of these. So
bare metal's own score is its sequential figure. Here the factor is calculated for every round, from bare metal in the
same round, so that drift of the machine does not affect the score.

All parts of a score are logarithms of numbers above 0, higher is better; a score is their weighted mean, arithmetic (of
the numbers themselves) or geometric. A geometric ranking does not depend on the yardstick, which is the same factor for
all.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vmtax import stats
from vmtax.analysis.comparisons import Numbers
from vmtax.analysis.criteria import Criteria
from vmtax.analysis.rankings import FEWEST, Ranking, rankings
from vmtax.analysis.weight_profiles import OWN, WeightProfile
from vmtax.core.records import Metric, Treatment
from vmtax.design.topology import groups, hosts_of, with_count
from vmtax.stats import Mean
from vmtax.stats.arrays import np

READ = ("disk.randread-4k-qd1.bytes_per_second", "disk.read-1m.bytes_per_second")  # 4 KiB random, sequential
WRITE = ("disk.randwrite-4k-qd1.bytes_per_second", "disk.write-1m.bytes_per_second")
ARTICLE = {"read": (READ,), "write": (WRITE,), "both": (READ, WRITE)}
ENOUGH = 0.5  # share of a profile's weight below which its score is not reported
DRAWS = 500  # sets of weights; shares of them are accurate to 4 percentage points

Rounds = Mapping[int, float]  # round -> number


@dataclass(frozen=True, slots=True)
class Yardstick:
    """The treatment that a part of a score is scaled by."""

    treatment: str  # name of the treatment
    host: bool  # whether it is bare metal; otherwise it is the first treatment that has the numbers
    same_round: int  # number of rounds in which it has a number of its own
    other_rounds: int  # number of rounds in which it has none, so that the median of its other rounds is used


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One metric of a score."""

    metric: str  # name of the metric
    weight: float  # above 0; only its share of the sum of all weights matters
    yardstick: Yardstick | None  # the treatment that the metric is scaled by; None: the metric is used as it is,
    # because the article's factor scales the other metric of the pair to it
    logs: Mapping[str, Rounds] = field(repr=False)  # treatment -> round -> log, higher is better


class OtherWinner(NamedTuple):
    """A treatment that wins with other weights."""

    treatment: str  # name of the treatment
    draws_won: float  # share of the random sets of weights with which it wins, 0 to 1; 0: it wins only if weights are
    # halved or doubled


@dataclass(frozen=True, slots=True)
class Stability:
    """Whether the winner also wins with other weights."""

    winner: str  # name of the treatment with the best score
    corners: int  # number of sets in which every weight is halved or doubled: all of them, or a fixed sample of 256
    corners_won: float  # share of these sets with which the winner stays first, 0 to 1
    draws: int  # number of sets that are drawn at random around the score's weights, with a fixed seed
    draws_won: float  # share of these sets with which the winner stays first, 0 to 1
    draws_near: float  # share of these sets with which it is first, or within same_within of the first, 0 to 1
    behind: float  # the most that it is behind the first, over all sets, as a fraction
    others: tuple[OtherWinner, ...]  # treatments that win with other weights, most frequent winner first


@dataclass(frozen=True, slots=True)
class Score:
    """One score of the disks of one layer: the article's, its variant with a geometric mean, or that of a mix."""

    ranking: Ranking  # the treatments ranked by score.read, score.both.geometric, score.database, ...; higher is better
    mean: Mean  # which weighted mean of the parts the score is
    parts: tuple[ScorePart, ...]  # the metrics that the score is made of
    numbers: Mapping[str, Rounds] = field(repr=False)  # treatment -> round -> score, including the yardstick's; none is
    # empty
    left_out: tuple[str, ...]  # metrics of a mix that are left out, because they were not measured on this layer
    untold: tuple[str, ...]  # percentiles of a mix that are left out, because some boot had too few operations for them
    measured: float  # share of the mix's weight that the score includes, 0 to 1
    unranked: tuple[str, ...]  # names of treatments that are not ranked, because they have all parts in fewer than half
    # of the rounds
    stability: Stability | None  # whether the winner also wins with other weights; None: the score has one part, or is
    # of reads or writes alone, or no round has all parts of all treatments

    @property
    def metric(self) -> Metric:
        return self.ranking.metric

    @property
    def kind(self) -> str:
        """What is scored: a key of ARTICLE, or the name of the weight profile."""
        return self.metric.name.split(".")[1]

    @property
    def is_article(self) -> bool:
        """Whether the article has this score, by either mean; otherwise it is a weight profile's."""
        return self.kind in ARTICLE

    @property
    def leads(self) -> bool:
        """Whether it answers alone: the article's of reads and writes together, and a weight profile's."""
        return not self.is_article or (self.kind == "both" and self.mean == "arithmetic")

    @property
    def outside(self) -> frozenset[str]:
        """Treatments with a score that are not ranked: the host."""
        return frozenset(self.numbers) - {entry.treatment for entry in self.ranking.standings}

    @property
    def values(self) -> dict[str, float]:
        """Treatment -> median over rounds, including the yardstick's."""
        return {name: statistics.median(rounds.values()) for name, rounds in self.numbers.items()}


@dataclass(frozen=True, slots=True)
class Scores:
    """The storage scores of every layer with three treatments or more. The article is a comparison of KVM storage that
    was published in 2013. Its score is the mean of a random figure, scaled so that the yardstick's equals its
    sequential figure, and of the sequential one.
    """

    found: tuple[Score, ...]  # the scores, layer by layer: first those of the article, then that of a mix if --for or
    # --weights asks for one
    missing: tuple[str, ...] = ()  # why a score, or the stability of its winner, could not be computed, for people


@dataclass(frozen=True, slots=True)
class _Field:
    """The treatments that are ranked together: of one layer and side, with the same number of machines at once."""

    layer: str
    side: str
    count: int  # machines that work at once in each
    members: tuple[str, ...]
    candidates: tuple[tuple[str, bool], ...]  # (treatment, is bare metal): possible yardsticks, best first

    @property
    def name(self) -> str:
        return with_count(self.layer, self.count) + (f" ({self.side})" if self.side else "")


@dataclass(frozen=True, slots=True)
class _Made:
    """A score before it is ranked."""

    metric: Metric
    mean: Mean
    parts: tuple[ScorePart, ...]
    left_out: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    whole: bool = True  # not a score of reads or writes only

    @property
    def weighed(self) -> bool:
        """Whether the stability of its winner is computed."""
        return self.whole and len(self.parts) > 1


class _Table:
    """Metric name -> treatment -> round -> number."""

    def __init__(self, treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria) -> None:
        self.treatments, self.criteria = treatments, criteria
        self.better: dict[str, str] = {}
        self.numbers: dict[str, dict[str, Rounds]] = defaultdict(dict)
        for (metric, treatment), rounds in numbers.items():
            if rounds:
                self.better[metric.name] = metric.better
                self.numbers[metric.name][treatment] = rounds

    def has(self, metric: str, treatments: Iterable[str]) -> bool:
        return any(treatment in self.numbers.get(metric, {}) for treatment in treatments)

    def is_whole(self, metric: str, treatments: Iterable[str]) -> bool:
        """Whether a percentile is always reported if its case has any number; slow boots have too few operations for
        it.

        Otherwise slow treatments would be ranked by their faster boots only, or be missing from the ranking.
        """
        case, _, measure = metric.rpartition(".")
        if not re.fullmatch(r"(fsync_)?p\d+_seconds", measure):
            return True  # numbers are missing because of failures
        beside = [numbers for name, numbers in self.numbers.items() if name.rpartition(".")[0] == case]
        return all(
            self.numbers[metric].get(treatment, {}).keys() >= numbers.get(treatment, {}).keys()
            for treatment in treatments
            for numbers in beside
        )


def scores(
    treatments: Sequence[Treatment], numbers: Numbers, criteria: Criteria, profile: WeightProfile | None = None
) -> Scores:
    """The article's scores, and that of `profile`, for every layer of at least three treatments with disk metrics."""
    table = _Table(treatments, numbers, criteria)
    fields = list(_fields(treatments))
    found: list[Score] = []
    missing: list[str] = []
    for one in fields:
        if any(name.startswith("disk.") and table.has(name, one.members) for name in table.numbers):
            _article(one, table, found, missing)
        if profile is not None:
            _weighted(one, table, profile, found, missing)
    if profile is not None and not fields:
        missing.append(f"nothing to rank: no layer of this run has {FEWEST} configurations or more")
    return Scores(tuple(found), tuple(dict.fromkeys(missing)))


def _fields(treatments: Sequence[Treatment]) -> Iterator[_Field]:
    grouped = groups(treatments)
    for (layer, side, count), members in grouped.items():
        if len(members) >= FEWEST:
            hosts = hosts_of(grouped, side, count)
            alike = (every for (_, at, many), every in grouped.items() if (at, many) == (side, count))
            others = [treatment for every in alike for treatment in every if treatment not in hosts]
            yardsticks = (*((host.name, True) for host in hosts), *((other.name, False) for other in others))
            yield _Field(layer, side, count, tuple(member.name for member in members), yardsticks)


def _article(one: _Field, table: _Table, found: list[Score], missing: list[str]) -> None:
    for name, pairs in ARTICLE.items():
        lacking = [metric for pair in pairs for metric in pair if not table.has(metric, one.members)]
        if lacking:
            if len(pairs) == 1:  # the score of both pairs says it already
                missing.append(f"no score.{name} of {one.name}: {' and '.join(lacking)} not measured there")
            continue
        made = tuple(part for pair in pairs for part in _pair(pair, one, table))
        if len(made) < 2 * len(pairs):
            missing.append(f"no score.{name} of {one.name}: no configuration has both figures in one round")
            continue
        means: tuple[tuple[Mean, str], ...] = (("arithmetic", ""), ("geometric", ".geometric"))
        for mean, suffix in means:
            metric = Metric(f"score.{name}{suffix}", "B/s", "higher")
            unranked = _Made(metric, mean, made, whole=len(pairs) > 1)
            score = _ranked(one, table, unranked, 1.0)
            if isinstance(score, str):
                missing.append(score)
                break
            found.append(score)
            missing += _unweighed(score, unranked, one)


def _weighted(one: _Field, table: _Table, profile: WeightProfile, found: list[Score], missing: list[str]) -> None:
    measured = [weight for weight in profile.weights if table.has(weight.metric, one.members)]
    left_out = tuple(weight.metric for weight in profile.weights if weight not in measured)
    there = [weight for weight in measured if profile.name == OWN or table.is_whole(weight.metric, one.members)]
    untold = tuple(weight.metric for weight in measured if weight not in there)
    if not there:
        missing.append(f"no score.{profile.name} of {one.name}: nothing of it was measured there")
        return
    parts = tuple(_ratio(weight.metric, weight.weight, one, table) for weight in there)
    share = sum(weight.weight for weight in there) / sum(weight.weight for weight in profile.weights)
    made = _Made(Metric(f"score.{profile.name}", "1", "higher"), "geometric", parts, left_out, untold)
    score = _ranked(one, table, made, share)
    if isinstance(score, str):
        missing.append(score)
    else:
        found.append(score)
        missing += _unweighed(score, made, one)


def _pair(pair: tuple[str, str], one: _Field, table: _Table) -> Iterator[ScorePart]:
    """The 4 KiB random metric scaled by the yardstick's factor, and the sequential one; none if there is no
    yardstick.
    """
    small, large = (table.numbers[metric] for metric in pair)
    for name, host in one.candidates:
        before, after = small.get(name, {}), large.get(name, {})
        factors = {number: math.log(after[number] / before[number]) for number in before if number in after}
        if not factors:
            continue
        rounds = set().union(*(small.get(member, {}) for member in one.members))
        usual = statistics.median(factors.values())
        scaled = {
            treatment: {number: math.log(value) + factors.get(number, usual) for number, value in numbers.items()}
            for treatment, numbers in small.items()
        }
        yield ScorePart(pair[0], 1.0, _yardstick(name, host, factors, rounds), scaled)
        yield ScorePart(pair[1], 1.0, None, {treatment: _logs(numbers) for treatment, numbers in large.items()})
        return


def _ratio(metric: str, weight: float, one: _Field, table: _Table) -> ScorePart:
    """Relative to the yardstick, above 1 is better; there is always one, because some member has the metric."""
    numbers = {treatment: _logs(rounds) for treatment, rounds in table.numbers[metric].items()}
    name, host = next(candidate for candidate in one.candidates if candidate[0] in numbers)
    own = numbers[name]
    usual = statistics.median(own.values())
    sign = 1 if table.better[metric] == "higher" else -1
    relative = {
        treatment: {number: sign * (value - own.get(number, usual)) for number, value in rounds.items()}
        for treatment, rounds in numbers.items()
    }
    rounds = set().union(*(numbers.get(member, {}) for member in one.members))
    return ScorePart(metric, weight, _yardstick(name, host, own, rounds), relative)


def _yardstick(name: str, host: bool, own: Rounds, rounds: set[int]) -> Yardstick:
    return Yardstick(name, host, len(rounds & own.keys()), len(rounds - own.keys()))


def _logs(rounds: Rounds) -> dict[int, float]:
    return {number: math.log(value) for number, value in rounds.items()}


def _ranked(one: _Field, table: _Table, made: _Made, share: float) -> Score | str:
    """The score with its ranking, or a sentence with the reason why there is none."""
    yards = {part.yardstick.treatment for part in made.parts if part.yardstick is not None}
    numbers = {name: _numbers(made, name) for name in dict.fromkeys((*one.members, *yards))}
    # With one value among ten of the others, a treatment might lead by chance, and nothing could beat it.
    fewest = max(1, max(map(len, numbers.values())) / 2)
    having = [name for name in one.members if len(numbers[name]) >= fewest]
    mine = {(made.metric, name): numbers[name] for name in having}
    ranked = rankings(table.treatments, mine, table.criteria)
    ranking = next((r for r in ranked if (r.layer, r.side, r.count) == (one.layer, one.side, one.count)), None)
    if ranking is None:
        lacking = f"needs {FEWEST} configurations that have all of it, each in a round with another"
        return f"no {made.metric.name} of {one.name}: {lacking}"
    return Score(
        ranking,
        made.mean,
        made.parts,
        {name: rounds for name, rounds in numbers.items() if rounds},
        made.left_out,
        made.untold,
        share,
        tuple(name for name in one.members if name not in having),
        _stability(made, ranking) if made.weighed else None,
    )


def _numbers(made: _Made, treatment: str) -> dict[int, float]:
    """Round -> score, for the rounds in which the treatment has every part."""
    columns = [part.logs.get(treatment, {}) for part in made.parts]
    rounds = sorted(set(columns[0]).intersection(*columns))
    if not rounds:
        return {}
    logs = np.array([[[column[number] for column in columns]] for number in rounds])
    weights = np.array([[part.weight for part in made.parts]])
    found = np.exp(stats.weighted(logs, weights / weights.sum(), made.mean)[0, :, 0])
    return dict(zip(rounds, found.tolist(), strict=True))


def _unweighed(score: Score, made: _Made, one: _Field) -> Iterator[str]:
    """A sentence if the winner's stability could not be determined."""
    if made.weighed and score.stability is None:
        about = score.metric.name.removesuffix(".geometric")
        yield f"no {about} of {one.name} by other weights: no round has all of its configurations"


def _stability(made: _Made, ranking: Ranking) -> Stability | None:
    """The winner with every weight halved or doubled, and with random weights; None if there is no common round."""
    names = [standing.treatment for standing in ranking.standings]  # the winner comes first
    rounds = set.intersection(*(set(part.logs[name]) for part in made.parts for name in names))
    if not rounds:
        return None
    logs = np.array([[[part.logs[n][number] for part in made.parts] for n in names] for number in sorted(rounds)])
    weights = np.array([part.weight for part in made.parts])
    corners = stats.weight_corners(weights)
    places = stats.weighted_places(logs, np.vstack([corners, stats.drawn_weights(weights, DRAWS)]), made.mean)
    winners = places.argmax(axis=1)  # the first one wins a tie
    behind = places.max(axis=1) - places[:, 0]
    near = -np.expm1(-behind[len(corners) :]) <= ranking.same_within
    counts = np.bincount(winners[len(corners) :], minlength=len(names)) / DRAWS
    others = {number for number in winners.tolist() if number}
    return Stability(
        names[0],
        len(corners),
        float((winners[: len(corners)] == 0).mean()),
        DRAWS,
        float(counts[0]),
        float(near.mean()),
        float(-np.expm1(-behind.max())),
        tuple(OtherWinner(names[n], float(counts[n])) for n in sorted(others, key=lambda n: (-counts[n], n))),
    )
