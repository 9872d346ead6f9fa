"""Which factors decide, in words and as a table of their shares. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.analysis.deciding import Deciding, Level, Term
from vmtax.report.document import Cell, Column, Detail, Row, Span, Table, name_cell
from vmtax.report.wording.cost import cost, cost_of
from vmtax.workload.words import spoken

MOST_NAMED = 4  # terms per sentence


def shares_table(deciding: Deciding, title: str) -> Table:
    """A bar for each factor's share, and the costs of its levels."""
    columns = (
        Column("factor"),
        Column("share of what differs", words=True),
        Column(f"its levels: {cost(deciding.metric)}", words=True),
    )
    return Table(f"Shares: {title}", columns, tuple(map(_share_row, deciding.terms)), "shares", detail=Detail.PAGE)


def _share_row(term: Term) -> Row:
    share = f"{share_text(term.share)}{'' if term.shown else ', not distinguishable'}"
    levels: list[Span] = []
    for level in term.levels:
        effect = level.effect
        amount, interval = cost_of(effect.metric.better, effect.overhead, effect.low, effect.high)
        levels += (Span(f"{level_name(level)} "), Span(amount, "strong" if level.shown else "plain"))
        levels.append(Span(f"{interval}\n", "interval"))
    cells = (name_cell(term.name), Cell((Span(share),), bar=term.share), Cell(tuple(levels)))
    return Row(cells, Detail.PAGE, "" if term.shown else "doubtful")


def level_name(level: Level) -> str:
    """ "writethrough against none", "writethrough with ide"."""
    return " with ".join(level.effect.levels) + (f" against {level.first}" if level.first else "")


def share_text(share: float) -> str:
    """A share of the whole: "71 %", "2.4 %", "under 0.1 %"."""
    if share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.0f} %" if 0.0995 <= share < 0.995 or share >= 1 else f"{100 * share:.1f} %"


def sentence(found: Deciding) -> str:
    """ "disk.cache decides 71 % of ...; disk.filesystem 2 %, not distinguishable."."""
    alike = " or ".join(found.inseparable)
    doubt = f" Any of it may as well be {alike}: its levels go with those of the others." if alike else ""
    return f"{'; '.join(_parts(found))}.{doubt}"


def _parts(found: Deciding) -> Iterator[str]:
    what = spoken(found.metric)
    shown, rest = [term for term in found.terms if term.shown], [term for term in found.terms if not term.shown]
    if not shown:
        yield f"No factor is shown to matter to {what}: {'; '.join(_doubtful(rest))}"
        return
    lead, *others = shown
    yield f"{lead.name} decides {share_text(lead.share)} of {what}"
    yield from (f"{term.name} {share_text(term.share)}" for term in others[:MOST_NAMED])
    if len(others) > MOST_NAMED:
        yield f"and {len(others) - MOST_NAMED} more, below"
    yield from _doubtful(rest)


def _doubtful(terms: Sequence[Term]) -> Iterator[str]:
    """Terms without a shown effect, named whatever their share."""
    texts = [f"{term.name} {share_text(term.share)}" for term in terms[:MOST_NAMED]]
    more = f" and {len(terms) - MOST_NAMED} more" if len(terms) > MOST_NAMED else ""
    if texts:
        yield f"{', '.join(texts)}{more}, not distinguishable"
