"""R10: labels and figures of one document do not contradict each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from vmtax.claims.figures import is_cut_off, is_rounded
from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.schema import ClaimTable, Mention, PublishedClaim


def check(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """Wrong if two rows have one label, if the text gives a row another figure or set-up, or another number of rows."""
    return over_tables(claim, _check)


def _check(table: ClaimTable) -> list[RuleFinding]:
    found = [*_duplicates(table), *(one for mention in table.mentions for one in _contradictions(table, mention))]
    if table.stated_rows is not None and table.stated_rows != len(table.rows):
        text = f"the text says {table.stated_rows} rows, the table has {len(table.rows)}"
        found.append(RuleFinding("R10", "wrong", place(table), text))
    return found


def _duplicates(table: ClaimTable) -> Iterator[RuleFinding]:
    by_label: dict[str, list[str]] = defaultdict(list)
    for name, row in table.rows.items():
        by_label[" ".join((row.label or name).casefold().split())].append(name)
    for names in by_label.values():
        if len(names) > 1:
            label = table.rows[names[0]].label or names[0]
            text = f"{len(names)} rows are called {label!r}, with {' and '.join(_figures(table, names))}"
            yield RuleFinding("R10", "wrong", place(table, names[-1]), text)


def _figures(table: ClaimTable, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield table.rows[name].figure.text or f"{table.rows[name].figure.value:.6g}"


def _contradictions(table: ClaimTable, mention: Mention) -> Iterator[RuleFinding]:
    row, own = table.rows[mention.row], table.setup_of(mention.row)
    if mention.setup is not None and mention.setup != own:
        yield RuleFinding(
            "R10", "wrong", place(table, mention.row), f"the text calls it {mention.setup}, the table {own}"
        )
    said = mention.value
    exact = row.printed or row.figure
    if said is not None and not (is_rounded(said, exact) or is_cut_off(said, exact)):
        text = f"the text says {said.text}, the table {exact.text or f'{exact.value:.6g}'}"
        yield RuleFinding("R10", "wrong", place(table, mention.row), text)
