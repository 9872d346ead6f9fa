"""The output of `vmtax claim`: a published claim, what the rules find in it, and figures of a run beside it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from vmtax.analysis.analysis import Analysis
from vmtax.claims.beside import OwnFigure, OwnRatio, own_figures, own_ratios
from vmtax.claims.checked import Checked, CheckedNumber
from vmtax.claims.finding import RuleFinding, Verdict
from vmtax.claims.rules import RULES
from vmtax.claims.schema import ClaimTable, PublishedClaim
from vmtax.claims.words import printed_text, text_of
from vmtax.core.units import count_of, format_value
from vmtax.report.document import (
    Block,
    Cell,
    CheckOutcome,
    Column,
    Document,
    Kind,
    Outcomes,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    listed,
    name_cell,
    value_cell,
)
from vmtax.report.sections.published import figure_text, printed_share, share
from vmtax.report.sections.run import FACTS
from vmtax.report.wording.facts import fact_in_words, flat_facts

KINDS: Mapping[Verdict, Kind] = {"wrong": "bad", "doubtful": "doubt", "right": "good"}
READING = (
    "Share: the speed as a share of that of the other configuration; for CPU time, the share of the time. Direction:"
    " none if a share is 100 % within half a per cent. The hardware and the software are others, so compare the shares,"
    " not the figures."
)


def check(name: str, found: Checked) -> Document:
    """What the rules find."""
    claim = found.claim
    blocks: list[Block] = [_about(claim)]
    if found.numbers:
        blocks.append(_numbers(found.numbers))
    if found.findings:
        blocks.append(Outcomes(tuple(map(_outcome, found.findings))))
    blocks.append(Paragraph(verdict(found), "headline"))
    if found.silent:
        names = ", ".join(f"{rule.number} {rule.name}" for rule in RULES if rule.number in found.silent)
        blocks.append(Paragraph(f"Not looked at, because the file has no data for it: {names}.", "note"))
    return Document(None, (Section("claim", f"{name}: {found.verdict}", tuple(blocks)),))


def verdict(found: Checked) -> str:
    """The answer in one sentence."""
    counts = [(sum(one.verdict == kind for one in found.findings), kind) for kind in ("wrong", "doubtful")]
    shown = [f"{count} {kind}" for count, kind in counts if count]
    right = sum(number.verdict == "right" for number in found.numbers)
    numbers = count_of(len(found.numbers), "printed number")
    follows = (
        f"; {right} of {numbers} {'follows' if right == 1 else 'follow'} from the figures" if found.numbers else ""
    )
    return f"{' and '.join(shown) or 'nothing wrong or doubtful found'}{follows}"


def show(name: str, claim: PublishedClaim) -> Document:
    """The claim as it was published."""
    tables = (_published_table(table) for table in claim.tables)
    blocks = (_about(claim), *tables, *_setups(claim))
    return Document(None, (Section("claim", name, blocks),))


def beside(name: str, claim: PublishedClaim, analysis: Analysis) -> Document:
    """Figures of a run beside those of the claim."""
    figures, ratios = own_figures(claim, analysis), own_ratios(claim.tables, analysis)
    run = analysis.experiment.id
    sections = [Section("claim", f"{name} beside run {run}", (_about(claim),))]
    if ratios:
        note = Paragraph(READING, "note")
        sections.append(Section("ratios", "", (*_by_table(ratios), *_in_words(ratios), note)))
    if figures:
        sections.append(Section("figures", "", (_figures(figures),)))
    if not (ratios or figures):
        nothing = f"Run {run} has no configuration and metric of this claim: vmtax claim run {name}"
        sections.append(Section("nothing", "", (Paragraph(nothing, "warning"),)))
    if claim.scaled:
        sections.append(Section("scaled", "What is done differently", (listed(claim.scaled),)))
    sections.append(Section("machines", "", (_machines(claim, analysis),)))
    return Document(None, tuple(sections))


def claims(entries: Iterable[tuple[str, Checked]]) -> Document:
    """All of them, with their verdicts."""
    rows = tuple(
        Row(
            (
                name_cell(name),
                _verdict_cell(found.verdict),
                value_cell(found.claim.plan or ""),
                value_cell(_source(found.claim)),
            )
        )
        for name, found in entries
    )
    heads = (Column("claim"), Column("verdict", words=True), Column("plan", words=True), Column("source", words=True))
    return Document(None, (Section("claims", "", (Table("Published claims", heads, rows, "wrapped"),)),))


def _about(claim: PublishedClaim) -> Paragraph:
    url = f" {claim.url}" if claim.url else ""
    return Paragraph(f"{_source(claim)}.{url}", "note")


def _source(claim: PublishedClaim) -> str:
    return f"{claim.source}, {claim.year}" if claim.year and str(claim.year) not in claim.source else claim.source


def _verdict_cell(verdict: Verdict) -> Cell:
    return Cell((Span(verdict, KINDS[verdict]),))


def _numbers(numbers: Sequence[CheckedNumber]) -> Table:
    heads = ("comparison", "printed", "from the figures", "on the other base")
    rows = []
    for one in numbers:
        base = f", of {one.derived.base}" if one.derived.base else ""
        about = "" if one.derived.says == "exactly" else f"{one.derived.says} "
        word, unit = one.derived.word, one.table.unit
        other = one.recomputed.other
        exact = text_of(one.recomputed.stated.value, word, unit)
        cells = (
            value_cell(f"{about}{printed_text(one.printed, word, unit)}"),
            Cell((Span(exact, "bad" if one.verdict == "wrong" else "plain"),)),
            value_cell(text_of(other.value, word, unit) if other else ""),
        )
        rows.append(Row((name_cell(f"{one.derived.of}: {word}{base}"), *cells)))
    return Table("Printed numbers", tuple(map(Column, heads)), tuple(rows), "settings")


def _outcome(finding: RuleFinding) -> CheckOutcome:
    where = f"{finding.where}: " if finding.where else ""
    return CheckOutcome(Span(finding.verdict, KINDS[finding.verdict]), finding.rule, f"{where}{finding.text}")


def _published_table(table: ClaimTable) -> Table:
    """Each figure with all its digits, and what the source says of it."""
    title = f"{table.title} ({table.better} is better)"
    heads = (Column(title), Column("published"), Column("said of it", words=True))  # Markdown has no other title
    rows = tuple(
        Row((name_cell(name), value_cell(_with_digits(table, name)), value_cell("; ".join(_said(table, name)))))
        for name in table.rows
    )
    return Table(title, heads, rows, "wrapped")


def _with_digits(table: ClaimTable, name: str) -> str:
    row = table.rows[name]
    figure = row.printed or row.figure
    return row.shown or f"{figure.text or f'{figure.value:.6g}'} {table.unit}"


def _said(table: ClaimTable, name: str) -> Iterator[str]:
    for one in table.derived:
        if one.of == name and one.printed is not None:
            about = "" if one.says == "exactly" else f"{one.says} "
            base = f" of {one.base}" if one.word == "share" else f", of {one.base}" if one.base else ""
            yield f"{about}{printed_text(one.printed, one.word, table.unit)} {one.word}{base}"


def _setups(claim: PublishedClaim) -> Iterator[Block]:
    if claim.setup:
        rows = tuple(Row((name_cell(name), value_cell(_in_line(facts)))) for name, facts in claim.setup.items())
        yield Table("Set-ups", (Column("configuration"), Column("what is known", words=True)), rows, "wrapped")


def _in_line(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def _by_table(ratios: Sequence[OwnRatio]) -> Iterator[Table]:
    heads = ("configuration", "published", "printed as", "here", "interval", "direction", "inside")
    columns = tuple(Column(head, words=head in ("direction", "inside")) for head in heads)
    for (title, _), some in groupby(ratios, lambda one: (one.table.title, one.metric)):
        yield Table(title, columns, tuple(map(_ratio, some)), "settings")


def _ratio(one: OwnRatio) -> Row:
    interval = "" if one.low is None or one.high is None else f"{100 * one.low:.1f}–{100 * one.high:.1f}"
    words = {True: "same", False: "other", None: "none"}[one.same_direction]
    inside = {True: "yes", False: "no", None: "–"}[one.is_inside]
    published = one.derived.shown or share(one.published)
    cells = (published, printed_share(one.derived), share(one.own), interval, words, inside)
    name = name_cell(f"{one.derived.of}, of {one.derived.base}", emulated=one.emulated)
    return Row((name, *map(value_cell, cells)))


def _in_words(ratios: Sequence[OwnRatio]) -> Iterator[Paragraph]:
    known = [one.same_direction for one in ratios if one.same_direction is not None]
    inside = [one.is_inside for one in ratios if one.is_inside is not None]
    parts = [f"{sum(known)} of {count_of(len(known), 'comparison')} in the same direction"] if known else []
    parts += [f"{sum(inside)} of {len(inside)} published shares inside the interval here"] if inside else []
    if any(one.emulated for one in ratios):
        parts.append("guests were emulated here, so the shares say nothing about cost")
    if parts:
        yield Paragraph("; ".join(parts), "headline")


def _figures(figures: Sequence[OwnFigure]) -> Table:
    rows = tuple(
        Row(
            (
                name_cell(f"{one.table.title}: {one.name}", emulated=one.emulated),
                value_cell(figure_text(one.table, one.name)),
                value_cell(format_value(one.value, one.metric.unit)),
            )
        )
        for one in figures
    )
    return Table("Figures", (Column("configuration"), Column("published"), Column("here")), rows, "settings")


def _machines(claim: PublishedClaim, analysis: Analysis) -> Table:
    rows = [Row((name_cell(f"published: {name}"), value_cell(_in_line(facts)))) for name, facts in claim.setup.items()]
    here: dict[str, str] = {}
    for path, facts in analysis.experiment.facts.items():
        flat = dict(flat_facts({name: value for name, value in facts.items() if name in (*FACTS, "cpus_allowed")}))
        text = _in_line({FACTS[name]: fact_in_words(name, flat) for name in FACTS if name in flat})
        here.setdefault(text, path)  # several guests are alike
    rows += [Row((name_cell(f"here: {path}"), value_cell(text))) for text, path in here.items()]
    return Table("The machines", (Column("machine"), Column("what is known", words=True)), tuple(rows), "wrapped")
