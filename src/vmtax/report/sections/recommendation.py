"""The recommendation, and what each choice gives up, as every report words them. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.analysis.scores import ENOUGH, Score
from vmtax.analysis.weight_profiles import OWN
from vmtax.core.errors import CannotDo
from vmtax.core.records import Better, Metric, Treatment
from vmtax.core.units import format_percent
from vmtax.design.features import FEATURES, Feature, State
from vmtax.recommend import (
    Advice,
    Option,
    advise,
    durability,
    members_of,
    named,
    ways,
)
from vmtax.recommend.constraints import Features
from vmtax.report.document import (
    Block,
    Cell,
    Code,
    Column,
    Detail,
    Folded,
    Heading,
    Inline,
    Item,
    List,
    Paragraph,
    Row,
    Section,
    Sentences,
    Span,
    Table,
    listed,
    name_cell,
    value_cell,
)
from vmtax.report.sections.scores import score_name
from vmtax.report.view import cost_of
from vmtax.report.wording.treatment_labels import varying
from vmtax.workload.fio import Disk
from vmtax.workload.words import spoken

TITLE = "Recommendation"
GIVE_UPS = "What each choice gives up"
READING = "What is durable is as documented; all else was tried on this host. “?” was not tried, and counts as missing."
MOST_GROUPS = 4  # rows of what is given up, where there is little room
FEWEST = 2  # choices; of one there is nothing to say


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    """One feature, as tables head it."""

    name: str
    heading: str
    words: str  # what a disk that has it does

    @property
    def term(self) -> str:
        """The heading, and what --needs calls it."""
        return self.heading if self.heading == self.name else f"{self.heading} ({self.name})"


_HEADINGS = {"pause-on-full": "pauses", "migration": "migrates"}
COLUMNS = tuple(FeatureColumn(name, _HEADINGS.get(name, name), words) for name, words in FEATURES.items())


@dataclass(frozen=True, slots=True)
class FeatureCell:
    """One feature of one group."""

    feature: str
    state: State
    why: str  # how it was found out, and in whose words; several are joined

    @property
    def shown(self) -> str:
        return "?" if self.state == "not tried" else self.state


@dataclass(frozen=True, slots=True)
class Group:
    """Treatments whose cells are alike: one row of the table."""

    about: str  # their name, or what they have in common: "12 with disk.format=raw"
    treatments: tuple[str, ...]
    cells: tuple[FeatureCell, ...]  # in the order of FEATURES
    holds: str  # "the choice", "among them the choice and the runner-up", ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Where one answer is from."""

    feature: str
    state: State
    how: str
    words: str
    treatments: str  # "all", "12 of 24", or one name

    @property
    def sentence(self) -> str:
        """ "no, 18 of 24: a block special file (stat)"."""
        why = _source(self.words, self.how)
        return f"{self.state}, {self.treatments}{f': {why}' if why else ''}"


@dataclass(frozen=True, slots=True)
class Rated:
    """One choice that meets what is needed."""

    treatment: str
    slower: tuple[str, str]  # amount and interval, against the fastest; ("", "") where there is none
    dearer: tuple[str, str]  # host CPU for one operation
    lacks: str  # features that it is not shown to have
    standing: str  # "the choice", "Pareto set", "tie"
    emulated: bool


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The section of a run that found out what its disks can do."""

    advice: Advice
    groups: tuple[Group, ...]  # those that give up least come first
    reasons: tuple[Reason, ...]
    rated: tuple[Rated, ...]  # fastest first
    emulated: frozenset[str]
    metric: str | None  # name of what speed is; None: the mean of the plan's primary ones
    apply: str  # the command that prints every form
    rows: tuple[tuple[str, tuple[Feature, ...]], ...]  # (treatment, its features), of all that were looked at
    columns: tuple[FeatureColumn, ...] = COLUMNS

    @property
    def second(self) -> str:
        """The runner-up and what it costs, as a sentence; "" without one."""
        other = self.advice.runner_up
        if other is None:
            return ""
        doubt = " (emulated)" if other.treatment in self.emulated else ""
        return f"{other.treatment}: {self.advice.runner_up_words}{doubt}."

    @property
    def refused(self) -> tuple[str, ...]:
        """What was not considered, a sentence for each reason."""
        return tuple(
            f"{names[0] if len(names) == 1 else f'{len(names)} choices ({named(names)})'}: {why}."
            for why, names in self.advice.refusals()
        )

    @property
    def put_in(self) -> str:
        """What of the forms is to be replaced; "" where nothing is recommended."""
        form = self.advice.export
        if form is None:
            return ""
        size = f"the size {form.size} (a volume that holds a file is a tenth larger), " if form.backing else ""
        return (
            "The disk that was measured was temporary and is gone. These are yours to put in: the path"
            f" {form.path}, {size}and what is written in capital letters."
        )


def recommendation(analysis: Analysis) -> Recommendation | None:
    """None where there is nothing to choose between: see `why_not`. Speed is the score of the weight profile, else that
    for reads and writes, else the plan's first primary metric of the disk.
    """
    if why_not(analysis):
        return None
    features = analysis.disk_features
    members = members_of(analysis.experiment.treatments)
    numbers, metric, called = _speed(analysis, members)
    advice = advise(analysis, _needs(analysis, members), numbers=numbers, metric=metric, called=called)
    looked_at = [treatment for treatment in members if features.get(treatment.name)]
    return Recommendation(
        advice,
        tuple(_groups(looked_at, features, advice)),
        tuple(_reasons(looked_at, features)),
        tuple(_rated(option, advice, analysis.emulated) for option in advice.options),
        analysis.emulated,
        metric,
        _again(analysis),
        tuple((t.name, features[t.name]) for t in analysis.experiment.treatments if t.name in features),
    )


def sections(told: Recommendation) -> tuple[Section, Section]:
    """What to choose and why, then what each choice gives up."""
    rated = _rated_table(told) if len(told.rated) > 1 else ()
    advice = tuple(Paragraph(note, "warning") for note in told.advice.notes)
    blocks = (*advice, Sentences(tuple(_sentences(told))), *_forms(told), *rated)
    return Section("advice", TITLE, blocks, TITLE), _give_ups(told)


def _sentences(told: Recommendation) -> Iterator[tuple[str, tuple[Inline, ...]]]:
    choice = told.advice.choice
    if choice is not None:
        doubt = (Span(" "), Span("emulated", "emulated")) if choice.treatment in told.emulated else ()
        yield "Choose", ((Span(choice.treatment, "strong"), *doubt),)
    for label, texts in (("Because", told.advice.reasons), ("Second", (told.second,)), ("Left out", told.refused)):
        if any(texts):
            yield label, texts
    if choice is not None:
        yield "Apply it", ((Span(told.apply, "code"),),)


def _forms(told: Recommendation) -> Iterator[Block]:
    """The choice in every form."""
    if told.advice.export is None:
        return
    blocks: list[Block] = [Paragraph(told.put_in, "note")]
    for form in told.advice.export.forms():
        blocks.append(Heading(form.heading))
        if form.text:
            blocks.append(Code(tuple(form.text), form.language))
        if form.notes:
            blocks.append(listed(form.notes))
    summary = "How to apply it: QEMU, libvirt, Proxmox VE, and the commands that make it"
    yield Folded(summary, tuple(blocks), Detail.FILE)


def _rated_table(told: Recommendation) -> Iterator[Block]:
    """Every choice that meets what is needed."""
    words = ("not shown to have", "standing")
    heads = ("choice", "time", "host CPU", *words)
    rows = tuple(
        Row(
            (
                name_cell(one.treatment),
                value_cell(*one.slower, emulated=one.emulated),
                value_cell(*one.dearer, emulated=one.emulated),
                value_cell(one.lacks),
                value_cell(one.standing),
            )
        )
        for one in told.rated
    )
    reading = (
        f"Speed is {told.advice.by}. Both costs are against the fastest choice. In the Pareto set, no other choice is"
        " shown to be better in one thing and no worse in all."
    )
    table = Table("Choices that meet the needs", tuple(Column(h, h in words) for h in heads), rows, "settings rated")
    summary = f"All {len(told.rated)} choices that meet what is needed, the fastest first"
    yield Folded(summary, (Paragraph(reading, "note", Detail.FILE), table), Detail.FULL)


def _give_ups(told: Recommendation) -> Section:
    rows = tuple(
        Row(
            (
                Cell(name_cell(group.about, group.holds).pieces, more=group.treatments),
                *(Cell((Span(c.shown),), c.why, style=c.state.replace(" ", "-")) for c in group.cells),
            )
        )
        for group in told.groups
    )
    columns = (Column("choices"), *(Column(column.heading) for column in told.columns))
    reasons = tuple(Item(f"{one.feature}: {one.sentence}") for one in told.reasons)
    return Section(
        "give-ups",
        GIVE_UPS,
        (
            Table(GIVE_UPS, columns, rows, "gives", MOST_GROUPS),
            Paragraph(READING, "note"),
            Sentences(tuple((column.term, (column.words,)) for column in told.columns), Detail.FULL),
            Folded("Why, and how each was tried", (List(reasons),), Detail.FULL),
        ),
        "What is given up",
    )


def to_apply(told: Recommendation, width: int = 80) -> list[str]:
    """The choice in every form, as text; raises CannotDo where nothing is recommended."""
    found = told.advice
    if found.choice is None or found.export is None:
        raise CannotDo(" ".join((*found.notes, *told.refused)))
    meets = f", which meets {', '.join(found.needs)}" if found.needs else ""
    head = f"{found.choice.treatment}{meets}: chosen by {found.by}."
    wrapped = (textwrap.wrap(part, width - 2, break_long_words=False) for part in (head, *found.notes, told.put_in))
    return [*(f"# {line}" for part in wrapped for line in part), "", *found.export.lines(width)]


def why_not(analysis: Analysis) -> str:
    """Why no disk can be recommended, in one line; "" where one can."""
    run, members = analysis.experiment.id, members_of(analysis.experiment.treatments)
    if ways(members) < FEWEST:
        return f"run {run} has fewer than {FEWEST} ways to keep a guest's disk: nothing to choose between"
    if not any(analysis.disk_features.get(treatment.name) for treatment in members):
        return f"run {run} did not find out what its disks can do: measure again with `give_ups: true` in the plan"
    return ""


def _needs(analysis: Analysis, members: Sequence[Treatment]) -> tuple[str, ...]:
    """Those of the requirements; without them durable, where it is known of all."""
    asked, features = analysis.requirements, analysis.disk_features
    states = {durability(features.get(t.name, ()), t).state for t in members}
    return asked.needs or (() if asked.accept_loss or "not tried" in states else ("durable",))


def _speed(analysis: Analysis, members: Sequence[Treatment]) -> tuple[Numbers, str | None, str]:
    """(a score's numbers, the metric's name, what it is called); the name is None where none is known."""
    wanted = f"score.{analysis.profile.name}" if analysis.profile else "score.both"
    score = _score(analysis, wanted, members[0].layer)
    if score is not None:
        numbers = {(score.metric, name): rounds for name, rounds in score.numbers.items()}
        called = f"the storage score for {score_name(score)}"
        if score.measured < ENOUGH:
            share = format_percent(score.measured)
            called += f" (of whose weight only {share} was measured: too little to be an answer)"
        return numbers, wanted, called
    if analysis.profile is not None:
        return {}, wanted, wanted
    measured = {metric.name: metric for metric, _ in analysis.boot_numbers}
    primary = [measured[name] for name in analysis.criteria.primary if name in measured]
    first: Metric | None = next((metric for metric in primary if metric.workload == Disk.name), None)
    return ({}, first.name, spoken(first)) if first else ({}, None, "")


def _score(analysis: Analysis, wanted: str, layer: str) -> Score | None:
    scores = (score for score in analysis.scores.found if score.metric.name == wanted)
    return next((score for score in scores if score.ranking.layer == layer and not score.ranking.side), None)


def _groups(looked_at: Sequence[Treatment], features: Features, found: Advice) -> Iterator[Group]:
    """Those that give up least first; of equals, in the plan's order."""
    alike: dict[tuple[State, ...], list[Treatment]] = {}
    for treatment in looked_at:
        states = {feature.name: feature.state for feature in features[treatment.name]}
        alike.setdefault(tuple(states.get(name, "not tried") for name in FEATURES), []).append(treatment)
    for answers, members in sorted(alike.items(), key=lambda entry: -entry[0].count("yes")):
        names = tuple(treatment.name for treatment in members)
        held = {"the choice": found.choice, "the runner-up": found.runner_up}
        inside = [what for what, option in held.items() if option and option.treatment in names]
        yield Group(
            _about(members, looked_at),
            names,
            tuple(
                FeatureCell(name, state, _why(name, names, features))
                for name, state in zip(FEATURES, answers, strict=True)
            ),
            "among them " * (len(names) > 1 and bool(inside)) + " and ".join(inside),
        )


def _about(members: Sequence[Treatment], field: Sequence[Treatment]) -> str:
    """What these alone of all have in common, where that can be said by the levels of each factor; else their names."""
    if len(members) == 1:
        return members[0].name
    levels = {factor: _levels(factor, members) for factor in varying(field)}
    alike = [t for t in field if all(t.levels.get(factor) in kept for factor, kept in levels.items())]
    if len(alike) > len(members):
        return f"{len(members)}: {named([treatment.name for treatment in members])}"
    told = [
        f"{factor}={' or '.join(map(str, kept))}"
        for factor, kept in levels.items()
        if len(kept) < len(_levels(factor, field))
    ]
    return f"{len(members)} with {', '.join(told)}" if told else f"all {len(members)}"


def _levels(factor: str, members: Sequence[Treatment]) -> list[str | None]:
    return list(dict.fromkeys(treatment.levels.get(factor) for treatment in members))


def _why(name: str, treatments: Sequence[str], features: Features) -> str:
    found = dict.fromkeys(_of(name, treatments, features))
    return "; ".join(dict.fromkeys(filter(None, (_source(feature.words, feature.how) for feature in found))))


def _source(words: str, how: str) -> str:
    return f"{words} ({how})" if words and how else words or how


def _of(name: str, treatments: Iterable[str], features: Features) -> Iterator[Feature]:
    return (feature for one in treatments for feature in features[one] if feature.name == name)


def _reasons(looked_at: Sequence[Treatment], features: Features) -> Iterator[Reason]:
    """Feature by feature, what is given up first."""
    order: tuple[State, ...] = ("no", "not tried", "yes")
    for name in FEATURES:
        alike: dict[Feature, list[str]] = {}
        for treatment in looked_at:
            for feature in _of(name, [treatment.name], features):
                alike.setdefault(feature, []).append(treatment.name)
        for feature, names in sorted(alike.items(), key=lambda entry: order.index(entry[0].state)):
            many = "all" if len(names) == len(looked_at) else f"{len(names)} of {len(looked_at)}"
            about = names[0] if len(names) == 1 else many
            yield Reason(name, feature.state, feature.how, feature.words, about)


def _rated(option: Option, found: Advice, emulated: Collection[str]) -> Rated:
    against = option.best
    remarks = {
        "the choice": option == found.choice,
        "the runner-up": option == found.runner_up,
        "Pareto set": option.in_pareto_set,
        "tie": option.tie and option is not found.options[0],
    }
    return Rated(
        option.treatment,
        _figures("higher", against.slower, against.slower_low, against.slower_high, "fastest"),
        _figures("lower", against.dearer, against.dearer_low, against.dearer_high, "as the fastest"),
        ", ".join(name for name in FEATURES if name not in option.features) or "nothing",
        ", ".join(what for what, true in remarks.items() if true),
        option.treatment in emulated,
    )


def _figures(better: Better, middle: float | None, low: float | None, high: float | None, none: str) -> tuple[str, str]:
    if middle is None:
        return "–", ""
    return cost_of(better, middle, low, high) if middle or low is not None else (none, "")


def _again(analysis: Analysis) -> str:
    """The command line that recommends the same and prints every form."""
    profile, asked = analysis.profile, analysis.requirements
    words = ["vmtax", "show", analysis.experiment.id, "--apply"]
    if profile is not None:
        own = ",".join(f"{weight.metric}={weight.weight:g}" for weight in profile.weights)
        words += ["--weights", own] if profile.name == OWN else ["--for", profile.name]
    if asked.needs:
        words += ["--needs", ",".join(asked.needs)]
    if asked.accept_loss:
        words.append("--accept-loss")
    return shlex.join(words)
