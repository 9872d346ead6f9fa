"""The first screen of a page: a tile for each subject, and the main figures. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.hosts import host_name
from vmtax.analysis.summary import Contrast, KeyFigure, ShownConfiguration, Summary, said_once, summary
from vmtax.core.layers import LAYERS
from vmtax.core.notices import MEANINGS, Code, sentence
from vmtax.core.records import Experiment
from vmtax.core.units import Cost, format_cost, format_duration, format_value
from vmtax.design.stopping import count
from vmtax.design.topology import groups, varying
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
    listed,
    name_cell,
    term,
    value_cell,
)
from vmtax.report.figures.dots import Dot
from vmtax.report.figures.tiles import bars
from vmtax.report.sections import durability
from vmtax.report.sections.summary import findings, headline, nothing_compared
from vmtax.report.wording.durability import in_few_words
from vmtax.report.wording.figures import amounts
from vmtax.report.wording.layers import contrast_name, cost_name
from vmtax.report.wording.treatment_labels import factor_words
from vmtax.workload.boot import READY
from vmtax.workload.words import is_cpu_time, spoken, subject, title, within

if TYPE_CHECKING:
    from markupsafe import Markup


WORDS = (  # (upper limit of the ratio of times, its word)
    (0.98, "faster"),
    (1.02, "about the same"),
    (1.1, "a little slower"),
    (1.5, "slower"),
    (10.0, "much slower"),
    (math.inf, "very much slower"),
)
MAIN_LAYERS = ("existing", "clone", "vm", "nested", "container")  # in the order in which a reader asks for their cost
MAIN = 2  # contrasts of a figure: the cost of a VM and of nesting, if there is no container
Sentence = tuple[str, tuple[tuple[Span, ...], ...]]


@dataclass(frozen=True, slots=True)
class First:
    """The figures that represent a run on its first screen."""

    analysis: Analysis
    summary: Summary

    @property
    def few(self) -> bool:
        """Whether every comparison has too few rounds for an interval: then the verdict says it for all of them."""
        compared = self.analysis.comparisons
        return any(one.rounds for one in compared) and all(one.verdict == "too few rounds" for one in compared)

    @property
    def subjects(self) -> tuple[KeyFigure, ...]:
        """The figure that represents each subject."""
        chosen = {metric.name for metric in self.analysis.headline_metrics.values()}
        found: dict[str, KeyFigure] = {}
        for figure in self.summary.figures:
            if figure.metric.workload not in found or figure.metric.name in chosen:
                found[figure.metric.workload] = figure
        return tuple(found.values())

    def contrast(self, figure: KeyFigure, *layers: str) -> Contrast | None:
        """The contrast between the first configurations of two layers, or between two sides if they are interleaved."""
        by_name = {place.treatment: place for place in self.summary.places}
        for pair, found in zip(self.summary.contrasts, figure.contrasts, strict=True):
            if found and (tuple(by_name[name].layer for name in pair) == layers or self.analysis.sides):
                return found
        return None

    def of(self, figure: KeyFigure) -> Contrast | None:
        """The main contrast: the cost of the main layer."""
        return self.contrast(figure, "host", self.main_layer)

    @property
    def main_layer(self) -> str:
        """The layer whose cost is the answer; "" if nothing but the host was measured."""
        measured = {place.layer for place in self.summary.places}
        return next((layer for layer in MAIN_LAYERS if layer in measured), "")

    def nesting(self, figure: KeyFigure) -> Contrast | None:
        """The cost of nesting."""
        return None if self.analysis.sides else self.contrast(figure, "vm", "nested")


def first(analysis: Analysis) -> First:
    """Prepare the first screen of a run."""
    return First(analysis, said_once(summary(analysis)))


def cost_of(found: Contrast) -> Cost:
    """A contrast in words."""
    return format_cost(found.ratio, found.low, found.high)


def tiles(shown: First) -> Section | None:
    """One for each subject, with bars on a common scale. None for a run without figures."""
    subjects = shown.subjects
    strips = bars([_dot(shown.of(one) or shown.nesting(one), shown.of(one) is not None) for one in subjects])
    found = tuple(_tile(shown, one, strip) for one, strip in zip(subjects, strips, strict=True))
    return Section("answer", "The answer", (Tiles(found),), place="top") if found else None


def _dot(found: Contrast | None, of_vm: bool) -> Dot | None:
    if found is None or not math.isfinite(found.ratio):
        return None
    return Dot(found.ratio, found.low, found.high, "circle" if of_vm else "diamond", "vm" if of_vm else "nesting", "")


def _tile(shown: First, figure: KeyFigure, bar: Markup | None) -> Tile:
    found, nesting = shown.of(figure), shown.nesting(figure)
    marked = any(one.emulated for one in (found, nesting) if one)
    more = ""
    if nesting is not None:
        cost = cost_of(nesting)
        name = contrast_name("vm", "nested")
        more = f"{name}: within the noise floor" if nesting.same else f"{name} {cost}"
    subject = title(figure.metric.workload)
    if found is not None:
        cost = cost_of(found)
        doubtful = found.verdict == "too few rounds" and math.isfinite(found.ratio) and not shown.few
        chance = ", or chance" if doubtful else ""
        word = word_of(found)
        if is_cpu_time(figure.metric):
            word = word.replace("slower", "more").replace("faster", "less")
        by = within(spoken(figure.metric).removeprefix(f"{subject} "))
        return Tile(subject, cost.estimate, f"{word}{chance}: {by}", cost.interval, bar, more, marked)
    place, value = _median(shown.summary, figure)
    if value is None or place is None:
        return Tile(subject, "not measured", "", "")
    boots = figure.metric.name == READY.name
    if not more and place.layer != "host" and any(one.layer == "host" for one in shown.summary.places):
        more = "the host has no such figure"
    amount = format_duration(value) if boots else format_value(value, figure.metric.unit)
    word = "from launch to the first answer" if boots else spoken(figure.metric)
    return Tile(subject, amount, f"{LAYERS[place.layer].title}: {word}", "", bar, more, marked or place.emulated)


def _median(found: Summary, figure: KeyFigure) -> tuple[ShownConfiguration | None, float | None]:
    """The median of the VM, or else of the first configuration that has one."""
    pairs = list(zip(found.places, figure.medians, strict=True))
    having = [pair for pair in pairs if pair[1] is not None]
    return next((pair for pair in having if pair[0].layer == "vm"), having[0] if having else (None, None))


def word_of(found: Contrast) -> str:
    """A cost in a word."""
    if not math.isfinite(found.ratio):
        return "no round has both"
    if found.same or found.verdict == "no difference shown":
        return "the same" if found.same else "no difference is shown"
    return next(word for limit, word in WORDS if found.ratio < limit)


def page_title(shown: First, choice: str = "") -> str:
    """The host and the answer: "example: a VM costs +3 % CPU, 2.1× disk".

    choice: the recommended configuration; "" if there is none
    """
    run, sides = shown.analysis.experiment, shown.analysis.sides
    where = host_name(run).removeprefix("ssh://")
    if choice:
        return f"{where}: {'of emulated guests, ' if shown.analysis.emulated else ''}choose {_levels(run, choice)}"
    subjects = {subject(one.metric): shown.of(one) for one in shown.subjects}
    costs = [
        f"{cost_of(found).estimate} {within(name)}"
        for name, found in subjects.items()
        if found and math.isfinite(found.ratio)
    ]
    if durability.is_all(shown.analysis) and shown.analysis.survival is not None:
        return f"{where}: durability, {in_few_words(shown.analysis.survival)}"
    if sides and costs:
        return f"{sides.other} against {sides.own}: {', '.join(costs)}"
    if costs:
        emulated = any(found.emulated for found in subjects.values() if found)
        few = f"{too_few(shown.analysis)}, " if all(found.low is None for found in subjects.values() if found) else ""
        return f"{where}: {few}{_named(LAYERS[shown.main_layer].title, emulated=emulated)} costs {', '.join(costs)}"
    layers = dict.fromkeys(LAYERS[treatment.layer].title for treatment in run.treatments)
    return f"{where}: {run.name}, measured on {' and '.join(layers)}"


def _named(title: str, *, emulated: bool) -> str:
    """ "a VM", "an existing VM", "an emulated VM"."""
    words = f"{'emulated ' if emulated else ''}{title}"
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def too_few(analysis: Analysis) -> str:
    """The sentence that must precede costs without an interval."""
    return f"in {_compared_in(analysis)}, too few for intervals"


def _compared_in(analysis: Analysis) -> str:
    """The number of rounds in which both sides of a comparison have a value, at most: failed trials reduce it."""
    return count(max((comparison.rounds for comparison in analysis.comparisons), default=0))


def _levels(run: Experiment, choice: str) -> str:
    """What distinguishes a configuration from those of its layer with the same number of machines at once:
    "filesystem=ext4 cache=writeback".
    """
    members = next(each for each in groups(run.treatments).values() if choice in {one.name for one in each})
    levels = {member.name: member.levels for member in members}[choice]
    factors = varying(members)
    words = factor_words(factors)
    return " ".join(f"{words[name]}={levels[name]}" for name in factors if name in levels) or choice


def verdict(shown: First) -> Section | None:
    """One sentence about everything, or else a sentence for each subject. None for a run that compares nothing, because
    it tried durability.
    """
    analysis = shown.analysis
    if durability.is_all(analysis):
        return None
    if over := headline(analysis):
        return Section("verdict", "", (Paragraph(over, "headline"),), place="first")
    found = findings(analysis)
    if shown.few:
        few = f"{_compared_in(analysis).capitalize()}: too few for intervals, so no cost has a range."
        return Section("verdict", "", (Paragraph(few, "headline"),), place="first")
    if not found:
        return Section("verdict", "", (Paragraph(nothing_compared(analysis), "headline"),), place="first")
    return Section("verdict", "", (Sentences(tuple((one.resource, (one.parts,)) for one in found)),), place="first")


def main_figures(shown: First) -> Section | None:
    """The costs of each figure, then its medians; doubts about single figures are numbered below."""
    found, sides = shown.summary, shown.analysis.sides
    if not found.figures:
        return None
    places = {place.treatment: place for place in found.places}
    count = len(found.contrasts) if sides else MAIN
    numbered, notes = rare(found.figures, count), dict[Code, int]()
    columns = (
        Column("figure"),
        *(_cost_head(shown, number, places) for number in range(len(found.contrasts[:count]))),
        *(Column(_head(LAYERS[place.layer].title, shown, place, place.emulated)) for place in found.places),
        *((Column("noise floor"),) if found.floors else ()),
    )
    rows: list[Row] = []
    for number, figure in enumerate(found.figures):
        if not number or found.figures[number - 1].metric.workload != figure.metric.workload:
            rows.append(Row((name_cell(title(figure.metric.workload)),)))
        rows.append(_row(figure, count, bool(found.floors), numbered, notes))
    texts = (f"[{number}] {MEANINGS[code].label}: {sentence(MEANINGS[code].effect)}" for code, number in notes.items())
    blocks = (
        Table("The main figures", columns, tuple(rows), "main"),
        *((listed(texts),) if notes else ()),
        _reading(bool(found.floors)),
    )
    return Section("main", "The main figures", blocks, "Main figures", "first")


def _cost_head(shown: First, number: int, places: Mapping[str, ShownConfiguration]) -> Column:
    low, high = (places[name] for name in shown.summary.contrasts[number])
    marked = any(one.emulated for figure in shown.summary.figures if (one := figure.contrasts[number]))
    name = cost_name(low.layer, high.layer)
    return Column(_head(name, shown, high, marked))


def _head(name: str, shown: First, place: ShownConfiguration, emulated: bool) -> tuple[Span, ...]:
    sides = shown.analysis.sides
    side = f" {sides.where(own=not place.side)}" if sides else ""
    return (Span(f"{name}{side}"), *((Span(" "), Span("emulated", "emulated")) if emulated else ()))


def rare(figures: Sequence[KeyFigure], count: int) -> frozenset[Code]:
    """Doubts about at most half of the costs, `count` of each figure: they are numbered, the others in "How sure"."""
    costs = [one for figure in figures for one in figure.contrasts[:count] if one]
    counts = Counter(code for one in costs for code in one.notes if code != "few-rounds")
    return frozenset(code for code, times in counts.items() if 2 * times <= len(costs))


def _row(figure: KeyFigure, count: int, floors: bool, numbered: frozenset[Code], notes: dict[Code, int]) -> Row:
    """`notes`: the number of each doubt, assigned on first use."""
    unit, medians = amounts(figure.metric, figure.medians)
    every = dict.fromkeys(code for one in figure.contrasts[:count] if one for code in one.notes if code in numbered)
    marks = "".join(f"[{notes.setdefault(code, len(notes) + 1)}]" for code in every)
    name = (Span(spoken(figure.metric), "link", figure.metric.name), Span(f"{unit} {marks}".strip(), "muted"))
    floor = "" if figure.floor is None else f"±{format_cost(figure.floor).estimate.lstrip('+')}"
    cells = (
        *(cost_cell(one) for one in figure.contrasts[:count]),
        *map(value_cell, medians),
        *((value_cell(floor),) if floors else ()),
    )
    return Row((Cell(tuple(span for span in name if span.text)), *cells))


def cost_cell(found: Contrast | None) -> Cell:
    """The cost with its interval; "same" if it is within its noise floor, and muted if nothing is shown."""
    if found is None:
        return Cell()
    cost = cost_of(found)
    if found.same:
        return Cell((Span("same", "muted"), Span(cost.interval_in_unit, "interval")))
    if found.verdict == "no difference shown":
        return Cell((Span(cost.estimate, "muted"), Span(cost.interval, "interval")))
    return value_cell(cost.estimate, cost.interval or "no interval", shown=True)


def _reading(floors: bool) -> Paragraph:
    floor = "Noise floor: what a guest costs against itself, by this figure"
    same = f" {floor}; “same”: the cost lies within it, its interval within twice of it." if floors else ""
    lead = (
        "A cost is time for the same work, where nothing else is said: +5 % is 5 % longer, 2× twice as long. Behind it"
    )
    return Paragraph((Span(f"{lead} stands its 95 % "), term("interval"), Span(f".{same}")), "note", Detail.PAGE)
