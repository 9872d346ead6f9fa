"""What each choice gives up: its features, and how each was tested. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.design.features import Feature, State
from vmtax.recommend import DISK, ChoiceKind, named
from vmtax.recommend.give_ups import Group, Reason
from vmtax.report.document import (
    Cell,
    Column,
    Detail,
    Folded,
    Item,
    List,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    name_cell,
)


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """A feature as a column of tables."""

    name: str
    heading: str
    words: str  # what a choice that has it does

    @property
    def term(self) -> str:
        """The heading, and its name in --needs."""
        return self.heading if self.heading == self.name else f"{self.heading} ({self.name})"


def section(kind: ChoiceKind, groups: Sequence[Group], reasons: Sequence[Reason], reading: str) -> Section:
    """A row for each group; `reading`: how to read the table."""
    features = kind.features.items()
    columns = [FeatureColumn(name, kind.headings.get(name, name), words) for name, words in features]
    heads = (Column("choices"), *(Column(column.heading) for column in columns))
    items = tuple(Item(f"{one.feature.name}: {sentence(one)}") for one in reasons)
    return Section(
        "give-ups" if kind is DISK else f"give-ups-{kind.workloads[0]}",
        kind.gives_up,
        (
            Table(kind.gives_up, heads, tuple(map(_row, groups)), "gives", detail=Detail.FULL),
            Paragraph(reading, "note", Detail.FULL),
            Sentences(tuple((column.term, (column.words,)) for column in columns), Detail.FULL),
            Folded("Why, and how each was tried", (List(items),), Detail.FULL),
        ),
        kind.gives_up,
    )


def _row(group: Group) -> Row:
    cells = (
        Cell((Span(shown(state)),), why(found), style=state.replace(" ", "-"))
        for state, found in zip(group.states, group.tests, strict=True)
    )
    return Row((Cell(name_cell(about(group), holds(group)).pieces, more=group.treatments), *cells))


def shown(state: State) -> str:
    """A state in a cell."""
    return state if state in ("yes", "no") else "?"


def about(group: Group) -> str:
    """Their name, or what they have in common: "12 with disk.format=raw"."""
    many = len(group.treatments)
    if many == 1:
        return group.treatments[0]
    if group.common is None:
        return f"{many}: {named(group.treatments)}"
    common = [f"{factor}={' or '.join(map(str, levels))}" for factor, levels in group.common]
    return f"{many} with {', '.join(common)}" if common else f"all {many}"


def holds(group: Group) -> str:
    """Whom it holds: "the choice", "among them the choice and the runner-up", ""."""
    inside = ["the choice"] * group.has_choice + ["the runner-up"] * group.has_runner_up
    return "among them " * (len(group.treatments) > 1 and bool(inside)) + " and ".join(inside)


def why(found: Sequence[Feature]) -> str:
    """How a feature was tested, and the answer; several are joined."""
    return "; ".join(dict.fromkeys(filter(None, (_source(feature.words, feature.how) for feature in found))))


def sentence(reason: Reason) -> str:
    """Such as "no, 18 of 24: a block special file (stat)"."""
    many = len(reason.treatments)
    about = reason.treatments[0] if many == 1 else "all" if many == reason.of else f"{many} of {reason.of}"
    source = _source(reason.feature.words, reason.feature.how)
    return f"{reason.feature.state}, {about}{f': {source}' if source else ''}"


def _source(words: str, how: str) -> str:
    return f"{words} ({how})" if words and how else words or how
