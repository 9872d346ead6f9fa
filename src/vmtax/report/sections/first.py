"""What a page shows first: a tile for each subject, the main table, the machine, and how sure all of it is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import side_contrasts
from vmtax.core.records import Comparison, Experiment, Metric
from vmtax.core.units import Cost, format_cost, format_duration, format_value, time_ratio
from vmtax.report.document import (
    Cell,
    Column,
    Detail,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    Tile,
    Tiles,
    name_cell,
    term,
    value_cell,
)
from vmtax.report.figures.dots import Dot
from vmtax.report.figures.forest import work
from vmtax.report.figures.tiles import bars
from vmtax.report.sections.noise import noise_floor
from vmtax.report.sections.summary import machine_name, sureness
from vmtax.report.view import Row as Line
from vmtax.report.view import View, Workload, flat_facts
from vmtax.workload.boot import READY
from vmtax.workload.words import spoken, title

if TYPE_CHECKING:
    from markupsafe import Markup

    from vmtax.report.sections.outliers import Outliers

WORDS = (  # (up to this ratio of times, what it is in a word)
    (0.98, "faster"),
    (1.05, "hardly slower"),
    (1.25, "a little slower"),
    (2.0, "slower"),
    (10.0, "much slower"),
    (math.inf, "very much slower"),
)
LAYERS = {"host": "host", "vm": "VM", "nested": "nested VM"}
FACTS = {
    "cpu_model": "CPU",
    "cpus_online": "CPUs",
    "memory_bytes": "memory",
    "os": "system",
    "kernel_release": "kernel",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What stands for one subject: its primary metric, and what is to be said of it first."""

    metric: Metric
    found: Comparison | None  # what a VM costs, or what was asked instead; None where nothing was compared
    nesting: Comparison | None
    median: float | None  # in the metric's unit; told where nothing is compared, and of a boot
    emulated: bool

    @property
    def subject(self) -> str:
        return title(self.metric.workload)

    @property
    def sentence(self) -> str:
        """ "+3.1 % CPU", as a title lists it."""
        return f"{told(self.found).estimate} {self.subject if self.subject.isupper() else self.subject.lower()}"


def answers(analysis: Analysis) -> tuple[Answer, ...]:
    """One for each subject that was measured."""
    first = {layer: treatment.name for layer, treatment in analysis.first_treatments().items()}
    host, vm, nested = (first.get(layer, "") for layer in ("host", "vm", "nested"))
    other = dict(side_contrasts(analysis.experiment.treatments))
    asked = [(vm or host, other.get(vm or host, ""))] if analysis.sides else [(host, vm)]
    compared = analysis.contrasts

    def answer(metric: Metric) -> Answer:
        found = next((compared[metric, *pair] for pair in asked if (metric, *pair) in compared), None)
        nesting = None if analysis.sides else compared.get((metric, vm, nested))
        if found is None and vm == "":
            found = compared.get((metric, host, nested))
        names = [name for one in (found, nesting) if one for name in (one.baseline, one.treatment)] or [vm or host]
        median = analysis.medians.get((metric, vm or host))
        return Answer(metric, found, nesting, median, not analysis.emulated.isdisjoint(names))

    headline = analysis.headline_metrics or {metric.workload: metric for metric in reversed(_measured(analysis))}
    return tuple(map(answer, headline.values()))


def _measured(analysis: Analysis) -> list[Metric]:
    return list(dict.fromkeys(metric for metric, _ in analysis.medians))


def ratios(found: Comparison) -> tuple[float, float | None, float | None]:
    """A comparison as ratios of times for the same work."""
    return time_ratio(found.metric.better, found.ratio, found.low, found.high)


def told(found: Comparison | None) -> Cost:
    """What it costs, in words."""
    return Cost("–") if found is None else format_cost(*ratios(found))


def tiles(found: Sequence[Answer]) -> Tiles:
    """One for each subject; their bars have one scale."""
    dots = [_dot(one) for one in found]
    return Tiles(tuple(_tile(one, bar) for one, bar in zip(found, bars(dots), strict=True)))


def _dot(answer: Answer) -> Dot | None:
    shown = answer.found or answer.nesting
    if shown is None or not math.isfinite(shown.ratio):
        return None
    return Dot(*ratios(shown), "circle", "vm" if answer.found else "nesting", "")


def _tile(answer: Answer, bar: Markup | None) -> Tile:
    cost, nesting = told(answer.found), told(answer.nesting)
    more = (
        f"nesting adds {nesting.estimate}{f'  {nesting.interval}' if nesting.interval else ''}"
        if answer.nesting
        else ""
    )
    tile = Tile(answer.subject, cost.estimate, _word(answer.found), cost.interval, bar, more, answer.emulated)
    if answer.found is not None:
        return tile
    if answer.median is None:
        return replace(tile, figure="not measured", word="")
    is_boot = answer.metric.name == READY.name
    figure = format_duration(answer.median) if is_boot else format_value(answer.median, answer.metric.unit)
    return replace(tile, figure=figure, word="from launch to first answer" if is_boot else f"{spoken(answer.metric)}")


def _word(found: Comparison | None) -> str:
    """A cost in a word."""
    if found is None or not math.isfinite(found.ratio):
        return ""
    ratio, low, _ = ratios(found)
    if found.verdict == "no difference shown":
        return "no difference shown"
    word = next(word for limit, word in WORDS if ratio < limit)
    return word if low is not None else f"{word}, but perhaps by chance"


def page_title(analysis: Analysis, found: Sequence[Answer]) -> str:
    """The host and the answer: "Xeon Gold 6338: a VM costs +3 % CPU, 2.1× disk"."""
    run = analysis.experiment
    costs = [one.sentence for one in found if one.found and math.isfinite(one.found.ratio)]
    machine = _short(machine_name(run)) if run.host == "local" else run.host.removeprefix("ssh://")
    where = machine or run.host
    if not costs:
        return f"{where}: {', '.join(one.subject for one in found) or run.name} measured"
    if analysis.sides:
        return f"{analysis.sides.other} against {analysis.sides.own}: {', '.join(costs)}"
    emulated = "an emulated VM" if any(one.emulated for one in found if one.found) else "a VM"
    return f"{where}: {emulated} costs {', '.join(costs)}"


def _short(model: str | None) -> str:
    """A CPU's model without what every one of its kind says: "Xeon Gold 6338"."""
    words = (model or "").replace("(R)", "").replace("(TM)", "").partition("@")[0].split()
    return " ".join(word for word in words if word not in ("Intel", "AMD", "CPU", "Processor"))


def main_table(shown: View) -> Section | None:
    """A row for each case: what it costs first, then the medians. None where no layers were compared."""
    layers = tuple(dict.fromkeys(layer for workload in shown.workloads for layer in workload.layers))
    workloads = [workload for workload in shown.workloads if workload.contrasts and not workload.where]
    if not workloads:
        return None
    emulated = shown.analysis.emulated
    floors = {floor.metric: floor.effect.comparison for floor in noise_floor(shown.analysis)}
    pairs = list(dict.fromkeys(pair for workload in workloads for pair in workload.contrasts))
    pairs = [pair for pair in pairs if pair != (layers[0], layers[-1])] or pairs
    columns = (
        Column(""),
        *(Column(_marked(_cost_head(*pair), not emulated.isdisjoint(pair))) for pair in pairs),
        *(Column(_marked(LAYERS.get(layer, layer), layer in emulated)) for layer in layers),
        *(
            (
                Column(
                    ("against itself"),
                ),
            )
            if floors
            else ()
        ),
    )
    rows: list[Row] = []
    for workload in workloads:
        lines = [line for case in workload.cases if (line := work(case.rows))]
        rows.append(Row((name_cell(workload.title),)))
        rows += (_row(line, workload, pairs, layers, floors) for line in lines)
    return Section(
        "main", "The main figures", (Table("The main figures", columns, tuple(rows), "main"),), "Main figures"
    )


def _cost_head(low: str, high: str) -> str:
    return {"vm": "VM costs", "nested": "nesting adds" if low == "vm" else "nested VM costs"}.get(high, f"{high} costs")


def _marked(head: str, emulated: bool) -> tuple[Span, ...]:
    return (Span(head), *((Span(" emulated", "emulated"),) if emulated else ()))


def _row(
    line: Line,
    workload: Workload,
    pairs: Sequence[tuple[str, str]],
    layers: Sequence[str],
    floors: dict[Metric, Comparison],
) -> Row:
    effects = dict(zip(workload.contrasts, line.effects, strict=True))
    medians = dict(zip(workload.layers, line.medians, strict=True))
    floor = told(floors[line.metric]) if line.metric in floors else None
    cells = [
        *(cost_cell(effect.comparison if (effect := effects.get(pair)) else None) for pair in pairs),
        *(value_cell(number.text) if (number := medians.get(layer)) else Cell() for layer in layers),
        *((value_cell(floor.estimate, floor.interval) if floor else Cell(),) if floors else ()),
    ]
    name = Cell((Span(spoken(line.metric), "link", line.metric.name),))
    return Row((name, *cells))


def cost_cell(found: Comparison | None) -> Cell:
    """What it costs with its interval; "same" where no difference is shown."""
    if found is None:
        return Cell()
    cost = told(found)
    if found.verdict == "no difference shown":
        return Cell((Span("same", "muted"), Span(cost.interval, "interval")))
    return value_cell(cost.estimate, cost.interval or found.verdict, shown=True)


def machine(run: Experiment) -> Section:
    """The host under test."""
    host = run.facts.get("host")
    facts = dict(flat_facts(host)) if isinstance(host, dict) else {}
    lines = [(words, (_fact(name, facts[name]),)) for name, words in FACTS.items() if name in facts]
    accelerators = dict.fromkeys(boot.accelerator.upper() for boot in run.boots)
    if accelerators:
        lines.append(("guests on", (" and ".join(accelerators),)))
    return Section("machine", "The machine", (Sentences(tuple(lines), Detail.PAGE),), place="beside")


def _fact(name: str, value: str) -> str:
    return format_value(float(value), "B") if name == "memory_bytes" and value.isdecimal() else value


def sure(analysis: Analysis, warnings: int, outliers: Outliers) -> Section:
    """What the figures rest on."""
    return Section(
        "sure", "How sure", (Sentences(tuple(_sure(analysis, warnings, outliers)), Detail.PAGE),), place="beside"
    )


def _sure(analysis: Analysis, warnings: int, outliers: Outliers) -> Iterator[tuple[str, tuple[tuple[Span, ...], ...]]]:
    counted = sureness(analysis)
    few = (
        " only, so any figure may be chance"
        if analysis.rounds == 1
        else ", each with every configuration in random order"
    )
    yield "rounds", ((Span(f"{analysis.rounds}"), Span(few)),)
    yield (
        "intervals",
        ((Span(f"{counted.intervals} of {counted.comparisons} comparisons have a 95 % "), term("interval")),),
    )
    floors = [
        ratios(floor.effect.comparison)[0] for floor in noise_floor(analysis) if math.isfinite(floor.effect.fraction)
    ]
    if floors:
        most = max(floors, key=lambda ratio: abs(math.log(ratio)))
        yield (
            "noise",
            ((Span("a guest differs from itself by "), Span(f"{format_cost(most)} at most", "link", "noise")),),
        )
    yield "failed", ((Span(f"{counted.failed or 'none'} of {counted.trials} trials", "link", "doubts"),),)
    if outliers.values:
        yield (
            "outliers",
            ((Span(f"{len(outliers.found) or 'no'} trials with a value far from the rest", "link", "outliers"),),),
        )
    yield "warnings", ((Span(f"{warnings or 'none'}", "link", "doubts"),),)


def legend_note() -> Paragraph:
    """How to read a cost."""
    return Paragraph(
        (
            Span("A cost is time for the same work: +5 % takes 5 % longer, 2× twice as long; behind it its 95 % "),
            term("interval"),
            Span(", which holds the true figure in 95 of 100 such runs. “same”: no difference is shown."),
        ),
        "note",
        Detail.PAGE,
    )
