"""Forest plots: one row per case, a point with its interval for each contrast."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vmtax.core.records import Json, Metric
from vmtax.report.figures.base import AXIS, Picture, apart, emulation, escape, frame, percent_tick
from vmtax.report.view import Effect, Row, View, cost
from vmtax.workload.words import label

ROW_PIXELS = 44  # with several contrasts
LINE_PIXELS = 18  # of one line of a label
LABEL_CHARACTERS = 28
MOST_SETTINGS = 12  # of a case; more than that are told by the rankings
FRAME_PIXELS = 96  # axis and legend
# Marker and colour, so that neither alone must tell the series apart.
STYLES = {  # (layer of the baseline, layer of the treatment)
    ("host", "vm"): ("circle", "var(--vm)"),
    ("vm", "nested"): ("diamond", "var(--nesting)"),
    ("host", "nested"): ("square-open", "var(--host)"),
    ("vm", "vm"): ("circle", "var(--vm)"),
    ("nested", "nested"): ("diamond", "var(--nesting)"),
}
# Overheads in time that make a readable tick; the axis is logarithmic in 1 + overhead.
TICKS = (-0.9, -0.75, -0.5, -0.25, -0.1, 0, 0.1, 0.25, 0.5, 1, 2, 4, 9, 24, 99, 249, 999)


@dataclass(slots=True)
class _Forest:
    """Rows from the top down, and the points of each series."""

    labels: list[str] = field(default_factory=list)
    points: dict[str, list[tuple[float, str, Effect]]] = field(default_factory=dict)  # series -> (y, row, effect)
    styles: dict[str, tuple[str, str]] = field(default_factory=dict)

    def row(self, text: str) -> int:
        self.labels.append(text)
        return len(self.labels) - 1

    def point(self, series: str, style: tuple[str, str], y: float, row: str, effect: Effect) -> None:
        self.styles.setdefault(series, style)
        self.points.setdefault(series, []).append((y, row, effect))

    @property
    def row_pixels(self) -> int:
        """Room for the points of a row, and for the longest label."""
        crowded = any(y != round(y) for points in self.points.values() for y, _, _ in points)
        lines = max(label.count("<br>") for label in self.labels) + 1
        return max(ROW_PIXELS if crowded else 0, LINE_PIXELS * lines)

    @property
    def effects(self) -> list[Effect]:
        return [effect for points in self.points.values() for _, _, effect in points]


def forests(view: View) -> tuple[Picture, ...]:
    """The layers by throughput lost and by more time, and the settings; only those that have a point to show."""
    sides, headline_metrics = view.analysis.sides, view.analysis.headline_metrics
    found = (
        (
            "sides",
            f"{sides.other} against {sides.own}" if sides else "",
            _between(view, headline_metrics),
            _linear,
            "overhead",
        ),
        ("throughput", "Throughput lost", _layers(view, _rate), _linear, "throughput lost"),
        ("time", "More time", _layers(view, _time), _logarithmic, "time added"),
        (
            "settings",
            "Settings",
            _settings(view, headline_metrics),
            _linear,
            "overhead",
        ),
    )
    return tuple(_picture(*forest) for forest in found if forest[2].effects)


def _layers(view: View, choose: Callable[[Sequence[Row]], Row | None]) -> _Forest:
    """One row for each case, under its workload; one series for each contrast."""
    forest = _Forest()
    for workload in view.workloads:
        chosen = [row for case in workload.cases if (row := choose(case.rows)) and any(row.effects)]
        alone = len(chosen) == 1 and not chosen[0].metric.case
        if chosen and not alone:
            forest.row(_heading(workload.title))
        for row in chosen:
            case = row.metric.case
            name = _heading(workload.title) if alone else escape(case or label(row.metric))
            y = forest.row(name)
            _add(forest, workload.contrasts, row, y, f"{workload.title} {case}".strip())
    return forest


def _add(forest: _Forest, contrasts: Sequence[tuple[str, str]], row: Row, y: int, name: str) -> None:
    spread = 0.26 if len(contrasts) > 1 else 0.0
    for place, ((low, high), effect) in enumerate(zip(contrasts, row.effects, strict=True)):
        if effect is not None and math.isfinite(effect.fraction):
            series = f"{high} against {low}"
            forest.point(series, _style(low, high), y + (place - (len(contrasts) - 1) / 2) * spread, name, effect)


def _settings(view: View, headline_metrics: Mapping[str, Metric]) -> _Forest:
    """One row for each treatment with other levels, under the metric that stands for the workload."""
    forest = _Forest()
    for workload in view.workloads:
        metric = headline_metrics.get(workload.name)
        for case in workload.cases:
            place = next((i for i, row in enumerate(case.rows) if row.metric == metric), None)
            shown = [s for s in case.settings if place is not None and _drawable(s.effects[place])]
            if len(shown) > MOST_SETTINGS:
                continue
            if shown and metric:
                forest.row(f"{_heading(f'{workload.title} {case.name}'.strip())}<br>{cost(metric)}")
            for setting in shown:
                effect = setting.effects[place or 0]
                if effect is not None:
                    y = forest.row(_wrapped(setting.treatment + (" (emulated)" if effect.emulated else "")))
                    style = _style(setting.baseline, setting.treatment)
                    forest.point(f"against {setting.baseline}", style, y, setting.treatment, effect)
    return forest


def _between(view: View, headline_metrics: Mapping[str, Metric]) -> _Forest:
    """One row for each treatment that both sides have, under the metric that stands for the workload."""
    forest = _Forest()
    for workload in view.workloads:
        shown = [
            (between.treatment, between.effect)
            for between in workload.between
            if between.metric == headline_metrics.get(workload.name) and _drawable(between.effect)
        ]
        if shown:
            forest.row(f"{_heading(workload.between_title)}<br>{cost(headline_metrics[workload.name])}")
        for name, effect in shown:
            assert effect is not None
            y = forest.row(_wrapped(name + (" (emulated)" if effect.emulated else "")))
            layer = name.partition(" ")[0]
            forest.point(layer, _style(layer if layer != "host" else "", layer), y, name, effect)
    return forest


def _style(baseline: str, treatment: str) -> tuple[str, str]:
    """By the layers, with which treatments' names begin."""
    return STYLES.get((baseline.partition(" ")[0], treatment.partition(" ")[0]), ("square-open", "var(--host)"))


def _drawable(effect: Effect | None) -> bool:
    return effect is not None and math.isfinite(effect.fraction)


def _rate(rows: Sequence[Row]) -> Row | None:
    """The row that tells a case's throughput."""
    return next((row for row in rows if row.metric.better == "higher"), None)


def _time(rows: Sequence[Row]) -> Row | None:
    """The row that tells a case's time: its 99th percentile where there is one, for tails hurt and means hide them."""
    times = [row for row in rows if row.metric.unit == "s" and row.metric.better == "lower"]
    return next((row for row in times if row.metric.measure == "p99_seconds"), times[0] if times else None)


def _picture(id: str, name: str, forest: _Forest, axis: Callable[[Sequence[Effect]], Json], what: str) -> Picture:
    effects = forest.effects
    emulated = emulation([effect.emulated for effect in effects])
    transform = axis is _logarithmic
    figure: Json = {
        "data": [_trace(series, points, forest.styles[series], transform) for series, points in forest.points.items()],
        "layout": _layout(forest, axis(effects), what + (f", {emulated}" if emulated else "")),
    }
    worst = max(effects, key=lambda effect: effect.fraction).comparison
    alternative = (
        f"{name}: {len(effects)} points with their intervals; the largest is {worst.metric.name},"
        f" {worst.treatment} against {worst.baseline}. The tables below hold every number."
    )
    return Picture(id, name, _caption(id, emulated), alternative, figure)


def _caption(id: str, emulated: str) -> str:
    texts = {
        "throughput": "One metric for each case that has a rate. Further right is dearer; 0 is free.",
        "time": "99th percentile of latency where there is one, else the time itself. The scale is logarithmic, from"
        " tenfold on in multiples; 0 is free.",
        "sides": "Each treatment on the other side against the same on the plan's own, by one metric for each"
        " workload: right of 0 dearer, left of it cheaper.",
        "settings": "Other settings against the first treatment of the same layer, by one metric for each workload:"
        " right of 0 dearer, left of it cheaper.",
    }
    said = {"": "", "emulated": " Every point is emulated.", "partly emulated": " Points that are emulated say so."}
    return texts[id] + said[emulated]


def _trace(series: str, points: Sequence[tuple[float, str, Effect]], style: tuple[str, str], logarithmic: bool) -> Json:
    symbol, colour = style
    emulated = any(effect.emulated for _, _, effect in points)

    def place(fraction: float) -> float:
        return 1 + fraction if logarithmic else 100 * fraction

    def arm(end: float | None, fraction: float) -> float:
        return 0.0 if end is None else abs(place(end) - place(fraction))

    return {
        "type": "scatter",
        "mode": "markers",
        "name": escape(series) + (" (emulated)" if emulated else ""),
        "x": [place(effect.fraction) for _, _, effect in points],
        "y": [y for y, _, _ in points],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [arm(effect.high, effect.fraction) for _, _, effect in points],
            "arrayminus": [arm(effect.low, effect.fraction) for _, _, effect in points],
            "color": colour,
            "thickness": 1.75,
            "width": 4,
        },
        "marker": {"symbol": symbol, "color": colour, "size": 8, "line": {"color": colour, "width": 1.5}},
        "text": ["<br>".join(_hover(row, series, effect)) for _, row, effect in points],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _hover(row: str, series: str, effect: Effect) -> Iterator[str]:
    metric = effect.comparison.metric
    yield f"<b>{escape(row)}</b>, {escape(label(metric))}"
    yield f"{effect.text} {cost(metric)} {effect.interval}{' (emulated)' if effect.emulated else ''}"
    yield f"{escape(series)}, {effect.comparison.rounds} rounds"


def _layout(forest: _Forest, axis: Json, what: str) -> Json:
    labels = forest.labels
    return {
        **frame(FRAME_PIXELS + forest.row_pixels * len(labels)),
        "xaxis": {**AXIS, "title": {"text": what, "standoff": 8, "font": {"size": 13}}, **axis},
        "yaxis": {
            **AXIS,
            "automargin": True,
            "tickvals": list(range(len(labels))),
            "ticktext": list(labels),
            "range": [len(labels) - 0.5, -0.5],
            "showgrid": False,
        },
        "shapes": [_free(axis), *(_line(y) for y in range(1, len(labels)))],
    }


def _free(axis: Json) -> Json:
    """The line of no cost."""
    x = 1 if axis.get("type") == "log" else 0
    line = {"color": "var(--muted)", "width": 1}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line, "layer": "below"}


def _line(y: int) -> Json:
    line = {"color": "var(--rule)", "width": 0.5}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y - 0.5, "y1": y - 0.5, "line": line}


def _linear(effects: Sequence[Effect]) -> Json:
    """An axis in percent that holds 0 and every interval."""
    ends = [100 * end for effect in effects for end in _ends(effect)] + [0.0]
    low, high = min(ends), max(ends)
    room = 0.05 * (high - low) or 1.0
    return {
        "ticksuffix": " %",
        "nticks": 6 if high - low > 30 else 4,
        "tickangle": 0,
        "range": [low - room, min(high + room, max(high, 100.0) + 2)],
    }


def _logarithmic(effects: Sequence[Effect]) -> Json:
    """An axis of 1 + overhead, whose ticks are told as overheads."""
    ends = [math.log10(1 + max(end, -0.99)) for effect in effects for end in _ends(effect)] + [0.0]
    low, high = min(ends), max(ends)
    room = 0.05 * (high - low) or 0.01
    inside = [tick for tick in TICKS if low - room <= math.log10(1 + tick) <= high + room]
    ticks = apart(inside, (high - low + 2 * room) / 6)
    return {
        "type": "log",
        "tickangle": 0,
        "range": [low - room, high + room],
        "tickvals": [1 + tick for tick in ticks],
        "ticktext": [percent_tick(tick) for tick in ticks],
        "minorloglabels": "none",
    }


def _ends(effect: Effect) -> Iterator[float]:
    yield effect.fraction
    yield from (end for end in (effect.low, effect.high) if end is not None)


def _wrapped(text: str) -> str:
    """A long label on several lines: on a telephone it must leave room for the points."""
    return "<br>".join(escape(line) for line in textwrap.wrap(text, LABEL_CHARACTERS, break_on_hyphens=False))


def _heading(text: str) -> str:
    return f"<b>{escape(text)}</b>"
