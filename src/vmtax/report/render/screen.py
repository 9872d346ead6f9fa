"""The first screen of a run: one line for each figure that matters, what to doubt, and what to do next.

At 80 columns a run that compares layers takes 30 lines at most; where a screen is narrower the medians are left out,
where it is wider the nested VM is set against the host too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rich.align import AlignMethod
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.summary import Contrast, Figure, Place, Summary, contrast, label, noise_floor, summary
from vmtax.core.notices import MEANINGS, Code
from vmtax.core.units import at_most, format_cost, format_row, printable, shortened
from vmtax.design.interleaved import Sides
from vmtax.report.sections.next_steps import next_steps
from vmtax.report.sections.rankings import decided
from vmtax.report.sections.run import head
from vmtax.report.wording.figures import about

LAYERS = {"host": "host", "vm": "VM", "nested": "nested"}
LONGEST_LABEL, LONGEST_SIDE = 26, 18  # characters, beyond which it is cut
MOST_LABELS, MOST_DECISIONS, MOST_METRICS, MOST_CONFIGURATIONS = 3, 3, 2, 8
EMULATED = "emulated"
CPU_TIME = "CPU\N{MIDDLE DOT}"
MAIN = 2  # costs of a figure that every screen has: of the VM, and of nesting
MOST_FOOTNOTES = 3  # lines


@dataclass(frozen=True, slots=True)
class Column:
    """Cells that stand below each other, and the lines of their head."""

    head: tuple[str, ...]  # what it is, the side where there are two, "emulated" where it is
    cells: Sequence[Text]
    align: AlignMethod = "right"

    @property
    def width(self) -> int:
        return max(0, *map(len, self.head), *map(len, self.cells))

    def line(self, text: Text) -> Text:
        padded = text.copy()
        padded.align(self.align, self.width)
        return padded


@dataclass
class Footnotes:
    """The doubts about single figures, numbered as they are met."""

    common: frozenset[Code]  # about more than half of the figures: these have no number
    numbers: dict[Code, int] = field(default_factory=dict)

    def of_row(self, figure: Figure) -> str:
        """Those of all costs of a figure, as they stand behind its name."""
        return self.marks(self._of_all(figure.contrasts))

    def of_costs(self, figure: Figure) -> list[str]:
        """Those of each cost alone; what doubts the third, which not every screen shows, doubts one of the others."""
        every = self._of_all(figure.contrasts)
        return [
            self.marks([code for code in one.notes if code not in every]) if one and number < MAIN else ""
            for number, one in enumerate(figure.contrasts)
        ]

    def _of_all(self, row: Sequence[Contrast | None]) -> list[Code]:
        """Where a cost has no interval there is room for its own."""
        main = [one for one in row[:MAIN] if one is not None]
        if len(main) < 2 or any(one.low is None for one in main):
            return []
        return [code for code in main[0].notes if all(code in one.notes for one in main)]

    def marks(self, codes: Sequence[Code]) -> str:
        noted = [code for code in codes if code not in self.common]
        return "".join(f"[{self.numbers.setdefault(code, len(self.numbers) + 1)}]" for code in noted)


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What `show` prints.

    advice: what a run of disks begins with, in the place of the table; more: what follows the table
    """

    analysis: Analysis
    advice: tuple[RenderableType, ...] = ()
    more: tuple[RenderableType, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found, width = summary(self.analysis), options.max_width
        footnotes = Footnotes(frozenset(_common(found)))
        yield from wrapped((*heading(self.analysis), Text()), console, options)
        yield from self.advice
        if not self.advice:
            yield from wrapped(self._tables(found, footnotes, width), console, options)
        yield from self.more
        yield from wrapped(self._below(found, footnotes, width), console, options)

    def _tables(self, found: Summary, footnotes: Footnotes, width: int) -> Iterator[Text]:
        if found.figures:
            yield from _table(found, footnotes, self.analysis, width)
            yield Text()
        yield from _configurations(found, footnotes, self.analysis, width)

    def _below(self, found: Summary, footnotes: Footnotes, width: int) -> Iterator[Text]:
        if not self.advice:
            yield from _reading(found, self.analysis)
        yield from _footnotes(footnotes, self.analysis, width)
        yield from _decisions(self.analysis)
        yield from next_lines(self.analysis)


def wrapped(lines: Iterable[Text], console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """The lines, none longer than the screen is wide and none with spaces at its end."""
    for text in lines:
        for line in text.wrap(console, options.max_width) or [Text()]:
            line.rstrip()
            yield line


def heading(analysis: Analysis) -> Iterator[Text]:
    """What was measured where and when, and what holds of all its figures."""
    run = head(analysis)
    where, when, *facts = run.facts
    yield Text.assemble((printable(run.name), "bold"), (printable(f" {where}"), "dim"))
    facts = [fact for fact in facts if fact != "complete"]
    yield Text.assemble(printable(run.id), (printable(f"  {' · '.join((*facts, when))}"), "dim"))
    if run.banner:
        yield Text.assemble(("EMULATED: ", "bold yellow"), (printable(run.banner), "yellow"))


def next_lines(analysis: Analysis) -> Iterator[Text]:
    """What to do next: what for, and the command."""
    steps = next_steps(analysis)
    longest = max(len(command) for command, _ in steps)
    for number, (command, what) in enumerate(steps):
        yield Text.assemble("Next: " if not number else "      ", (command.ljust(longest), "bold"), f"  {what}")


def _table(found: Summary, footnotes: Footnotes, analysis: Analysis, width: int) -> Iterator[Text]:
    """As many columns as there is room for."""
    rows = [format_row(figure.medians, figure.metric.unit) for figure in found.figures]
    names = [_plain(f"{_cut(figure.label)}{footnotes.of_row(figure)}") for figure in found.figures]
    units = [unit.removeprefix(CPU_TIME) for unit, _ in rows]  # the name says that it is CPU time
    labels = Column(
        (), [Text.assemble(name, " ", (unit, "dim")) for name, unit in zip(names, units, strict=True)], "left"
    )
    sides = analysis.sides
    marks = [footnotes.of_costs(figure) for figure in found.figures]
    costs = [_cost_column(found, place, [row[place] for row in marks], sides) for place in range(len(found.contrasts))]
    medians = [
        Column(_head(LAYERS[place.layer], place, sides), [_plain(texts[number] or "–") for _, texts in rows])
        for number, place in enumerate(found.places)
    ]
    main = costs if sides else costs[:MAIN]
    layouts = (
        [labels, *medians, *costs],
        [labels, *medians, *main],
        [labels, *medians[:2], *main],
        [labels, *main],
    )
    columns = next((layout for layout in layouts if _width(layout) <= width), layouts[-1])
    yield from _grid(columns)


def _grid(columns: Sequence[Column]) -> Iterator[Text]:
    """The lines of the heads, then those of the cells."""
    for line in range(max(len(column.head) for column in columns)):
        heads = [column.head[line] if line < len(column.head) else "" for column in columns]
        if any(heads):
            yield _joined(columns, [Text(head, style="yellow" if head == EMULATED else "bold") for head in heads])
    for number in range(len(columns[0].cells)):
        yield _joined(columns, [column.cells[number] for column in columns])


def _configurations(found: Summary, footnotes: Footnotes, analysis: Analysis, width: int) -> Iterator[Text]:
    """The others of each layer against its first, the fastest first, by the plan's first primary metrics."""
    chosen = [figure for figure in found.figures if figure.primary] or found.figures
    metrics = [figure.metric for figure in chosen[:MOST_METRICS]]
    for layer, first in analysis.first_treatments().items():
        others = [
            treatment.name
            for treatment in analysis.experiment.treatments
            if (treatment.layer, treatment.side) == (layer, "") and treatment.repeats is None and treatment != first
        ]
        costs = {
            name: [contrast(analysis, m, first.name, name, noise_floor(m, analysis)) for m in metrics]
            for name in others
        }
        known = {name: row for name, row in costs.items() if any(row)}
        if not known:
            continue
        order = sorted(known, key=lambda name: _first_cost(known[name]))
        names = at_most(MOST_CONFIGURATIONS, order)
        rows = [known[name] for name in order[:MOST_CONFIGURATIONS]]
        yield Text.assemble((f"{LAYERS[layer]} configurations, against {printable(first.name)}", "bold"))
        columns = [Column((), [_plain(name) for name in names], "left")]
        for place, metric in enumerate(metrics):
            found_here = [row[place] for row in rows]
            marks = [footnotes.marks(one.notes) if one else "" for one in found_here]
            cells = [*_cost_cells(found_here, marks), *[Text()] * (len(names) - len(rows))]
            emulated = EMULATED if any(one and one.emulated for row in rows for one in row) else ""
            columns.append(Column((label(metric), emulated), cells, "center"))
        layouts = [columns[:count] for count in range(len(columns), 1, -1)]
        yield from _grid(next((layout for layout in layouts if _width(layout) <= width), layouts[-1]))
        yield Text()


def _first_cost(costs: Sequence[Contrast | None]) -> float:
    """By which configurations are ordered; what has no such cost comes last."""
    first = costs[0]
    return first.ratio if first and math.isfinite(first.ratio) else math.inf


def _head(name: str, place: Place, sides: Sides | None) -> tuple[str, ...]:
    side = shortened(sides.other if place.side else sides.own, LONGEST_SIDE) if sides else ""
    return (name, side, EMULATED if place.emulated else "")


def _cost_column(found: Summary, number: int, marks: Sequence[str], sides: Sides | None) -> Column:
    """Estimates, their intervals and the numbers of their footnotes."""
    by_name = {one.treatment: one for one in found.places}
    low, high = (by_name[name] for name in found.contrasts[number])
    contrasts = [figure.contrasts[number] for figure in found.figures]
    cells = _cost_cells(contrasts, marks)
    nesting = (low.layer, high.layer) == ("vm", "nested")
    name = "nesting costs" if nesting else f"{'nested VM' if high.layer == 'nested' else LAYERS[high.layer]} costs"
    emulated = any(one.emulated for one in contrasts if one)
    return Column(_head(name, replace(high, emulated=emulated), sides), cells, "center")


def _cost_cells(found: Sequence[Contrast | None], marks: Sequence[str]) -> list[Text]:
    """Estimates below each other, and intervals with the numbers of footnotes beside them."""
    pairs = [_cost(one, mark) for one, mark in zip(found, marks, strict=True)]
    wide, long = (max(len(pair[place]) for pair in pairs) for place in (0, 1))
    for estimate, interval in pairs:
        estimate.align("right", wide)
        interval.align("left", long)
    return [Text(" " if long else "").join(pair) for pair in pairs]


def _cost(found: Contrast | None, marks: str) -> tuple[Text, Text]:
    if found is None:
        return Text("–", style="dim"), Text()
    cost = format_cost(found.ratio, found.low, found.high)
    clear = found.verdict in ("worse", "better") and not found.same
    style = "" if clear else "dim"
    text = "same" if found.same else cost.estimate
    return _plain(text, "bold" if clear else style), _plain(f"{cost.interval}{marks}", style)


def _reading(found: Summary, analysis: Analysis) -> Iterator[Text]:
    """How to read the costs, and which of them are nothing."""
    if not found.contrasts:
        yield Text(_why_nothing_is_compared(found, analysis))
        return
    contrasts = [one for figure in found.figures for one in figure.contrasts if one is not None]
    yield Text(f"Costs: time for the same work, {_whom(found, analysis.sides)}.", style="dim")
    if all(one.verdict == "too few rounds" for one in contrasts):
        rounds = max(one.rounds for one in contrasts)
        yield Text(f"Too few rounds ({rounds}) for an interval, so any cost may be chance.", "yellow")
    if found.floors:
        least, most = (format_cost(floor).estimate.lstrip("+") for floor in (found.floors[0], found.floors[-1]))
        span = most if least == most else f"{least} to {most}"
        meaning = "; “same”: within its own" if any(one.same for one in contrasts) else ", by figure"
        yield Text(f"Noise floor (a guest against itself): {span}{meaning}.", style="dim")


def _why_nothing_is_compared(found: Summary, analysis: Analysis) -> str:
    if len(found.places) == 1 and not analysis.comparisons:
        return "One configuration was measured, so there is nothing to compare it with."
    if analysis.comparisons:
        return "Layers are not compared in this run; its configurations are."
    return "Nothing can be compared yet: no round has a result on two sides."


def _footnotes(footnotes: Footnotes, analysis: Analysis, width: int) -> Iterator[Text]:
    """The numbered ones, then those about the whole run."""
    notes = [
        (f"[{number}] {MEANINGS[code].label}", MEANINGS[code].effect) for code, number in footnotes.numbers.items()
    ]
    few = len(notes) <= MOST_FOOTNOTES
    for short, effect in notes[: MOST_FOOTNOTES - (not few)]:
        long = f"{short}: {effect[0].lower()}{effect[1:]}"
        yield Text(long if len(long) <= width else short)
    if not few:
        yield Text("; ".join(short for short, _ in notes[MOST_FOOTNOTES - 1 :]))
    explained = (*footnotes.numbers, "emulated", "few-rounds")
    rest = [cause for cause in analysis.causes if cause.code not in explained]
    labels = list(dict.fromkeys(MEANINGS[cause.code].label for cause in rest))
    if labels:
        long = f"Also: {'; '.join(f'{MEANINGS[cause.code].label} ({about(cause, analysis)})' for cause in rest)}"
        yield Text(long if len(long) <= width else f"Also: {'; '.join(at_most(MOST_LABELS, labels))}")


def _decisions(analysis: Analysis) -> Iterator[Text]:
    for line in at_most(MOST_DECISIONS, list(decided(analysis))):
        yield _plain(line)


def _common(found: Summary) -> Iterator[Code]:
    """Doubts about more than half of the costs; too few rounds where all have too few, for then a line says so."""
    contrasts = [one for figure in found.figures for one in figure.contrasts if one is not None]
    for code in dict.fromkeys(code for one in contrasts for code in one.notes):
        count = sum(code in one.notes for one in contrasts)
        if count == len(contrasts) or (2 * count > len(contrasts) and code != "few-rounds"):
            yield code


def _whom(found: Summary, sides: Sides | None) -> str:
    """What the first two columns of costs are against."""
    if sides:
        return f"{sides.where(own=False)} against {sides.where(own=True)}"
    layers = {one.treatment: one.layer for one in found.places}
    names = {"host": "host", "vm": "VM", "nested": "nested VM"}
    pairs = [(names[layers[low]], names[layers[high]]) for low, high in found.contrasts[:MAIN]]
    return "; ".join(f"{'nesting: ' if low == 'VM' else ''}{high} against {low}" for low, high in pairs)


def _joined(columns: Sequence[Column], texts: Sequence[Text]) -> Text:
    line = Text(" ").join(column.line(text) for column, text in zip(columns, texts, strict=True))
    line.rstrip()
    return line


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(columns) - 1


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _plain(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)
