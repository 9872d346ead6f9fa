"""The first screen of a run: one line for each figure that matters, doubts, and what to do next.

At 80 columns, a run that compares layers takes at most 30 lines; a narrower screen omits the medians, and a wider one
also compares the nested VM with the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.align import AlignMethod
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.hosts import hypervisor_below
from vmtax.analysis.noise import floor_of
from vmtax.analysis.summary import Contrast, KeyFigure, ShownConfiguration, Summary, contrast, label, said_once, summary
from vmtax.core.records import Treatment
from vmtax.core.units import at_most, format_cost, printable, shortened
from vmtax.design.interleaved import Sides
from vmtax.design.topology import groups, varying
from vmtax.report.render.screen_notes import MAIN, Footnotes, common, decisions, footnote_lines, reading
from vmtax.report.sections.durability import news
from vmtax.report.sections.next_steps import MOST, next_steps
from vmtax.report.sections.run import head
from vmtax.report.wording.cost import NOT_A_COST, SHORTLY_NOT_A_COST
from vmtax.report.wording.figures import amounts
from vmtax.report.wording.guest_settings import guest_settings
from vmtax.report.wording.layers import SHORT, cost_name
from vmtax.report.wording.own_program import own_program

LONGEST_LABEL, LONGEST_SIDE = 26, 18  # characters; longer text is cut
MOST_METRICS, MOST_CONFIGURATIONS = 2, 8
MOST_LINES = 30  # of a run without a recommendation, if shortening the warnings suffices
FEWER_STEPS = 2  # if there is no room for more
EMULATED = "emulated"
NOISE = ("noise",)  # head of the column


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """Cells below each other, and the lines of their head."""

    head: tuple[str, ...]  # its name, the side if there are two, "emulated" if it is
    cells: Sequence[Text]
    align: AlignMethod = "right"

    @property
    def width(self) -> int:
        return max(0, *map(len, self.head), *map(len, self.cells))

    def line(self, text: Text) -> Text:
        padded = text.copy()
        padded.align(self.align, self.width)
        return padded


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """The content of `show`.

    advice: what a run of disks shows instead of the table; more: what follows the table
    """

    analysis: Analysis
    advice: tuple[RenderableType, ...] = ()
    more: tuple[RenderableType, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found, width = said_once(summary(self.analysis)), options.max_width
        footnotes = Footnotes(frozenset(common(found)))
        first = [_plain(text, "bold") for text in news(self.analysis)]
        lines = (*heading(self.analysis), Text(), *first, *((Text(),) if first else ()))
        above = list(wrapped(lines, console, options))
        columns = [] if self.advice else _columns(found, footnotes, self.analysis, width)
        tables = [] if self.advice else self._tables(found, columns, footnotes, width)
        table = list(wrapped(tables, console, options))
        below = [
            list(wrapped(self._below(found, footnotes, columns, width, brief=brief), console, options))
            for brief in (False, True)
        ]
        yield from (*above, *self.advice, *table, *self.more)
        yield from below[len(above) + len(table) + len(below[0]) > MOST_LINES]

    def _tables(
        self, found: Summary, columns: Sequence[ScreenColumn], footnotes: Footnotes, width: int
    ) -> Iterator[Text]:
        if found.figures:
            yield from _grid(columns)
            yield Text()
        yield from _configurations(found, footnotes, self.analysis, width)

    def _below(
        self, found: Summary, footnotes: Footnotes, columns: Sequence[ScreenColumn], width: int, *, brief: bool
    ) -> Iterator[Text]:
        if program := own_program(self.analysis.experiment):
            yield _plain(f"Command: {program}", "dim")
        if settings := guest_settings(self.analysis):
            yield _plain(settings, "dim")
        if not self.advice:
            floors = any(column.head == NOISE for column in columns)
            yield from reading(found, self.analysis, floors=floors)
        yield from footnote_lines(footnotes, self.analysis, width, brief=brief)
        yield from decisions(self.analysis)
        yield from next_lines(self.analysis, width, FEWER_STEPS if brief else MOST)


def wrapped(lines: Iterable[Text], console: Console, options: ConsoleOptions) -> Iterator[Text]:
    """The lines, none wider than the screen and none with trailing spaces."""
    for text in lines:
        for line in text.wrap(console, options.max_width) or [Text()]:
            line.rstrip()
            yield line


def heading(analysis: Analysis) -> Iterator[Text]:
    """What was measured, where and when, and what applies to all figures."""
    run = head(analysis)
    where, when, *facts = run.facts
    kvm = ", guests on KVM" if analysis.experiment.boots and not analysis.emulated else ""
    yield Text.assemble((printable(run.name), "bold"), (printable(f" {where}{kvm}"), "dim"))
    facts = [fact for fact in facts if fact != "complete"]
    yield Text.assemble(printable(run.id), (printable(f"  {' · '.join((*facts, when))}"), "dim"))
    if run.banner:
        yield Text.assemble(
            ("EMULATED: ", "bold yellow"), (printable(run.banner.replace(NOT_A_COST, SHORTLY_NOT_A_COST)), "yellow")
        )
    elif (below := hypervisor_below(analysis.experiment)) is not None:
        yield _plain(f"The host is itself a VM (under {below}): its VM is a nested one already.", "yellow")


def next_lines(analysis: Analysis, width: int, most: int = MOST) -> Iterator[Text]:
    """Up to `most` next steps: each command with its purpose, on a second line if one is too short."""
    steps, head = next_steps(analysis)[:most], "Next: "
    longest = max(len(command) for command, _ in steps)
    fits = all(len(head) + longest + 2 + len(what) <= width for _, what in steps)
    for number, (command, what) in enumerate(steps):
        start = " " * len(head) if number else head
        if fits:
            yield Text.assemble(start, (command.ljust(longest), "bold"), f"  {what}")
        else:
            yield from (Text.assemble(start, (command, "bold")), Text(f"{' ' * 8}{what}"))


def _columns(found: Summary, footnotes: Footnotes, analysis: Analysis, width: int) -> Sequence[ScreenColumn]:
    """As many columns as fit; none without figures."""
    if not found.figures:
        return []
    rows = [amounts(figure.metric, figure.medians) for figure in found.figures]
    names = [_plain(f"{_cut(figure.label)}{footnotes.of_row(figure)}") for figure in found.figures]
    labels = ScreenColumn((), names, "left")
    units = ScreenColumn((), [Text(unit, style="dim") for unit, _ in rows], "left")
    sides = analysis.sides
    marks = [footnotes.of_costs(figure) for figure in found.figures]
    costs = [_cost_column(found, place, [row[place] for row in marks], sides) for place in range(len(found.contrasts))]
    medians = [
        ScreenColumn(_head(SHORT[place.layer], place, sides), [_plain(texts[number] or "–") for _, texts in rows])
        for number, place in enumerate(found.places)
    ]
    main = costs if sides else costs[:MAIN]
    noise = [ScreenColumn(NOISE, [_floor(figure) for figure in found.figures])] if found.floors else []
    layouts = (
        [labels, *medians, units, *costs, *noise],
        [labels, *medians, units, *costs],
        [labels, *medians, units, *main, *noise],
        [labels, *medians, units, *main],
        [labels, *medians[:2], units, *main],
        [labels, *main],
    )
    return next((layout for layout in layouts if _width(layout) <= width), layouts[-1])


def _floor(figure: KeyFigure) -> Text:
    """The cost of a guest against itself, without a sign: 80 columns have room for it then."""
    text = "–" if figure.floor is None else format_cost(figure.floor).estimate.lstrip("+")
    return _plain(text, "dim")


def _grid(columns: Sequence[ScreenColumn]) -> Iterator[Text]:
    """The lines of the heads, followed by those of the cells."""
    for line in range(max(len(column.head) for column in columns)):
        heads = [column.head[line] if line < len(column.head) else "" for column in columns]
        if any(heads):
            yield _joined(columns, [Text(head, style="yellow" if head == EMULATED else "bold") for head in heads])
    for number in range(len(columns[0].cells)):
        yield _joined(columns, [column.cells[number] for column in columns])


def _configurations(found: Summary, footnotes: Footnotes, analysis: Analysis, width: int) -> Iterator[Text]:
    """The other configurations of each layer against its first one with the same number of machines, the fastest
    first, by the plan's first primary metrics.
    """
    chosen = [figure for figure in found.figures if figure.primary] or found.figures
    metrics = [figure.metric for figure in chosen[:MOST_METRICS]]
    own = [members for (_, side, _), members in groups(analysis.experiment.treatments).items() if not side]
    for first, *others in sorted(own, key=lambda members: list(SHORT).index(members[0].layer)):
        layer = first.layer
        costs = {
            other.name: [contrast(analysis, m, first.name, other.name, floor_of(m, analysis)) for m in metrics]
            for other in others
        }
        known = {name: row for name, row in costs.items() if any(row)}
        if not known:
            continue
        order = sorted(known, key=lambda name: _first_cost(known[name]))
        names = at_most(MOST_CONFIGURATIONS, order)
        rows = [known[name] for name in order[:MOST_CONFIGURATIONS]]
        against = f"{SHORT[layer]} configurations, against {printable(first.name)}"
        yield Text.assemble((against, "bold"), (printable(_unsaid(first, others, width - len(against))), "dim"))
        columns = [ScreenColumn((), [_plain(name) for name in names], "left")]
        for place, metric in enumerate(metrics):
            found_here = [row[place] for row in rows]
            marks = [footnotes.marks(one.notes) if one else "" for one in found_here]
            cells = [*_cost_cells(found_here, marks), *[Text()] * (len(names) - len(rows))]
            emulated = EMULATED if any(one and one.emulated for row in rows for one in row) else ""
            columns.append(ScreenColumn((label(metric), emulated), cells, "center"))
        layouts = [columns[:count] for count in range(len(columns), 1, -1)]
        yield from _grid(next((layout for layout in layouts if _width(layout) <= width), layouts[-1]))
        yield Text()


def _unsaid(first: Treatment, others: Sequence[Treatment], width: int) -> str:
    """The levels of a baseline in which others differ and that its name does not have, if they fit into the line."""
    levels = [f"{name}={first.levels.get(name)}" for name in varying((first, *others)) if name in first.levels]
    text = ", ".join(level for level in levels if level not in first.name.split())
    return f" ({text})" if text and len(text) + 3 <= width else ""


def _first_cost(costs: Sequence[Contrast | None]) -> float:
    """The sort key of configurations; those without such a cost come last."""
    first = costs[0]
    return first.ratio if first and math.isfinite(first.ratio) else math.inf


def _head(name: str, place: ShownConfiguration, sides: Sides | None) -> tuple[str, ...]:
    side = shortened(sides.other if place.side else sides.own, LONGEST_SIDE) if sides else ""
    return (name, side, EMULATED if place.emulated else "")


def _cost_column(found: Summary, number: int, marks: Sequence[str], sides: Sides | None) -> ScreenColumn:
    """Estimates, intervals and the numbers of footnotes."""
    by_name = {one.treatment: one for one in found.places}
    low, high = (by_name[name] for name in found.contrasts[number])
    contrasts = [figure.contrasts[number] for figure in found.figures]
    cells = _cost_cells(contrasts, marks)
    name = f"{SHORT[high.layer]} costs" if low.layer == high.layer else cost_name(low.layer, high.layer)  # or two sides
    emulated = any(one.emulated for one in contrasts if one)
    return ScreenColumn(_head(name, replace(high, emulated=emulated), sides), cells, "center")


def _cost_cells(found: Sequence[Contrast | None], marks: Sequence[str]) -> list[Text]:
    """Estimates below each other, with intervals and numbers of footnotes beside them."""
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
    text, interval = ("same", cost.interval_in_unit) if found.same else (cost.estimate, cost.interval)
    return _plain(text, "bold" if clear else style), _plain(f"{interval}{marks}", style)


def _joined(columns: Sequence[ScreenColumn], texts: Sequence[Text]) -> Text:
    line = Text(" ").join(column.line(text) for column, text in zip(columns, texts, strict=True))
    line.rstrip()
    return line


def _width(columns: Sequence[ScreenColumn]) -> int:
    return sum(column.width for column in columns) + len(columns) - 1


def _cut(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _plain(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)
