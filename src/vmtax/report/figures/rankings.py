"""Ranked dot plots: one row per configuration, the best at the top, each with its interval against the best."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.rankings import Ranking, Standing
from vmtax.core.units import Cost, format_cost, format_percent, format_value, time_ratio
from vmtax.design.stopping import count
from vmtax.design.topology import groups, hosts_of
from vmtax.report.figures.base import times_dearer
from vmtax.report.figures.dots import Dot, DotRow, cost_axis, picture_of_rows
from vmtax.report.figures.svg import emulation
from vmtax.report.picture import Key, Picture
from vmtax.report.wording.rankings import Ranked
from vmtax.report.wording.treatment_labels import Short, shortened
from vmtax.workload.words import label

SMALL_CHARACTERS = 36  # of a label's line on a telephone
FURTHEST = 1.0  # decades by which the host may extend the scale; beyond that it is only mentioned in words
BEST, TIE, TOP, BEATEN = range(4)
KINDS = (  # mark, colour, text in the legend
    ("diamond", "vm", "the best, hollow: the others are set against it"),
    ("diamond", "vm", "as good as the best, within ±{}"),
    ("circle", "vm", "not shown to be beaten"),
    ("square", "host", "beaten"),
)
HOLLOW = Key("circle-open", "muted", "hollow: too few rounds for an interval")


@dataclass(frozen=True, slots=True)
class _Host:
    """The host against the best, as a ratio of times."""

    ratio: float
    cost: Cost


def rank_pictures(analysis: Analysis, in_words: Sequence[Ranked]) -> tuple[Picture, ...]:
    """One picture for each primary ranking, in their order; `in_words`: the same rankings in words."""
    return tuple(
        _picture(place, analysis, ranking, ranked)
        for place, (ranking, ranked) in enumerate(zip(analysis.primary_rankings, in_words, strict=True), start=1)
    )


def short_names(analysis: Analysis, ranking: Ranking) -> Short:
    """The labels of a ranking's treatments."""
    ranked = {standing.treatment for standing in ranking.standings}
    return shortened([treatment for treatment in analysis.experiment.treatments if treatment.name in ranked])


def _picture(number: int, analysis: Analysis, ranking: Ranking, in_words: Ranked) -> Picture:
    short, host = short_names(analysis, ranking), _host(analysis, ranking)
    marked = emulation([standing.treatment in analysis.emulated for standing in ranking.standings])
    kinds = [_kind_of(ranking, standing) for standing in ranking.standings]
    rows = [
        DotRow(
            short.labels[standing.treatment].lines,
            tuple(_dots(analysis, ranking, standing, kind)),
            _median(analysis, ranking, standing),
            "beaten" if kind == BEATEN else "",
            _small(short.labels[standing.treatment].plain),
        )
        for standing, kind in zip(ranking.standings, kinds, strict=True)
    ]
    filled = {kind for row, kind in zip(rows, kinds, strict=True) for dot in row.dots if dot.low is not None}
    if short.head:
        rows.insert(0, DotRow(short.head.lines, value="median", small=_small(short.head.plain)))
    dots = [dot for row in rows for dot in row.dots]
    axis = cost_axis(dots)
    if near := host is not None and _is_near(host.ratio, dots):
        axis = cost_axis(dots, also=[host.ratio])
    top = sum(kind != BEATEN for kind in kinds)
    alternative = (
        f"{in_words.heading}: {len(kinds)} configurations, best first{f', {marked}' if marked else ''}. Best is"
        f" {ranking.standings[0].treatment}; {top} of {len(kinds)} are not shown to be beaten; last is"
        f" {ranking.standings[-1].treatment}. The table below holds every number."
    )
    id = f"rank-{number}"
    title = f"{in_words.heading}{f' ({marked})' if marked else ''}"
    far = host.ratio if host and near else None
    drawn = picture_of_rows(id, (title, alternative), rows, axis, line=far)
    legend = tuple(_legend(ranking, {BEST, *filled}, dots, marked, host=near))
    return Picture(id, in_words.heading, _caption(ranking, host), alternative, legend, drawn)


def _small(label: str) -> tuple[str, ...]:
    """Its lines on a telephone."""
    return tuple(textwrap.wrap(label, SMALL_CHARACTERS, break_on_hyphens=False)) or (label,)


def _kind_of(ranking: Ranking, standing: Standing) -> int:
    if standing is ranking.standings[0]:
        return BEST
    return (TIE if standing.tie else TOP) if standing.top else BEATEN


def _dots(analysis: Analysis, ranking: Ranking, standing: Standing, kind: int) -> Iterator[Dot]:
    """Its dot; none if no round has both it and the best."""
    if standing.overhead is None:
        return
    parts = (standing.overhead, standing.low, standing.high)
    ratio, low, high = (None if part is None else times_dearer(ranking.metric.better, part) for part in parts)
    assert ratio is not None
    mark, style, _ = KINDS[kind]
    doubt = ", emulated" if standing.treatment in analysis.emulated else ""
    against = (
        f"the best of {len(ranking.standings)}" if kind == BEST else f"{format_cost(ratio, low, high)} than the best"
    )
    beaten = f", beaten by {len(standing.beaten_by)}" if standing.beaten_by else ""
    tip = f"{standing.treatment}{doubt}: {label(ranking.metric)}, {against}{beaten}"
    yield Dot(ratio, None if kind == BEST else low, None if kind == BEST else high, mark, style, tip)


def _median(analysis: Analysis, ranking: Ranking, standing: Standing) -> str:
    value = analysis.medians.get((ranking.metric, standing.treatment))
    return "" if value is None else format_value(value, ranking.metric.unit)


def _host(analysis: Analysis, ranking: Ranking) -> _Host | None:
    """None if the host has no such metric, or no round has both."""
    if ranking.layer == "host":
        return None
    hosts = hosts_of(groups(analysis.experiment.treatments), ranking.side, ranking.count)
    if not hosts:
        return None
    first = hosts[0]
    host, best = (
        analysis.boot_numbers.get((ranking.metric, name), {}) for name in (first.name, ranking.standings[0].treatment)
    )
    differences = [math.log(host[number] / best[number]) for number in sorted({*host} & {*best})]
    if not differences:
        return None
    bounds = stats.interval(differences, analysis.criteria.alpha)
    low, high = (None, None) if bounds is None else map(math.exp, bounds)
    ratio = math.exp(stats.hodges_lehmann(differences))
    ratios = time_ratio(ranking.metric.better, ratio, low, high)
    return _Host(ratios[0], format_cost(*ratios))


def _is_near(ratio: float, dots: Sequence[Dot]) -> bool:
    """Whether the host can be drawn without squeezing the others into a corner."""
    places = [math.log10(end) for dot in dots for end in (dot.ratio, dot.low, dot.high) if end]
    low, high = min(places, default=0.0), max(places, default=0.0)
    reach = max(FURTHEST * (high - low), 0.02)
    return low - reach <= math.log10(ratio) <= high + reach


def _caption(ranking: Ranking, host: _Host | None) -> str:
    left_out = f", {ranking.incomplete} of them incomplete" if ranking.incomplete else ""
    beside = f" The host itself, without a guest: {host.cost} against the best." if host else ""
    needed = stats.minimum_rounds(stats.ALPHA)
    few = "" if ranking.rounds >= needed else f" Nothing can be called beaten before {needed} rounds."
    return f"Time for the same work against the best, over {count(ranking.rounds)}{left_out}.{few}{beside}"


def _legend(ranking: Ranking, kinds: Collection[int], dots: Sequence[Dot], marked: str, *, host: bool) -> Iterator[Key]:
    doubt = f", {marked}" if marked else ""
    for kind, (mark, style, words) in enumerate(KINDS):
        if kind in kinds:
            shape = f"{mark}-open" if kind == BEST else mark
            yield Key(shape, style, words.format(format_percent(ranking.same_within)) + doubt)
    if sum(dot.low is None for dot in dots) > 1:
        yield HOLLOW
    if host:
        yield Key("line", "far", "the host, without a guest", "2 3")
