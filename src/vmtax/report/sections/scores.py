"""The storage ranking in words, for all reports: tables, and sentences about its basis. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.scores import ENOUGH, Score, Yardstick
from vmtax.analysis.weight_profiles import PROFILES
from vmtax.core.units import format_overhead, format_percent, format_value
from vmtax.report.document import Detail, Folded, Section, listed
from vmtax.report.sections import gains
from vmtax.report.sections.rankings import tables
from vmtax.report.wording.rankings import Ranked, sides, standing, what_is_claimed, whose
from vmtax.stats import Mean

TITLE = "Storage ranking"
ABOUT = {"read": "reads", "write": "writes", "both": "reads and writes"}
SHORT = {**ABOUT, "both": "both"}
MEANS: dict[Mean, str] = {"arithmetic": "the article's score", "geometric": "the geometric mean"}
MOST_OTHERS = 3  # winners by other weights that a sentence names; the JSON has all
ARTICLE_READING = (
    "The article's score: the 4 KiB random figure times what makes the yardstick's equal to its sequential figure, then"
    " the mean of the two; for reads and writes the mean of all four."
)
GEOMETRIC_READING = "The same with the geometric mean, whose order depends on no yardstick."
MIX_READING = "The score: weighted geometric mean of the ratios to the yardstick; 1 is as good as that, more is better."


@dataclass(frozen=True, slots=True)
class Storage:
    """The section; empty if there is nothing to show."""

    tables: tuple[Ranked, ...]  # those for the terminal come first: reads and writes, and the requested mix
    more: tuple[Ranked, ...]  # reads only, writes only, the geometric means; gains from queue depth
    lines: tuple[str, ...]  # winners, stability, yardsticks, what is missing

    def __bool__(self) -> bool:
        return bool(self.tables or self.more or self.lines)


def storage(analysis: Analysis) -> Storage:
    """The scores in words."""
    pairs = [(score, _table(score, analysis)) for score in analysis.scores.found]
    first = [table for score, table in pairs if score.leads]
    return Storage(
        tuple(first),
        (*(table for score, table in pairs if not score.leads), *gains.tables(analysis)),
        (*_lines(analysis), *gains.lines(analysis)),
    )


def section(found: Storage) -> Section | None:
    """None if there is nothing to show."""
    if not found:
        return None
    more = Folded("By reads alone, by writes alone, and by the geometric mean", tuple(tables(found.more)), Detail.FULL)
    blocks = (listed(found.lines), *tables(found.tables), *((more,) if found.more else ()))
    return Section("storage", TITLE, blocks, TITLE)


def score_name(score: Score) -> str:
    """What it is a score of: "reads and writes", "a database"."""
    kind = score.kind
    what = ABOUT.get(kind) or ("the given weights" if kind not in PROFILES else f"a {kind}")
    return f"{what}, geometric mean" if kind in ABOUT and score.mean == "geometric" else what


def _table(score: Score, analysis: Analysis) -> Ranked:
    ranking, values = score.ranking, score.values
    lines = tuple(
        replace(
            standing(entry, ranking, analysis.emulated),
            value=format_value(values[entry.treatment], ranking.metric.unit),
        )
        for entry in ranking.standings
    )
    article = score.is_article
    made_of = (ARTICLE_READING if score.mean == "arithmetic" else GEOMETRIC_READING) if article else MIX_READING
    heading = f"Storage for {score_name(score)}, {whose(score.ranking, sides(analysis))}"
    return Ranked(
        ranking.metric,
        ranking.layer,
        ranking.side,
        ranking.count,
        heading,
        lines,
        f"{made_of} {what_is_claimed(ranking, 'time for the same work')}",
    )


def _lines(analysis: Analysis) -> Iterator[str]:
    where, made = sides(analysis), analysis.scores
    fields: dict[str, list[Score]] = {}
    for score in made.found:
        fields.setdefault(whose(score.ranking, where), []).append(score)
    for place, found in fields.items():
        yield from (f"{place}: {text}" for text in _of_field(found, analysis.emulated))
    yield from dict.fromkeys(text for score in made.found for text in _made_of(score))
    yield from made.missing


def _of_field(found: Sequence[Score], emulated: frozenset[str]) -> Iterator[str]:
    """Who leads by which score, how robustly, and relative to what."""
    by_mean = {mean: [s for s in found if s.is_article and s.mean == mean] for mean in MEANS}
    leaders = {mean: [score.ranking.standings[0].treatment for score in mine] for mean, mine in by_mean.items()}
    for mean, mine in by_mean.items():
        if mine and mean == "geometric" and leaders[mean] == leaders["arithmetic"]:
            yield f"by {MEANS[mean]} the same are first"
        elif mine:
            yield f"first by {MEANS[mean]}: {'; '.join(_leading(mine, emulated))}"
    for score in found:
        if not score.is_article:
            yield f"first for {score_name(score)}: {_leading([score], emulated)[0]}"
    firm: dict[str, list[str]] = {}
    for score in found:
        if score.stability is not None:
            name = score_name(score).replace("reads and writes", "both")
            firm.setdefault(_stability(score, emulated), []).append(name)
    yield from (f"{'; '.join(names)}: {text}" for text, names in firm.items())
    own = _outside(by_mean["arithmetic"], emulated)
    yield from dict.fromkeys(text for score in found for text in _yardsticks(score, own))
    for score in found:
        if score.unranked:
            yield f"{score_name(score)}: not ranked, without a score in most rounds: {', '.join(score.unranked)}"


def _leading(found: Sequence[Score], emulated: frozenset[str]) -> list[str]:
    """The first of each score: "vm (reads 1.61 GB/s; writes 605 MB/s, 1 other not distinguishable)"."""
    figures: dict[str, list[str]] = {}
    for score in found:
        best, *rest = score.ranking.standings
        value = _value(score, best.treatment, emulated)
        equals = sum(entry.top for entry in rest)
        alike = f", {equals} other{'s' if equals > 1 else ''} not distinguishable" if equals else ""
        figures.setdefault(best.treatment, []).append(f"{value}{alike}")
    return [f"{name} ({'; '.join(texts)})" for name, texts in figures.items()]


def _outside(found: Sequence[Score], emulated: frozenset[str]) -> dict[str, str]:
    """The scores of what is not ranked, the host: " (reads 3.00 GB/s, writes 1.72 GB/s)" by name."""
    figures: dict[str, list[str]] = {}
    for score in found:
        for name in score.outside:
            figures.setdefault(name, []).append(_value(score, name, emulated))
    return {name: f" ({', '.join(texts)})" for name, texts in figures.items()}


def _value(score: Score, treatment: str, emulated: frozenset[str]) -> str:
    """A score of one treatment: "reads 1.61 GB/s emulated"."""
    about = SHORT.get(score.kind, "")
    value = format_value(score.values[treatment], score.metric.unit)
    return f"{about} {value}{' emulated' if treatment in emulated else ''}".lstrip()


def _made_of(score: Score) -> Iterator[str]:
    """The weights of a mix."""
    if score.is_article:
        return
    yield f"{score_name(score)} weighs {', '.join(f'{part.weight:g} {part.metric}' for part in score.parts)}"
    reasons = {"for not measured": score.left_out, "for some boots had too few operations": score.untold}
    lacking = "; ".join(f"{why}: {', '.join(metrics)}" for why, metrics in reasons.items() if metrics)
    if lacking:
        doubt = ": too little to be an answer" if score.measured < ENOUGH else ""
        remains = f"{score.measured:.0%}".replace("%", " %")
        yield f"left out, {lacking}; {remains} of the weight remains{doubt}"


def _stability(score: Score, emulated: frozenset[str]) -> str:
    found = score.stability
    assert found is not None
    corners = f"{round(found.corners_won * found.corners)} of {found.corners}"
    text = (
        f"{found.winner} stays first by its estimate in {corners} cases of each weight halved or doubled, and in"
        f" {_share(found.draws_won)} of {found.draws} sets of weights drawn at random"
    )
    if not found.others:
        return text
    named = ", ".join(f"{name} in {_share(share)}" for name, share in found.others[:MOST_OTHERS])
    more = f" and {len(found.others) - MOST_OTHERS} more" if len(found.others) > MOST_OTHERS else ""
    within = f"first or within {format_percent(score.ranking.same_within)} of the first in {_share(found.draws_near)}"
    doubt = " (emulated)" if found.winner in emulated else ""
    return f"{text}, else {named}{more}; {within}, at most {format_overhead(found.behind)}{doubt} behind"


def _share(fraction: float) -> str:
    """A share of draws: "83 %"; only all is rounded to 100 %, and only none to 0 %."""
    percent = round(100 * fraction)
    if percent in (0, 100) and fraction not in (0.0, 1.0):
        return "less than 1 %" if percent == 0 else "over 99 %"
    return f"{percent} %"


def _yardsticks(score: Score, own: Mapping[str, str]) -> Iterator[str]:
    """One line for each treatment that serves as a yardstick."""
    by_name: dict[str, list[Yardstick]] = {}
    metrics: dict[str, list[str]] = {}
    for part in score.parts:
        if part.yardstick is not None:
            by_name.setdefault(part.yardstick.treatment, []).append(part.yardstick)
            metrics.setdefault(part.yardstick.treatment, []).append(part.metric)
    for name, yards in by_name.items():
        about = "" if len(by_name) == 1 else f" for {', '.join(metrics[name])}"
        instead = "" if yards[0].host else ", for no bare metal was measured there"
        yield f"yardstick{about}: {name}{own.get(name, '')}{instead}, {_rounds(yards)}"


def _rounds(yards: Sequence[Yardstick]) -> str:
    borrowed = max(yard.other_rounds for yard in yards)
    if not borrowed:
        return "in the same round"
    every = yards[0].same_round + yards[0].other_rounds
    return f"in the same round; in {borrowed} of {every} rounds it has no number, so the median of its others serves"
