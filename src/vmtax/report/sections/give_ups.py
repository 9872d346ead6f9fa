"""What each choice gives up: its features, and how each was tested. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.core.records import Treatment
from vmtax.design.features import Feature, State
from vmtax.design.topology import varying
from vmtax.recommend import DISK, Advice, Features, Kind, named
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

MOST_GROUPS = 4  # rows, if there is little room


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


@dataclass(frozen=True, slots=True)
class FeatureCell:
    """One feature of one group."""

    feature: str
    state: State
    why: str  # how it was tested, and the answer; several are joined

    @property
    def shown(self) -> str:
        return self.state if self.state in ("yes", "no") else "?"


@dataclass(frozen=True, slots=True)
class Group:
    """Treatments with the same cells: one row of the table."""

    about: str  # their name, or what they have in common: "12 with disk.format=raw"
    treatments: tuple[str, ...]
    cells: tuple[FeatureCell, ...]  # in the order of the kind's features
    holds: str  # "the choice", "among them the choice and the runner-up", ""


@dataclass(frozen=True, slots=True)
class Reason:
    """The source of an answer."""

    feature: str
    state: State
    how: str
    words: str
    treatments: str  # "all", "12 of 24", or one name

    @property
    def sentence(self) -> str:
        """Such as "no, 18 of 24: a block special file (stat)"."""
        why = _source(self.words, self.how)
        return f"{self.state}, {self.treatments}{f': {why}' if why else ''}"


def section(kind: Kind, groups: Sequence[Group], reasons: Sequence[Reason], reading: str) -> Section:
    """A row for each group; `reading`: how to read the table."""
    features = kind.features.items()
    columns = [FeatureColumn(name, kind.headings.get(name, name), words) for name, words in features]
    rows = tuple(
        Row(
            (
                Cell(name_cell(group.about, group.holds).pieces, more=group.treatments),
                *(Cell((Span(c.shown),), c.why, style=c.state.replace(" ", "-")) for c in group.cells),
            )
        )
        for group in groups
    )
    heads = (Column("choices"), *(Column(column.heading) for column in columns))
    items = tuple(Item(f"{one.feature}: {one.sentence}") for one in reasons)
    return Section(
        "give-ups" if kind is DISK else f"give-ups-{kind.workloads[0]}",
        kind.gives_up,
        (
            Table(kind.gives_up, heads, rows, "gives", MOST_GROUPS),
            Paragraph(reading, "note"),
            Sentences(tuple((column.term, (column.words,)) for column in columns), Detail.FULL),
            Folded("Why, and how each was tried", (List(items),), Detail.FULL),
        ),
        kind.gives_up,
    )


def groups_of(kind: Kind, looked_at: Sequence[Treatment], features: Features, found: Advice) -> Iterator[Group]:
    """Groups that give up least first; equal ones in the plan's order."""
    alike: dict[tuple[State, ...], list[Treatment]] = {}
    for treatment in looked_at:
        states = {feature.name: feature.state for feature in features[treatment.name]}
        alike.setdefault(tuple(states.get(name, "not tried") for name in kind.features), []).append(treatment)
    for answers, members in sorted(alike.items(), key=lambda entry: -entry[0].count("yes")):
        names = tuple(treatment.name for treatment in members)
        held = {"the choice": found.choice, "the runner-up": found.runner_up}
        inside = [what for what, option in held.items() if option and option.treatment in names]
        yield Group(
            _about(members, looked_at),
            names,
            tuple(
                FeatureCell(name, state, _why(name, names, features))
                for name, state in zip(kind.features, answers, strict=True)
            ),
            "among them " * (len(names) > 1 and bool(inside)) + " and ".join(inside),
        )


def _about(members: Sequence[Treatment], field: Sequence[Treatment]) -> str:
    """What only these have in common, if factor levels can express it; otherwise their names."""
    if len(members) == 1:
        return members[0].name
    levels = {factor: _levels(factor, members) for factor in varying(field)}
    alike = [t for t in field if all(t.levels.get(factor) in kept for factor, kept in levels.items())]
    if len(alike) > len(members):
        return f"{len(members)}: {named([treatment.name for treatment in members])}"
    common = [
        f"{factor}={' or '.join(map(str, kept))}"
        for factor, kept in levels.items()
        if len(kept) < len(_levels(factor, field))
    ]
    return f"{len(members)} with {', '.join(common)}" if common else f"all {len(members)}"


def _levels(factor: str, members: Sequence[Treatment]) -> list[str | None]:
    return list(dict.fromkeys(treatment.levels.get(factor) for treatment in members))


def _why(name: str, treatments: Sequence[str], features: Features) -> str:
    found = dict.fromkeys(_of(name, treatments, features))
    return "; ".join(dict.fromkeys(filter(None, (_source(feature.words, feature.how) for feature in found))))


def _source(words: str, how: str) -> str:
    return f"{words} ({how})" if words and how else words or how


def _of(name: str, treatments: Iterable[str], features: Features) -> Iterator[Feature]:
    return (feature for one in treatments for feature in features[one] if feature.name == name)


def reasons_of(kind: Kind, looked_at: Sequence[Treatment], features: Features) -> Iterator[Reason]:
    """Feature by feature, what is given up first."""
    order: tuple[State, ...] = ("no", "not tried", "not shown", "yes")
    for name in kind.features:
        alike: dict[Feature, list[str]] = {}
        for treatment in looked_at:
            for feature in _of(name, [treatment.name], features):
                alike.setdefault(feature, []).append(treatment.name)
        for feature, names in sorted(alike.items(), key=lambda entry: order.index(entry[0].state)):
            many = "all" if len(names) == len(looked_at) else f"{len(names)} of {len(looked_at)}"
            about = names[0] if len(names) == 1 else many
            yield Reason(name, feature.state, feature.how, feature.words, about)
