"""GitHub-flavoured Markdown, for issues and wikis: findings, one table for each workload, warnings, the machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment
from vmtax.core.units import format_duration, format_value, printable
from vmtax.design.interleaved import Sides
from vmtax.report.render.markdown_text import escaped as _escaped
from vmtax.report.render.markdown_text import row as _row
from vmtax.report.render.markdown_text import text as _text
from vmtax.report.sections import iterations
from vmtax.report.sections.noise import noise_floor
from vmtax.report.sections.rankings import Ranked, decided, factor_tables, ranked
from vmtax.report.sections.requirements import GIVE_UPS, recommendation_if_known
from vmtax.report.sections.requirements import READING as GIVE_UPS_READING
from vmtax.report.sections.requirements import TITLE as ADVICE
from vmtax.report.sections.robustness import HEADS, READING, robustness
from vmtax.report.sections.scores import TITLE, storage
from vmtax.report.sections.summary import Part, banner, findings, headline, machine_name
from vmtax.report.view import Effect, Number, Section, View, cost, flat_facts, label, view

if TYPE_CHECKING:
    from vmtax.report.sections.recommendation import Recommendation

FACTS = {  # of each machine, as people call them; the HTML and the JSON have all
    "cpu_model": "CPU",
    "cpus_online": "CPUs",
    "memory_bytes": "memory",
    "os": "system",
    "kernel_release": "kernel",
    "hypervisor": "hypervisor",
}
MOST_PLACES = 3  # of a warning


def render_markdown(analysis: Analysis) -> str:
    """The whole document. What was measured or named by somebody is text in it, never markup."""
    run, shown, scored = analysis.experiment, view(analysis), storage(analysis)
    parts = (
        _head(shown),
        _findings(analysis),
        *_advised(recommendation_if_known(analysis)),
        *(_section(section, analysis.sides) for section in shown.sections),
        *(_ranking(table) for table in (*ranked(analysis), *factor_tables(analysis))),
        *(_ranking(table) for table in (*scored.tables, *scored.more)),
        _listed(TITLE, map(_text, scored.lines)),
        _robustness(analysis),
        _listed("Noise floor", (_text(floor.text) for floor in noise_floor(analysis))),
        _listed("Decisions", map(_text, decided(analysis))),
        _listed("Warnings", _warnings(shown)),
        _listed("Boots and iterations", map(_text, iterations.lines(analysis))),
        _listed("What was not measured, and why", map(_text, run.notes)),
        _machines(run),
        ("## Repeat it", "", *_code_block(run.command)),
    )
    told = [lines for lines in map(list, parts) if lines]
    return "\n".join(line for lines in told for line in (*lines, "")).rstrip("\n") + "\n"


def _head(shown: View) -> Iterator[str]:
    run, count = shown.analysis.experiment, shown.analysis.rounds
    machine = machine_name(run)
    took = f"took {format_duration(run.finished - run.created)}" if run.finished else "not finished"
    date = f"{datetime.fromtimestamp(run.created, UTC):%Y-%m-%d %H:%M} UTC"
    rounds = f"{count} round{'' if count == 1 else 's'}"
    facts = (run.name, f"on {shown.place}{f' ({machine})' if machine else ''}", date, rounds, took, run.state, run.id)
    yield "# What virtualization costs"
    yield ""
    yield _text(", ".join(facts))
    if run.ended:
        yield ""
        yield _text(f"Ended {run.ended}.")
    warning = banner(shown.analysis)
    if warning:
        yield ""
        yield f"> **Emulated.** {_text(warning)}"


def _findings(analysis: Analysis) -> Iterator[str]:
    yield "## What was found"
    yield ""
    over = headline(analysis)
    if over:
        yield from (_text(over), "")
    found = findings(analysis)
    for finding in found:
        yield f"- {_text(finding.resource)}: {''.join(map(_part, finding.parts))}"
    if not found:
        yield "Nothing can be compared yet: no round has a result on two sides."


def _part(part: Part) -> str:
    """Its own spaces are kept, for they join it to the next."""
    return {"strong": f"**{part.text}**", "interval": part.text}.get(part.kind) or _escaped(printable(part.text))


def _section(section: Section, sides: Sides | None) -> Iterator[str]:
    """Medians, and overheads with their intervals; then the other settings, where there are any."""
    if section.between and sides:
        yield f"## {_text(f'{section.between_title}: {sides.other} against {sides.own}')}"
        yield ""
        yield from _table_head("metric and treatment", sides.own, sides.other, "overhead")
        for between in section.between:
            name = " ".join(filter(None, (between.case, label(between.metric))))
            what = f"{_text(name)} ({cost(between.metric)}), {_text(between.treatment)}"
            yield _row(what, _number(between.own), _number(between.other), _effect(between.effect))
        yield ""
    if not section.told_between:
        yield from _layers(section)
    yield from _settings(section)


def _layers(section: Section) -> Iterator[str]:
    yield f"## {_text(section.title)}"
    yield ""
    contrasts = (f"{high} vs {low}" for low, high in section.contrasts)
    yield from _table_head("metric", *section.layers, *contrasts, "rounds")
    for case in section.cases:
        for row in case.rows:
            name = " ".join(filter(None, (case.name, label(row.metric))))
            what = f"{_text(name)} ({cost(row.metric)})"
            yield _row(what, *map(_number, row.medians), *map(_effect, row.effects), row.rounds)
    if section.note:
        yield ""
        yield _text(section.note)


def _settings(section: Section) -> Iterator[str]:
    settings = [
        (case.name, row.metric, setting.treatment, setting.medians[place], setting.effects[place])
        for case in section.cases
        for setting in case.settings
        for place, row in enumerate(case.rows)
    ]
    if settings:
        yield ""
        yield from _table_head("metric and treatment", "median", "against the first of its layer")
        for case_name, metric, treatment, median, effect in settings:
            name = " ".join(filter(None, (case_name, label(metric))))
            what = f"{_text(name)} ({cost(metric)}), {_text(treatment)}"
            yield _row(what, _number(median), _effect(effect))


def _advised(told: Recommendation | None) -> Iterator[Iterable[str]]:
    """What to choose and why, what each choice gives up, and how to apply the choice."""
    if told is None:
        return
    yield _recommended(told)
    yield _give_ups(told)
    if told.advice.export is not None:
        yield ("## How to apply it", "", _text(told.put_in))
        for form in told.advice.export.forms():
            block = [*_code_block(*form.text, language=form.language)] if form.text else []
            block += [""] if form.text and form.notes else []
            yield (f"### {_text(form.heading)}", "", *block, *(f"- {_text(note)}" for note in form.notes))


def _recommended(told: Recommendation) -> Iterator[str]:
    found = told.advice
    yield from (f"## {ADVICE}", "")
    for note in found.notes:
        yield from (f"> {_text(note)}", "")
    if found.choice is not None:
        doubt = " (emulated)" if found.choice.treatment in told.emulated else ""
        yield from (f"Choose **{_text(found.choice.treatment)}**{doubt}.", "")
    yield from (f"- {_text(reason)}" for reason in found.reasons)
    if told.second:
        yield f"- Second: {_text(told.second)}"
    yield from (f"- Left out: {_text(line)}" for line in told.refused)


def _give_ups(told: Recommendation) -> Iterator[str]:
    yield from (f"## {GIVE_UPS}", "")
    yield from _table_head("choices", *(column.heading for column in told.columns))
    for group in told.groups:
        held = f" ({group.holds})" if group.holds else ""
        yield _row(f"{_text(group.about)}{held}", *(cell.shown for cell in group.cells))
    yield from ("", _text(GIVE_UPS_READING), "")
    for column in told.columns:
        yield f"- {column.term}: {_text(column.words)}"
        yield from (f"  - {_text(one.sentence)}" for one in told.reasons if one.feature == column.name)


def _robustness(analysis: Analysis) -> Iterator[str]:
    found = robustness(analysis)
    if found:
        yield from ("## Beside the primary figures", "")
        yield from _table_head("contrast", *HEADS[1:])
        for line in found:
            doubt = " (emulated)" if line.emulated else ""
            yield _row(_text(f"{line.what}{doubt}"), *map(_text, line.cells))
        yield from ("", _text(READING))


def _ranking(found: Ranked) -> Iterator[str]:
    yield f"## {_text(found.heading)}"
    yield ""
    if found.sentence:
        yield from (_text(found.sentence), "")
    scored = any(line.value for line in found.lines)
    yield from _table_head("", *(("score",) if scored else ()), "overhead", "standing")
    for line in found.lines:
        doubt = "emulated" if line.emulated else ""
        amount = line.amount if line.plain else f"**{line.amount}**"
        value = (" ".join(filter(None, (line.value, doubt))),) if scored else ()
        words = " ".join(filter(None, (amount, line.interval, doubt)))
        yield _row(_text(line.what), *value, words, _text(line.remark))
    yield ""
    yield _text(found.reading)


def _warnings(shown: View) -> Iterator[str]:
    for warning in shown.warnings:
        more = f", and {len(warning.places) - MOST_PLACES} more" if len(warning.places) > MOST_PLACES else ""
        yield f"{_text(warning.text)} ({_text('; '.join(warning.places[:MOST_PLACES]))}{more})"


def _machines(experiment: Experiment) -> Iterator[str]:
    yield "## The machines"
    yield ""
    known = {path: dict(flat_facts(facts)) for path, facts in experiment.facts.items()}
    told = [name for name in FACTS if any(name in facts for facts in known.values())]
    yield _row("machine", *(FACTS[name] for name in told))
    yield _row("---", *("---" for _ in told))
    for path, facts in known.items():
        yield _row(_text(path), *(_fact(name, facts.get(name, "")) for name in told))


def _fact(name: str, value: str) -> str:
    return format_value(float(value), "B") if name == "memory_bytes" and value.isdecimal() else _text(value)


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    items = [f"- {line}" for line in lines]
    if items:
        yield from (f"## {title}", "", *items)


def _table_head(*names: str) -> Iterator[str]:
    yield _row(*map(_text, names))
    yield _row("---", *("---:" for _ in names[1:]))


def _number(number: Number | None) -> str:
    return "–" if number is None else f"{number.text}{' emulated' if number.emulated else ''}"


def _effect(effect: Effect | None) -> str:
    if effect is None:
        return "–"
    estimate = effect.text if effect.unclear else f"**{effect.text}**"
    return f"{estimate} {effect.interval}{' emulated' if effect.emulated else ''}"


def _code_block(*lines: str, language: str = "") -> tuple[str, ...]:
    """A fenced block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}", *map(printable, lines), fence
