"""What `vmtax show`, the end of `vmtax run` and `vmtax runs` print, as rich renderables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vmtax.analysis.analysis import Analysis
from vmtax.core.units import format_duration, printable
from vmtax.report.sections import iterations
from vmtax.report.sections.noise import noise_floor
from vmtax.report.sections.rankings import Ranked, decided, factor_tables, ranked
from vmtax.report.sections.requirements import GIVE_UPS, recommendation_if_known
from vmtax.report.sections.requirements import READING as GIVE_UPS_READING
from vmtax.report.sections.requirements import TITLE as ADVICE
from vmtax.report.sections.robustness import HEADS, READING, robustness
from vmtax.report.sections.scores import TITLE, Storage, storage
from vmtax.report.sections.summary import CONFIDENCE, banner, findings, headline
from vmtax.report.view import Effect, Number, Row, Section, View, cost, split, view

if TYPE_CHECKING:
    from vmtax.report.sections.recommendation import Recommendation
    from vmtax.store import ExperimentSummary

WIDE = 120  # columns from which on an estimate and its interval share a line
MOST_WARNINGS = 8  # shown; the report has all
MOST_SETTINGS = 8  # shown of each case unless all are asked for; the report has all
STATE_STYLES = {"complete": "green", "running": "cyan", "interrupted": "yellow", "failed": "red", "damaged": "red"}


def render(analysis: Analysis, full: bool = False) -> RenderableType:
    """The whole answer: what was found, the tables behind it, what to doubt and how to repeat it.

    Each case is told by one metric of each kind of cost (rate, time, CPU), with `full` by all it has.
    """
    run, shown = analysis.experiment, view(analysis)
    parts = [
        _head(shown),
        *_banner(analysis),
        _findings(analysis),
        *_advised(recommendation_if_known(analysis), full),
        *(_Section(shown, section, full) for section in shown.sections),
        *_reading(shown),
        *_rankings((*ranked(analysis, primary_only=not full), *factor_tables(analysis)), full),
        *_storage(storage(analysis), full),
        *(_robustness(analysis) if full else ()),
        *_lines("Noise floor, the A/A of this run", (floor.text for floor in noise_floor(analysis))),
        *_lines("Decisions", decided(analysis)),
        *_lines("Warnings", _warnings(shown)),
        *_lines("Boots and iterations", iterations.lines(analysis) if full else ()),
        *_lines("Not measured, and other notes", run.notes),
        *_lines("Repeat it with", (run.command,)),
    ]
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts[:-1]), *parts[-1:])


def runs_table(runs: Iterable[ExperimentSummary]) -> RenderableType:
    """One line for each experiment of the store."""
    table = _table("id", "host", "state", "took", "rounds", "treatments", "trials")
    table.columns[0].no_wrap = True  # to be copied
    for column in table.columns[3:]:
        column.justify = "right"
    for run in runs:
        took = "" if run.finished is None else format_duration(run.finished - run.created)
        failed = Text(f"{run.failed} failed\n", style="red") if run.failed else Text()
        table.add_row(
            _plain(run.id),
            _plain(run.host),
            Text(run.state, style=STATE_STYLES[run.state]),
            _plain(took),
            str(run.rounds),
            str(run.treatments),
            failed + Text(f"{run.ok} ok"),
        )
    return table if table.row_count else Text("no runs yet: `vmtax run` makes the first")


@dataclass(frozen=True, slots=True)
class _Section:
    """The tables of one workload; numbers are stacked where the screen is narrow."""

    view: View
    section: Section
    full: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= WIDE
        if self.section.between:
            yield self._between(wide)
        if not self.section.told_between:
            yield from (Text(),) if self.section.between else ()
            yield self._layers(wide)
        if self.section.note:
            yield _plain(self.section.note, "dim")
        if any(case.settings for case in self.section.cases):
            yield Text()
            yield self._settings(wide)

    def _layers(self, wide: bool) -> Table:
        # Nested against host follows from the two others: it is the one to leave out where columns are few.
        contrasts = self.section.contrasts if wide else self.section.contrasts[:2]
        table = _table(self.section.title, *self.section.layers, *(f"{high} vs {low}" for low, high in contrasts))
        for column in table.columns[1:]:
            column.justify = "right"
        below = " " if wide and not self.view.analysis.emulated else "\n"
        for case in self.section.cases:
            if case.name:
                table.add_row(_plain(case.name, "bold"))
            for row in case.rows if self.full else _one_of_each_cost(case.rows):
                medians = (_number(number, wide) for number in row.medians)
                effects = (_effect(effect, wide) for effect in row.effects[: len(contrasts)])
                what = Text.assemble(printable(split(row.metric)[2]), below, (cost(row.metric), "dim"))
                table.add_row(Padding(what, (0, 0, 0, 1 if case.name else 0)), *medians, *effects)
        return table

    def _between(self, wide: bool) -> Table:
        """The other side against the plan's own, by the metrics that the layers are told by."""
        sides = self.view.analysis.sides
        assert sides is not None
        chosen = {
            row.metric
            for case in self.section.cases
            for row in (case.rows if self.full else _one_of_each_cost(case.rows))
        }
        table = _table(f"{self.section.between_title}, sides", sides.own, sides.other, "other vs own")
        for column in table.columns[1:]:
            column.justify = "right"
        metric = None
        for row in self.section.between:
            if row.metric not in chosen:
                continue
            if row.metric != metric:
                metric = row.metric
                what = f"{split(metric)[2]}, {cost(metric)}"
                table.add_row(Text.assemble((printable(f"{row.case} ".lstrip()), "bold"), what))
            numbers = _number(row.own, wide), _number(row.other, wide)
            table.add_row(Padding(_plain(row.treatment), (0, 0, 0, 1)), *numbers, _effect(row.effect, True))
        return table

    def _settings(self, wide: bool) -> Table:
        """Other levels against the first treatment of their layer, by the first metric of each case."""
        table = _table(f"{self.section.title}, settings", "median", "overhead", "against")
        table.columns[1].justify = table.columns[2].justify = "right"
        for case in self.section.cases:
            metric = case.rows[0].metric
            table.add_row(
                Text.assemble((printable(f"{case.name} ".lstrip()), "bold"), f"{split(metric)[2]}, {cost(metric)}")
            )
            for setting in case.settings if self.full else case.settings[:MOST_SETTINGS]:
                name = Padding(_plain(setting.treatment), (0, 0, 0, 1))
                number, effect = _number(setting.medians[0], wide), _effect(setting.effects[0], True)
                table.add_row(name, number, effect, _plain(setting.baseline))
            if not self.full and len(case.settings) > MOST_SETTINGS:
                table.add_row(Text(f" and {len(case.settings) - MOST_SETTINGS} more", style="dim"))
        return table


def _one_of_each_cost(rows: Sequence[Row]) -> Iterable[Row]:
    """The first row of each kind of cost: IOPS and bandwidth tell the same, so do mean and percentiles mostly."""
    return {cost(row.metric): row for row in reversed(rows)}.values().__reversed__()


def _head(shown: View) -> Text:
    run, count = shown.analysis.experiment, shown.analysis.rounds
    rounds = f"{count} round{'' if count == 1 else 's'}"
    took = f"took {format_duration(run.finished - run.created)}" if run.finished else "not finished"
    facts = (f"on {shown.place}", rounds, run.state, _date(run.created), took)
    head = Text.assemble((printable(run.name), "bold"), "  ", (printable(" · ".join(facts)), "dim"))
    if run.ended:
        head.append(f"\nended {printable(run.ended)}", style="dim")
    return head.append(f"\n{printable(run.id)}", style="dim")


def _banner(analysis: Analysis) -> Iterator[RenderableType]:
    text = banner(analysis)
    if text:
        grid = Table.grid(padding=(0, 2))
        grid.add_row(Text("EMULATED", style="bold yellow"), _plain(text, "yellow"))
        yield grid


def _findings(analysis: Analysis) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for finding in findings(analysis):
        pieces = [(printable(part.text), "bold" if part.kind == "strong" else "") for part in finding.parts]
        grid.add_row(_plain(finding.resource, "bold"), Text.assemble(*pieces))
    if not grid.row_count:
        return Text("Nothing can be compared yet: no round has a result on two sides.")
    over = headline(analysis)
    return Group(_plain(over), Text(), grid) if over else grid


def _reading(shown: View) -> Iterator[RenderableType]:
    if any(section.contrasts for section in shown.sections):
        yield Text(
            f"Medians over rounds; overheads with their {CONFIDENCE} interval in brackets. Above 0 is a cost; what kind"
            " of cost stands with each metric. An interval that includes 0 shows no difference. The report has"
            " every metric, --json every comparison.",
            style="dim",
        )


def _advised(told: Recommendation | None, full: bool) -> Iterator[RenderableType]:
    """What to choose and why, then what each choice gives up; `full`: all choices, and every answer's source."""
    if told is None:
        return
    found = told.advice
    grid = Table.grid(padding=(0, 2))
    if found.choice is not None:
        doubt = _emulated(found.choice.treatment in told.emulated, " ")
        grid.add_row(Text("Choose", style="bold"), Text.assemble((printable(found.choice.treatment), "bold"), *doubt))
    for head, lines in (("Because", found.reasons), ("Second", (told.second,)), ("Left out", told.refused)):
        for number, line in enumerate(filter(None, lines)):
            grid.add_row(Text("" if number else head, style="bold"), _plain(line))
    if found.choice is not None:
        grid.add_row(Text("Apply it", style="bold"), _plain(told.apply))
    yield Group(Text(ADVICE, style="bold"), *(_plain(note, "yellow") for note in found.notes), grid)
    if full:
        yield _rated(told)
    yield Group(_give_ups(told), _plain(GIVE_UPS_READING, "dim"), _legend(told))
    reasons = (f"{one.feature}: {one.sentence}" for one in told.reasons if one.state != "yes" or full)
    yield from _lines("Why", reasons)


def _give_ups(told: Recommendation) -> Table:
    table = _table(*(column.letter for column in told.columns), GIVE_UPS)
    for group in told.groups:
        cells = (Text(cell.shown, style="" if cell.state == "yes" else "bold") for cell in group.cells)
        held = f" ({group.holds})" if group.holds else ""
        table.add_row(*cells, Text.assemble(printable(group.about), (held, "bold")))
    return table


def _legend(told: Recommendation) -> Table:
    grid = Table.grid(padding=(0, 1))
    for column in told.columns:
        grid.add_row(Text(column.letter, style="bold"), Text(f"{column.name}: {column.words}", style="dim"))
    return grid


def _rated(told: Recommendation) -> Table:
    """Every choice that meets what is needed."""
    table = _table("Choices that meet the needs", "slower", "host CPU", "not shown to have", "standing")
    for one in told.rated:
        slower, dearer = (
            Text.assemble(amount, f"\n{interval}" if interval else "", *_emulated(one.emulated, "\n"))
            for amount, interval in (one.slower, one.dearer)
        )
        table.add_row(_plain(one.treatment), slower, dearer, one.lacks, one.standing)
    return table


def _robustness(analysis: Analysis) -> Iterator[RenderableType]:
    """Means, stalls and order of the primary contrasts: the contrast, and its figures below it."""
    found = robustness(analysis)
    if not found:
        return
    table = _table("Beside the primary figures", *HEADS[1:])
    for line in found:
        table.add_row(_plain(line.what), *map(_plain, line.cells))
        if line.emulated:
            table.add_row("", Text("emulated", style="yellow"))
    yield table
    yield Text(READING, style="dim")


def _rankings(found: Sequence[Ranked], full: bool) -> Iterator[RenderableType]:
    """Every table, and how to read them below the last of those that are read alike."""
    for number, table in enumerate(found):
        yield Group(_plain(table.sentence), _ranking(table, full)) if table.sentence else _ranking(table, full)
        if table.reading not in [later.reading for later in found[number + 1 :]]:
            yield Text(table.reading, style="dim")


def _storage(found: Storage, full: bool) -> Iterator[RenderableType]:
    """The storage scores: that for reads and writes and that of the profile, or all; then what they rest on."""
    yield from _rankings((*found.tables, *(found.more if full else ())), full)
    yield from _lines(TITLE, found.lines)


def _ranking(found: Ranked, full: bool) -> RenderableType:
    """The first lines of a ranking, or all."""
    scored = any(line.value for line in found.lines)
    table = _table(found.heading, *(("score",) if scored else ()), "overhead", "standing")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for line in found.lines if full else found.lines[:MOST_SETTINGS]:
        amount = Text.assemble(
            (line.amount, "dim" if line.plain else "bold"), f" {line.interval}" if line.interval else ""
        )
        amount.append_text(Text.assemble(*_emulated(line.emulated, "\n")))
        value = (Text.assemble(line.value, *_emulated(line.emulated, "\n")),) if scored else ()
        table.add_row(_plain(line.what), *value, amount, line.remark)
    if not full and len(found.lines) > MOST_SETTINGS:
        table.add_row(Text(f" and {len(found.lines) - MOST_SETTINGS} more", style="dim"))
    return table


def _warnings(shown: View) -> Iterator[str]:
    for warning in shown.warnings[:MOST_WARNINGS]:
        more = f", and {len(warning.places) - 1} more" if len(warning.places) > 1 else ""
        yield f"{warning.text} ({warning.places[0]}{more})"
    if len(shown.warnings) > MOST_WARNINGS:
        rest = len(shown.warnings) - MOST_WARNINGS
        yield f"and {rest} more: `vmtax report {shown.analysis.experiment.id}` has all"


def _lines(title: str, lines: Iterable[str]) -> Iterator[RenderableType]:
    rows = [_plain(line) for line in lines]
    if rows:
        grid = Table.grid(padding=(0, 1))
        for row in rows:
            grid.add_row(" ", row)
        yield Group(Text(title, style="bold"), grid)


def _table(*heads: str | Text) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head if isinstance(head, Text) else _plain(head), vertical="top", overflow="fold")
    return table


def _number(number: Number | None, wide: bool) -> Text:
    if number is None:
        return Text("–", style="dim")
    return Text.assemble(number.text, *_emulated(number.emulated, " " if wide else "\n"))


def _effect(effect: Effect | None, wide: bool) -> Text:
    if effect is None:
        return Text("–", style="dim")
    estimate = (effect.text, "dim" if effect.unclear else "bold")
    interval = effect.interval if wide or effect.low is not None else effect.interval.replace("few ", "few\n")
    return Text.assemble(estimate, " " if wide else "\n", interval, *_emulated(effect.emulated, "\n"))


def _emulated(emulated: bool, joint: str) -> tuple[tuple[str, str], ...]:
    return ((f"{joint}emulated", "yellow"),) if emulated else ()


def _plain(text: str, style: str = "") -> Text:
    """`text` as it is: neither markup nor escape sequences in it are obeyed."""
    return Text(printable(text), style=style)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
