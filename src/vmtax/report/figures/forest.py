"""Forest plots: a row for each case, and a dot with its interval for each contrast; one picture per quantity."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

from vmtax.analysis.by_workload import View
from vmtax.analysis.effects import Effect, effect
from vmtax.analysis.summary import said_once, summary
from vmtax.core.layers import LAYERS
from vmtax.core.records import Metric
from vmtax.core.units import format_cost, time_ratio
from vmtax.design.stopping import count
from vmtax.report.figures.dots import Dot, DotRow, cost_axis, picture_of_rows
from vmtax.report.figures.svg import emulation
from vmtax.report.picture import Key, Picture
from vmtax.report.wording.cost import special_cost
from vmtax.report.wording.layers import STYLES
from vmtax.workload.words import is_cpu_time, label, spoken, title

LABEL_CHARACTERS = 34
MOST_SETTINGS = 12  # of a case; with more, the rankings show them
CONTRASTS = {  # (layer of the baseline, layer of the treatment): mark, colour, what the legend says
    ("host", "vm"): ("circle", "vm", "the VM against the host"),
    ("host", "existing"): ("wedge", "contained", "the existing VM against the host"),
    ("host", "clone"): ("star", "vm", "the cloned VM against the host"),
    ("clone", "vm"): ("square", "vm", "the VM against the cloned one"),
    ("existing", "vm"): ("square", "vm", "the VM against the existing one"),
    ("host", "container"): ("triangle", "contained", "the container against the host"),
    ("container", "vm"): ("square", "vm", "the VM against the container"),
    ("vm", "nested"): ("diamond", "nesting", "the nested VM against the VM"),
    ("host", "nested"): ("square", "host", "the nested VM against the host"),
}
NO_INTERVAL = "hollow: no interval"
SCALE = "The scale is logarithmic; the grey line is no cost, and what lies left of it is a gain."
Drawn = tuple[str, str, str]  # mark, colour, text in the legend


class _Forest:
    """Rows from the top down, and the legend's entries."""

    def __init__(self) -> None:
        self.rows: list[DotRow] = []
        self.kinds: dict[Drawn, list[Effect]] = {}

    @property
    def effects(self) -> list[Effect]:
        return [effect for effects in self.kinds.values() for effect in effects]

    def heading(self, text: str) -> None:
        self.rows.append(DotRow((text,)))

    def row(self, name: str, found: Sequence[tuple[Drawn, Effect | None]]) -> None:
        """Add a row with the effects that have a value; no row if none has."""
        dots = []
        for kind, one in found:
            if one is not None and _drawable(one):
                self.kinds.setdefault(kind, []).append(one)
                dots.append(_dot(name, kind, one))
        if dots:
            label = tuple(textwrap.wrap(name, LABEL_CHARACTERS, break_on_hyphens=False)) or (name,)
            self.rows.append(DotRow(label, tuple(dots)))


def forests(view: View) -> tuple[Picture, ...]:
    """Forest plots of the sides, of the layers by quantity, and of the settings; without those that have no dot."""
    sides, cpu = view.analysis.sides, _layers(view, is_cpu_time)
    beside = " CPU time has a picture of its own below." if cpu.effects else ""
    found = (
        (
            *("sides", f"{sides.other} against {sides.own}" if sides else ""),
            "Time for the same work on the other side against the same configuration on the plan’s own.",
            _between(view, view.analysis.headline_metrics),
        ),
        ("layers", "What each layer costs", f"Time for the same work.{beside}", _work(view)),
        ("tails", "The slowest in a hundred", "99th percentile of latency, not the mean.", _layers(view, _is_tail)),
        (
            "cpu",
            "CPU time for the same work",
            "CPU time for each operation of a disk, and for each byte of the network.",
            cpu,
        ),
        (
            *("settings", "Other settings"),
            "Time for the same work against the first configuration of the same layer.",
            _settings(view, view.analysis.headline_metrics),
        ),
    )
    return tuple(_picture(*forest) for forest in found if forest[3].effects)


def _work(view: View) -> _Forest:
    """A row for each figure of the summary whose cost is time, below its workload."""
    forest, found = _Forest(), said_once(summary(view.analysis))
    kinds = [_kind(*pair) for pair in found.contrasts]
    shown = [place for place, kind in enumerate(kinds) if kind[1] != "host"] or [*range(len(kinds))]
    headlines = view.analysis.headline_metrics.values()
    workload = ""
    for figure in found.figures if view.analysis.sides is None else ():
        effects = [effect(view.analysis, figure.metric, *found.contrasts[place]) for place in shown]
        is_beside = _is_percentile(figure.metric) and figure.metric not in headlines
        if special_cost(figure.metric) or is_beside or not any(map(_drawable, effects)):
            continue
        if figure.metric.workload != workload:
            workload = figure.metric.workload
            forest.heading(title(workload))
        forest.row(spoken(figure.metric), [(kinds[place], one) for place, one in zip(shown, effects, strict=True)])
    return forest


def _layers(view: View, choose: Callable[[Metric], bool]) -> _Forest:
    """A row for each case that has such a metric, below its workload."""
    forest = _Forest()
    for workload in view.workloads:
        every = (next((row for row in case.rows if choose(row.metric)), None) for case in workload.cases)
        chosen = [row for row in every if row and any(map(_drawable, row.effects))]
        kinds = [_kind(*pair) for pair in workload.contrasts]
        shown = [kind for kind in kinds if kind[1] != "host"] or kinds  # the third contrast follows from the other two
        for number, row in enumerate(chosen):
            if not number:
                forest.heading(workload.title)
            pairs = zip(kinds, row.effects, strict=True)
            forest.row(spoken(row.metric), [(kind, one) for kind, one in pairs if kind in shown])
    return forest


def _is_percentile(metric: Metric) -> bool:
    return re.fullmatch(r"p\d+_seconds", metric.measure) is not None


def _is_tail(metric: Metric) -> bool:
    return metric.measure == "p99_seconds"


def _settings(view: View, headline_metrics: Mapping[str, Metric]) -> _Forest:
    """A row for each configuration with other levels, below the metric that represents the workload."""
    forest = _Forest()
    for workload in view.workloads:
        metric = headline_metrics.get(workload.name)
        for case in workload.cases:
            place = next((i for i, row in enumerate(case.rows) if row.metric == metric), None)
            if place is None or metric is None:
                continue
            shown = [setting for setting in case.settings if _drawable(setting.effects[place])]
            if not shown or len(shown) > MOST_SETTINGS:
                continue
            forest.heading(_named(workload.title, metric))
            for setting in shown:
                layer = setting.treatment.partition(" ")[0]
                style = STYLES.get(layer, STYLES["host"])
                kind = (style.mark, style.colour, f"against {setting.baseline}")
                forest.row(setting.treatment, [(kind, setting.effects[place])])
    return forest


def _named(workload: str, metric: Metric) -> str:
    """A heading with the part that all rows share."""
    words = spoken(metric)
    return words if words.startswith(workload) else f"{workload}: {words}"


def _between(view: View, headline_metrics: Mapping[str, Metric]) -> _Forest:
    """A row for each configuration that both sides have, below the metric that represents the workload."""
    forest = _Forest()
    for workload in view.workloads:
        metric = headline_metrics.get(workload.name)
        shown = [one for one in workload.between if one.metric == metric and _drawable(one.effect)]
        if shown and metric:
            forest.heading(_named(workload.between_title, metric))
        for one in shown:
            layer = one.treatment.partition(" ")[0]
            style = STYLES.get(layer, STYLES["host"])
            forest.row(one.treatment, [((style.mark, style.colour, layer), one.effect)])
    return forest


def _kind(low: str, high: str) -> Drawn:
    """The mark of a contrast of two configurations, by their layers, which begin their names."""
    mark, style, words = CONTRASTS.get((low.partition(" ")[0], high.partition(" ")[0]), ("square", "host", ""))
    plain = {low, high} <= LAYERS.keys()
    return mark, style, words if plain and words else f"{high} against {low}"


def _drawable(effect: Effect | None) -> bool:
    return effect is not None and math.isfinite(effect.fraction)


def _dot(name: str, kind: Drawn, effect: Effect) -> Dot:
    found = effect.comparison
    ratios = time_ratio(found.metric.better, found.ratio, found.low, found.high)
    mark, style, words = kind
    doubt = ", emulated" if effect.emulated else ""
    tip = f"{name}: {format_cost(*ratios)}{doubt}; {words}, {label(found.metric)}, {count(found.rounds)}"
    return Dot(*ratios, mark, style, tip)


def _picture(id: str, name: str, quantity: str, forest: _Forest) -> Picture:
    dots = [dot for row in forest.rows for dot in row.dots]
    worst = max(dots, key=lambda dot: dot.ratio)
    marked = emulation([effect.emulated for effect in forest.effects])
    alternative = (
        f"{quantity} {len(dots)} estimates{f', {marked}' if marked else ''}. The largest is {worst.tip}."
        " The tables hold every number."
    )
    title = f"{name}{f' ({marked})' if marked else ''}"
    drawn = picture_of_rows(id, (title, alternative), forest.rows, cost_axis(dots))
    return Picture(id, name, f"{quantity} {SCALE}", alternative, tuple(_legend(forest, dots)), drawn)


def _legend(forest: _Forest, dots: Sequence[Dot]) -> Iterator[Key]:
    for (mark, style, words), effects in forest.kinds.items():
        marked = emulation([effect.emulated for effect in effects])
        barred = any(effect.low is not None for effect in effects)
        bar = "; the bar is the 95 % interval" if barred else ""
        yield Key(mark if barred else f"{mark}-open", style, f"{words}{f', {marked}' if marked else ''}{bar}")
    if any(dot.low is None for dot in dots):
        yield Key("circle-open", "muted", NO_INTERVAL)
