"""Rankings and effects of factors as tables, for all reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vmtax.analysis.deciding import Deciding
from vmtax.report.document import (
    Block,
    Column,
    Detail,
    Figure,
    Folded,
    Heading,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    name_cell,
    term,
    value_cell,
)
from vmtax.report.sections.factor_effects import sentence, shares_table
from vmtax.report.wording.rankings import Ranked

if TYPE_CHECKING:
    from vmtax.report.picture import Picture

MOST_SHOWN = 8  # rows of a table, if there is little room


def table(ranked: Ranked, first: str = "configuration", last: str = "rank") -> Table:
    """The lines of a ranking as a block."""
    scored = any(line.value for line in ranked.lines)
    columns = (Column(first), *((Column("score"),) if scored else ()), Column("cost"), Column(last, words=True))
    rows = tuple(
        Row(
            (
                name_cell(line.what),
                *((value_cell(line.value, emulated=line.emulated),) if scored else ()),
                value_cell(line.amount, line.interval, emulated=line.emulated, shown=not line.plain),
                value_cell(line.remark),
            )
        )
        for line in ranked.lines
    )
    return Table(ranked.heading, columns, rows, "settings", MOST_SHOWN)


def tables(ranked: Sequence[Ranked]) -> Iterator[Block]:
    """Each table below its heading; the explanation follows the last of those that share it."""
    for number, one in enumerate(ranked):
        yield Heading(one.heading, Detail.FILE)
        yield table(one)
        if one.reading not in [later.reading for later in ranked[number + 1 :]]:
            yield Paragraph(one.reading, "note")


def section(shown: Sequence[Ranked], pictures: Sequence[Picture]) -> Section | None:
    """`pictures`: one for each ranking, or none if they cannot be shown."""
    if not shown:
        return None
    if not pictures:
        return Section("ranking", "Ranking", tuple(tables(shown)), "Ranking")
    reading = (
        Span("The configurations of a "),
        term("layer"),
        Span(", best first, by each primary metric: how much each costs against the best, and what it gives (the "),
        term("median"),
        Span(
            "). The top set are those that no other is shown to beat; the chance of any false “beaten” in one ranking"
            " is 5 % at most. The scale is logarithmic: twice the cost is equally far everywhere."
        ),
    )
    blocks: list[Block] = [Paragraph(reading, "note")]
    for ranked, picture in zip(shown, pictures, strict=True):
        blocks += (Figure((picture,)), Folded("The same as a table", (table(ranked),)))
    return Section("ranking", "Ranking", tuple(blocks), "Ranking")


def effects_section(shown: Sequence[Ranked], decides: Sequence[Deciding]) -> Section | None:
    """Which factors decide; both sequences are about the same metrics and layers."""
    if not shown:
        return None
    reading = (
        Span("How much of the difference between configurations, within "),
        term("round", "rounds"),
        Span(
            ", each factor explains, and what its levels cost over all configurations with them. (Of the variance of"
            " logarithms: a factor that does twice as much weighs four times.) What is left is chance, from one "
        ),
        term("boot"),
        Span(
            " to the next. A factor is tested with all its levels at once, and the chance that any in one table is said"
            " to matter falsely is about 5 %; what that does not show is not distinguishable from one that does"
            " nothing. The "
        ),
        term("interval", "intervals"),
        Span(" are of one level each."),
    )
    blocks: list[Block] = [Paragraph(reading, "note", Detail.PAGE)]
    for ranked, deciding in zip(shown, decides, strict=True):
        blocks += (
            Heading(ranked.heading, Detail.FILE),
            Paragraph(sentence(deciding)),
            shares_table(deciding, ranked.heading),
        )
        if deciding.together:
            more = f"{deciding.together} pair{'' if deciding.together == 1 else 's'} of factors add"
            blocks.append(Paragraph(f"{more} next to nothing beyond what each does alone.", "note", Detail.PAGE))
        every = table(ranked, "level", "explains")
        blocks.append(Folded("Every effect, also of two factors together", (every,)))
    return Section("effects", "What decides", (*blocks, Paragraph(shown[0].reading, "note")), "What decides")
