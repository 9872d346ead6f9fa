"""The recommendation, and what each choice gives up, in words for all reports. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.analysis.scores import ENOUGH, Score
from vmtax.analysis.weight_profiles import OWN
from vmtax.core.errors import CannotDo
from vmtax.core.records import Better, Treatment
from vmtax.core.units import format_percent
from vmtax.design.features import Feature
from vmtax.design.topology import guest_count
from vmtax.recommend import DISK, KINDS, Advice, ChoiceKind, Option, advise, lines, members_of, named, ways
from vmtax.recommend.conditions import conditions
from vmtax.recommend.give_ups import Group, Reason, groups_of, reasons_of
from vmtax.report.document import (
    Block,
    Code,
    Column,
    Detail,
    Folded,
    Heading,
    Inline,
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
from vmtax.report.sections import give_ups
from vmtax.report.sections.choices import Choices
from vmtax.report.sections.scores import score_name
from vmtax.report.wording.cost import cost_of
from vmtax.workload.words import spoken

NO_COST = ("–", "")  # not measured
FEWEST = 2  # choices; a single one needs no recommendation


@dataclass(frozen=True, slots=True)
class Rated:
    """One choice that meets the needs."""

    treatment: str
    slower: tuple[str, str]  # amount and interval, against the fastest; ("", "") if there is none
    dearer: tuple[str, str]  # host CPU time per operation
    lacks: str  # features that it is not shown to have
    standing: str  # "the choice", "unbeaten", "tie"
    emulated: bool


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The sections about one kind of choice."""

    kind: ChoiceKind
    advice: Advice
    groups: tuple[Group, ...]  # groups that give up least come first
    reasons: tuple[Reason, ...]
    rated: tuple[Rated, ...]  # the best first
    emulated: frozenset[str]
    metric: str | None  # name of the metric that ranks them; None: a mean of several
    apply: str  # the command that prints every form
    rows: tuple[tuple[str, tuple[Feature, ...]], ...]  # (treatment, its features), for all that were checked
    table: Table | None  # the choice beside what the user has now

    @property
    def second(self) -> str:
        """The runner-up and its cost, as a sentence; "" if there is none."""
        other = self.advice.runner_up
        if other is None:
            return ""
        doubt = " (emulated)" if other.treatment in self.emulated else ""
        return f"{other.treatment}: {self.advice.runner_up_words}{doubt}."

    @property
    def refused(self) -> tuple[str, ...]:
        """What was not considered, one sentence per reason."""
        return tuple(
            f"{names[0] if len(names) == 1 else f'{len(names)} choices ({named(names)})'}: {why}."
            for why, names in self.advice.refusals()
        )

    @property
    def put_in(self) -> str:
        """Which placeholders in the forms must be replaced; "" if nothing is recommended."""
        return self.advice.export.put_in if self.advice.export else ""


def recommendations(analysis: Analysis) -> tuple[Recommendation, ...]:
    """One for each kind of choice that the run has; () if it has none."""
    found = (recommendation(analysis, kind) for kind in KINDS)
    return tuple(one for one in found if one is not None)


def recommendation(analysis: Analysis, kind: ChoiceKind = DISK) -> Recommendation | None:
    """None if there is no choice: see `why_not`. They are ranked by the score of the weight profile, or else by the
    kind's usual score or metric.
    """
    if why_not(analysis, kind):
        return None
    features = kind.looked_at(analysis)
    members = members_of(analysis.experiment.treatments)
    numbers, metric, called = _speed(analysis, kind, members)
    needs = [name for name in analysis.requirements.needs if name in kind.features]
    needed = needs or kind.usual_needs(analysis, members)
    advice = advise(analysis, needed, kind=kind, numbers=numbers, metric=metric, called=called)
    looked_at = [treatment for treatment in members if features.get(treatment.name)]
    return Recommendation(
        kind,
        advice,
        tuple(groups_of(kind, looked_at, features, advice)),
        tuple(reasons_of(kind, looked_at, features)),
        tuple(_rated(kind, option, advice, analysis.emulated) for option in advice.options),
        analysis.emulated,
        metric,
        _again(analysis),
        tuple((t.name, features[t.name]) for t in analysis.experiment.treatments if t.name in features),
        Choices(analysis, kind, advice, features, metric).table(),
    )


def sections(advised: Recommendation) -> tuple[Section, Section]:
    """What to choose and why, then what each choice gives up."""
    kind = advised.kind
    rated = _rated_table(advised) if len(advised.rated) > 1 else ()
    advice = tuple(Paragraph(note, "warning") for note in advised.advice.notes)
    table = () if advised.table is None else (advised.table,)
    brief, full = Sentences(tuple(_briefly(advised))), Sentences(tuple(_in_full(advised)), Detail.FULL)
    blocks = (*advice, *table, brief, full, *_forms(advised), *rated)
    id = "advice" if kind is DISK else f"advice-{kind.workloads[0]}"
    return Section(id, kind.title, blocks, kind.title), give_ups.section(
        kind, advised.groups, advised.reasons, kind.reading(dict(advised.rows))
    )


def _briefly(advised: Recommendation) -> Iterator[tuple[str, tuple[Inline, ...]]]:
    """The choice, what decided, and the command that applies it."""
    choice = advised.advice.choice
    if choice is not None:
        doubt = (Span(" "), Span("emulated", "emulated")) if choice.treatment in advised.emulated else ()
        yield "Choose", ((Span(choice.treatment, "strong"), *doubt),)
    if advised.advice.why:
        yield "Why", (advised.advice.why,)
    if choice is not None:
        yield "Apply it", ((Span(advised.apply, "code"),),)
    elif advised.refused:
        yield "Left out", advised.refused


def _in_full(advised: Recommendation) -> Iterator[tuple[str, tuple[Inline, ...]]]:
    choice = advised.advice.choice
    said = advised.advice.why  # above
    for label, texts in (
        ("Because", tuple(reason for reason in advised.advice.reasons if reason not in said)),
        ("Second", (advised.second,)),
        ("Left out", advised.refused if choice is not None else ()),
    ):
        if any(texts):
            yield label, texts


def _forms(advised: Recommendation) -> Iterator[Block]:
    """The choice in every form."""
    if advised.advice.export is None:
        return
    blocks: list[Block] = [Paragraph(advised.put_in, "note")]
    for form in advised.advice.export.forms():
        blocks.append(Heading(form.heading))
        if form.text:
            blocks.append(Code(tuple(form.text), form.language))
        if form.notes:
            blocks.append(listed(form.notes))
    summary = "How to apply it: QEMU, libvirt, Proxmox VE, and the commands that make it"
    yield Folded(summary, tuple(blocks), Detail.FILE)


def _rated_table(advised: Recommendation) -> Iterator[Block]:
    """Every choice that meets the needs."""
    words = ("lacks", "rank")
    costs = {
        advised.advice.speed: [one.slower for one in advised.rated],
        "host CPU": [one.dearer for one in advised.rated],
    }
    measured = [head for head in costs if {*costs[head]} != {NO_COST}]
    order = measured[::-1] if advised.advice.by_cpu else measured  # what ranks them comes first
    heads = ("choice", *order, *words)
    rows = tuple(
        Row(
            (
                name_cell(one.treatment),
                *(value_cell(*costs[head][place], emulated=one.emulated) for head in order),
                value_cell(one.lacks),
                value_cell(one.standing),
            )
        )
        for place, one in enumerate(advised.rated)
    )
    best = advised.advice.best
    ranked = f"{'Speed is' if best == 'fastest' else 'They are ranked by'} {advised.advice.by}"
    reading = (
        f"{ranked}. Costs are against the {best} choice. Unbeaten: no other choice is shown to be better"
        " in one thing and no worse in all."
    )
    table = Table("Choices that meet the needs", tuple(Column(h, h in words) for h in heads), rows, "settings rated")
    summary = f"All {len(advised.rated)} choices that meet what is needed, the {best} first"
    yield Folded(summary, (Paragraph(reading, "note", Detail.FILE), table), Detail.FULL)


def to_apply(advised: Recommendation, width: int = 80) -> list[str]:
    """The choice in every form, as text. Raises CannotDo if nothing is recommended."""
    found = advised.advice
    if found.choice is None or found.export is None:
        raise CannotDo(" ".join((*found.notes, *advised.refused)))
    meets = f", which meets {', '.join(found.needs)}" if found.needs else ""
    head = f"{found.choice.treatment}{meets}: chosen by {found.by}."
    wrapped = (textwrap.wrap(part, width - 2, break_long_words=False) for part in (head, *found.notes, advised.put_in))
    return [*(f"# {line}" for part in wrapped for line in part), "", *lines(found.export, width)]


def why_not(analysis: Analysis, kind: ChoiceKind = DISK) -> str:
    """Why no choice of this kind can be recommended, in one line; "" if one can."""
    run, members = analysis.experiment.id, members_of(analysis.experiment.treatments)
    if ways(kind, members) < FEWEST:
        return f"run {run} has fewer than {FEWEST} {kind.ways}: nothing to choose between"
    why = kind.why_not(analysis, members)
    return why and f"run {run} {why}"


def _speed(analysis: Analysis, kind: ChoiceKind, members: Sequence[Treatment]) -> tuple[Numbers, str | None, str]:
    """(numbers of a score, name of the metric, its name for people); the name is None if it is unknown."""
    profile = analysis.profile
    wanted = f"score.{profile.name}" if profile else kind.score
    score = _score(analysis, wanted, _at_conditions(analysis, kind, members))
    if score is not None:
        numbers = {(score.metric, name): rounds for name, rounds in score.numbers.items()}
        called = f"{kind.score_words} for {score_name(score)}"
        if score.measured < ENOUGH:
            share = format_percent(score.measured)
            called += f" (of whose weight only {share} was measured: too little to be an answer)"
        return numbers, wanted, called
    if profile is not None:
        return {}, wanted, wanted
    usual = kind.usual_metric(analysis)
    return ({}, usual.name, spoken(usual)) if usual else ({}, None, "")


def _at_conditions(analysis: Analysis, kind: ChoiceKind, members: Sequence[Treatment]) -> Treatment:
    """One of the guests between which is chosen."""
    left_out = conditions(kind, analysis.experiment.plan, members).left_out
    return next((member for member in members if member.name not in left_out), members[0])


def _score(analysis: Analysis, wanted: str, member: Treatment) -> Score | None:
    group = member.layer, "", guest_count(member)
    scores = (score for score in analysis.scores.found if score.metric.name == wanted)
    return next((s for s in scores if (s.ranking.layer, s.ranking.side, s.ranking.count) == group), None)


def _rated(kind: ChoiceKind, option: Option, found: Advice, emulated: Collection[str]) -> Rated:
    against = option.best
    remarks = {
        "the choice": option == found.choice,
        "the runner-up": option == found.runner_up,
        "unbeaten": option.in_pareto_set,
        "tie": option.tie and option is not found.options[0],
    }
    fastest, cheapest = (f"as the {found.best}", found.best) if found.by_cpu else (found.best, f"as the {found.best}")
    return Rated(
        option.treatment,
        _figures("higher", against.slower, against.slower_low, against.slower_high, fastest),
        _figures("lower", against.dearer, against.dearer_low, against.dearer_high, cheapest),
        ", ".join(name for name in kind.features if name not in option.features) or "nothing",
        ", ".join(what for what, true in remarks.items() if true),
        option.treatment in emulated,
    )


def _figures(better: Better, middle: float | None, low: float | None, high: float | None, none: str) -> tuple[str, str]:
    if middle is None:
        return NO_COST
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
