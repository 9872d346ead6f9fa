"""Ranked dot plots: one row for each treatment, the best at the top, each with its interval against the best."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtax import stats
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import as_overhead
from vmtax.analysis.rankings import Ranking, Standing
from vmtax.core.records import Json, Metric
from vmtax.core.units import format_percent, format_value
from vmtax.report.figures.base import (
    AXIS,
    FONT,
    MONOSPACE,
    Picture,
    dearness_axis,
    emulation,
    escape,
    frame,
    round_off,
    times_dearer,
)
from vmtax.report.sections.rankings import Ranked, against_best
from vmtax.report.view import cost, cost_of
from vmtax.report.wording.treatment_labels import Label, Short, shortened
from vmtax.workload.words import label

ROW_PIXELS, LINE_PIXELS = 20, 15  # of a label of one line; of each further line
NARROW_PIXELS, NARROW_LINE = 26, 14  # of a row whose label stands above its point, without; of each line of it
FOOT_PIXELS, LEGEND_PIXELS = 56, 34
CHARACTER_PIXELS = 7.3  # of a label
LABEL_SIZE = 12
NARROW = ((44, 10.5), (54, 9.0))  # (characters of a label beside its value on a telephone, size): the first that does
FURTHEST = 1.0  # decades that the host may widen the scale by; beyond that it is told at the edge
KINDS = (  # (what the legend says, marker, colour)
    ("best, and ties within ±{}", "diamond", "var(--vm)"),
    ("top set: no other is shown to beat it", "circle", "var(--vm)"),
    ("beaten", "circle-open", "var(--host)"),
)
FAMILY: Json = {"family": MONOSPACE, "size": LABEL_SIZE}


@dataclass(frozen=True, slots=True)
class _Row:
    """One treatment."""

    standing: Standing
    label: Label
    value: str  # median, with its unit
    kind: int  # in KINDS
    emulated: bool


@dataclass(frozen=True, slots=True)
class _Host:
    """The bare baseline against the best."""

    overhead: float
    low: float | None
    high: float | None


def rank_pictures(analysis: Analysis, told: Sequence[Ranked]) -> tuple[Picture, ...]:
    """One for each primary ranking, in their order; `told`: the same in words."""
    return tuple(
        _picture(place, ranking, ranked, list(_rows(analysis, ranking)), _host(analysis, ranking))
        for place, (ranking, ranked) in enumerate(zip(analysis.primary_rankings, told, strict=True), start=1)
    )


def short_names(analysis: Analysis, ranking: Ranking) -> Short:
    """The labels of a ranking's treatments."""
    ranked = {standing.treatment for standing in ranking.standings}
    return shortened([treatment for treatment in analysis.experiment.treatments if treatment.name in ranked])


def _rows(analysis: Analysis, ranking: Ranking) -> Iterator[_Row]:
    short = short_names(analysis, ranking)
    if short.head:
        yield _Row(ranking.standings[0], short.head, "median", -1, emulated=False)
    for place, standing in enumerate(ranking.standings):
        kind = 0 if not place or (standing.top and standing.tie) else 1 if standing.top else 2
        value = analysis.medians.get((ranking.metric, standing.treatment))
        text = "" if value is None else format_value(value, ranking.metric.unit)
        yield _Row(standing, short.labels[standing.treatment], text, kind, standing.treatment in analysis.emulated)


def _host(analysis: Analysis, ranking: Ranking) -> _Host | None:
    """None where the host has no such metric, or no round has both."""
    first = analysis.first_treatments(ranking.side).get("host")
    if first is None or ranking.layer == "host":
        return None
    host, best = (
        analysis.boot_numbers.get((ranking.metric, name), {}) for name in (first.name, ranking.standings[0].treatment)
    )
    differences = [math.log(host[number] / best[number]) for number in sorted({*host} & {*best})]
    if not differences:
        return None
    bounds = stats.interval(differences, analysis.criteria.alpha)
    low, high = (None, None) if bounds is None else map(math.exp, bounds)
    return _Host(*as_overhead(ranking.metric.better, math.exp(stats.hodges_lehmann(differences)), low, high))


def _picture(number: int, ranking: Ranking, told: Ranked, rows: Sequence[_Row], host: _Host | None) -> Picture:
    metric, entries = ranking.metric, [row for row in rows if row.kind >= 0]
    low, high = _span(ranking, host)
    emulated = emulation([row.emulated for row in entries])
    apart = _is_beyond(host, metric, low)
    traces = [trace for kind in range(len(KINDS)) if (trace := _trace(kind, rows, ranking))]
    if host and not apart:
        traces.append(_host_line(host, metric, len(rows)))
    what = f"{cost(metric)} against the best" + (f", {emulated}" if emulated else "")
    best, worst = entries[0].standing.treatment, entries[-1].standing
    top = sum(row.kind < 2 for row in entries)
    return Picture(
        id=f"rank-{number}",
        title=told.heading,
        caption=_caption(ranking, host),
        alternative=(
            f"{told.heading}: {len(entries)} treatments, best first. Best is {best}; {top} of {len(entries)} are in the"
            f" top set; last is {worst.treatment}, {against_best(worst, metric)[0]} {cost(metric)}."
            " The table below holds every number."
        ),
        figure={
            "data": traces,
            "layout": _layout(rows, what, dearness_axis(metric.better, low, high, 9)),
            "narrow": {"layout": _narrow(rows, what, dearness_axis(metric.better, low, high, 5))},
        },
    )


def _span(ranking: Ranking, host: _Host | None) -> tuple[float, float]:
    """The ends of the axis in decades, with some room; the host is within unless it is far away."""
    better = ranking.metric.better
    ends = [0.0]
    for entry in ranking.standings:
        parts = (entry.overhead, entry.low, entry.high)
        ends += [math.log10(times_dearer(better, part)) for part in parts if part is not None]
    low, high = min(ends), max(ends)
    if host:
        place = math.log10(times_dearer(better, host.overhead))
        reach = max(FURTHEST * (high - low), 0.02)
        if low - reach <= place <= high + reach:
            low, high = min(low, place), max(high, place)
    room = 0.04 * (high - low) or 0.01
    return low - room, high + room


def _is_beyond(host: _Host | None, metric: Metric, low: float) -> bool:
    return host is not None and math.log10(times_dearer(metric.better, host.overhead)) < low


def _caption(ranking: Ranking, host: _Host | None) -> str:
    left_out = f", {ranking.incomplete} of them incomplete" if ranking.incomplete else ""
    told = f" {_host_words(host, ranking.metric)}" if host else ""
    needed = stats.minimum_rounds(stats.ALPHA)
    few = "" if ranking.rounds >= needed else f" Nothing can be called beaten before {needed} rounds."
    return f"{cost(ranking.metric).capitalize()} against the best, over {ranking.rounds} rounds{left_out}.{few}{told}"


def _host_words(host: _Host, metric: Metric) -> str:
    """ "The host itself, without a guest: −37 % (−47…−24) time for the same work against the best."."""
    amount, interval = cost_of(metric.better, host.overhead, host.low, host.high)
    told = f"{amount} ({interval})" if interval else amount
    return f"The host itself, without a guest: {told} {cost(metric)} against the best."


def _trace(kind: int, rows: Sequence[_Row], ranking: Ranking) -> Json | None:
    """The points of one kind; None without any."""
    mine = [(place, row) for place, row in enumerate(rows) if row.kind == kind]
    if not mine:
        return None
    name, symbol, colour = KINDS[kind]
    metric = ranking.metric

    def place_of(overhead: float) -> float:
        return times_dearer(metric.better, overhead)

    def arm(end: float | None, row: _Row) -> float:
        middle = row.standing.overhead
        return 0.0 if end is None or middle is None else round_off(abs(place_of(end) - place_of(middle)))

    return {
        "type": "scatter",
        "mode": "markers",
        "name": name.format(format_percent(ranking.same_within)),
        # Without a round with the best there is a label and no point.
        "x": [None if (x := row.standing.overhead) is None else round_off(place_of(x)) for _, row in mine],
        "y": [place for place, _ in mine],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [arm(row.standing.high, row) for _, row in mine],
            "arrayminus": [arm(row.standing.low, row) for _, row in mine],
            "color": colour,
            "thickness": 1.75,
            "width": 3,
        },
        "marker": {"symbol": symbol, "color": colour, "size": 8, "line": {"color": colour, "width": 1.5}},
        "text": ["<br>".join(_hover(row, ranking)) for _, row in mine],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _hover(row: _Row, ranking: Ranking) -> Iterator[str]:
    entry = row.standing
    yield f"<b>{escape(entry.treatment)}</b>{' (emulated)' if row.emulated else ''}"
    yield f"{escape(label(ranking.metric))}: median {row.value}"
    if entry is ranking.standings[0]:
        yield f"the best of {len(ranking.standings)}"
    else:
        yield f"{' '.join(against_best(entry, ranking.metric))} {cost(ranking.metric)} against the best"
    yield f"beaten by {len(entry.beaten_by)}" if entry.beaten_by else "in the top set"


def _host_line(host: _Host, metric: Metric, rows: int) -> Json:
    x = round_off(times_dearer(metric.better, host.overhead))
    amount, interval = cost_of(metric.better, host.overhead, host.low, host.high)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "host, without a guest",
        "x": [x, x],
        "y": [-0.5, rows - 0.5],
        "line": {"color": "var(--text)", "width": 1.5, "dash": "dot"},
        "text": [f"host, without a guest<br>{amount} {interval} {cost(metric)} against the best"] * 2,
        "hovertemplate": "%{text}<extra></extra>",
    }


def _layout(rows: Sequence[_Row], what: str, axis: Json) -> Json:
    """Labels to the left of the points, medians to the right."""
    lines = max(len(row.label.lines) for row in rows)
    height = len(rows) * (ROW_PIXELS + LINE_PIXELS * (lines - 1)) + FOOT_PIXELS + LEGEND_PIXELS
    return {
        **_common(what, axis, height),
        "margin": {
            "l": 8,
            "r": _pixels(max(len(row.value) for row in rows)) + 16,
            "t": LEGEND_PIXELS,
            "b": FOOT_PIXELS,
        },
        "yaxis": {
            **_rows_axis(rows),
            "automargin": True,
            "tickfont": FAMILY,
            **{"ticks": "outside", "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"},
            "ticktext": [_bold(row, "<br>".join(map(escape, row.label.lines))) for row in rows],
        },
        "annotations": [
            {**_text(row, place, _bold(row, row.value), 1, "left"), "xshift": 8} for place, row in enumerate(rows)
        ],
    }


def _narrow(rows: Sequence[_Row], what: str, axis: Json) -> Json:
    """For a telephone: a label and its median stand above the point."""
    longest = max(len(row.label.plain) for row in rows)
    characters, size = next((pair for pair in NARROW if longest <= pair[0]), NARROW[-1])
    wrapped = [textwrap.wrap(row.label.plain, characters, break_on_hyphens=False) for row in rows]
    lines = max(map(len, wrapped))
    height = len(rows) * (NARROW_PIXELS + NARROW_LINE * lines) + FOOT_PIXELS + 2 * LEGEND_PIXELS
    above = {"yanchor": "bottom", "yshift": 6, "bgcolor": "var(--paper)", "borderpad": 0}  # lines end at the words
    labels = [
        {**_text(row, place, _bold(row, "<br>".join(map(escape, text))), 0, "left", size), **above}
        for place, (row, text) in enumerate(zip(rows, wrapped, strict=True))
    ]
    values = [{**_text(row, place, _bold(row, row.value), 1, "right", size), **above} for place, row in enumerate(rows)]
    return {
        **_common(what, axis, height),
        "margin": {"l": 8, "r": 8, "t": 2 * LEGEND_PIXELS, "b": FOOT_PIXELS},
        "yaxis": {**_rows_axis(rows), "showticklabels": False, "range": [len(rows) - 0.65, -0.9]},
        "annotations": [*labels, *values],
    }


def _common(what: str, axis: Json, height: int) -> Json:
    line = {"color": "var(--muted)", "width": 1}
    return {
        **frame(height),
        "xaxis": {**AXIS, "title": {"text": what, "standoff": 8, "font": {"size": 13}}, **axis},
        "shapes": [
            {"type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "line": line, "layer": "below"}
        ],
    }


def _rows_axis(rows: Sequence[_Row]) -> Json:
    return {**AXIS, "tickvals": list(range(len(rows))), "range": [len(rows) - 0.5, -0.5]}


def _text(row: _Row, place: float, text: str, x: int, anchor: str, size: float = LABEL_SIZE) -> Json:
    colour = "var(--text)" if row.kind < 2 else "var(--muted)"
    return {
        **{"text": text, "xref": "paper", "x": x, "y": place, "xanchor": anchor, "yanchor": "middle", "align": anchor},
        **{"showarrow": False, "font": {**FONT, **FAMILY, "size": size, "color": colour}},
    }


def _bold(row: _Row, text: str) -> str:
    """The head of the columns stands out."""
    return f"<b>{text}</b>" if row.kind < 0 else text


def _pixels(characters: int) -> int:
    return math.ceil(CHARACTER_PIXELS * characters)
