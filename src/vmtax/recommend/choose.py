"""Choose one of a run's treatments, with reasons and a runner-up. Pure.

Factors that are no settings of the chosen part stay at the plan's baseline. Of the remaining choices, those that meet
the needs are kept; then the Pareto set of speed, host CPU and features; then the best by speed or by host CPU, as
`Figures` says. Choices may tie with the best, within what the plan calls the same, or seem to tie and not be
distinguishable from it: of these, the ones that are worse in the other of the two figures without an advantage are
removed. Features decide between the rest, then simplicity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.core.records import Treatment
from vmtax.core.units import format_percent
from vmtax.design.factors import USUAL_LEVELS, idle
from vmtax.design.stopping import count
from vmtax.recommend.card import CardKind
from vmtax.recommend.conditions import Conditions, conditions
from vmtax.recommend.disk import DiskKind
from vmtax.recommend.eligibility import eligible, failures, having, incomplete
from vmtax.recommend.kinds import ChoiceKind, Features, Figures, members_of
from vmtax.recommend.pareto import Distance, Scale, mean_costs, pareto_set, scale
from vmtax.recommend.records import Advice, Against, Option, Refused, amount, named

LACKING = {"no": "It gives up", "not tried": "Not tried", "not shown": "Not shown"}
DISK = DiskKind()
CARD = CardKind()
KINDS: tuple[ChoiceKind, ...] = (DISK, CARD)
EMULATED = "Everything here ran emulated: this shows how the recommendation works, not what to choose."
MORE_EMULATED = "Some of the choices ran emulated: {}. On real hardware the order may be different."


def advise(
    analysis: Analysis,
    needs: Sequence[str] | None = None,
    *,
    kind: ChoiceKind = DISK,
    numbers: Numbers | None = None,
    metric: str | None = None,
    called: str = "",
) -> Advice:
    """Choose among the run's guests of the outermost layer.

    They are ranked by `metric`, which may be one of `numbers` that no trial reported (a score), or by default as `kind`
    says. `needs`: required features of this kind; by default those of the requirements. `called`: the metric's name for
    people.
    """
    asked = analysis.requirements.needs if needs is None else needs
    needs = [name for name in asked if name in kind.features]
    known: Numbers = {**analysis.boot_numbers, **(numbers or {})}
    members = members_of(analysis.experiment.treatments)
    held = conditions(kind, analysis.experiment.plan, members)
    choices = [t for t in members if t.name not in held.left_out]
    figures = kind.figures(analysis, known, choices, metric)
    figures = replace(figures, by=called or figures.by)
    features = kind.looked_at(analysis)
    refused, left = eligible(kind, choices, features, needs, analysis.requirements.accept_loss)
    costs = mean_costs(known, figures.first, [t.name for t in left])
    few = incomplete(costs, failures(analysis.experiment.trials, figures.first))
    refused += [*few.items(), *((name, held.why) for name in held.left_out)]
    treatments = {t.name: t for t in left if t.name not in few}
    stage = _Stage(analysis, kind, features, tuple(needs), figures, tuple(Refused(*pair) for pair in refused), held)
    if not members:
        return stage.nothing("there is no guest in this run, so there is nothing to choose between.")
    if not figures.first:
        return stage.nothing(f"{figures.by} was not measured in this run; name a plan that measures the {kind.name}.")
    first = scale({name: costs[name] for name in treatments}, analysis.criteria.alpha)
    if first is None:
        return stage.nothing("no choice of this run is left; ask for less with --needs, or measure other choices.")
    beside = [m for m in having(known, list(treatments)) if m in figures.second]
    second = scale(mean_costs(known, beside, list(treatments)), first.alpha) if beside else None
    return stage.settled(treatments, first, second)


@dataclass(frozen=True, slots=True)
class _Stage:
    """What is known before the choices are compared."""

    analysis: Analysis
    kind: ChoiceKind
    features: Features
    needs: tuple[str, ...]
    figures: Figures
    refused: tuple[Refused, ...]
    held: Conditions

    @property
    def within(self) -> float:
        return self.analysis.criteria.same_within

    @property
    def accept_loss(self) -> bool:
        return self.analysis.requirements.accept_loss

    @property
    def members(self) -> list[Treatment]:
        return members_of(self.analysis.experiment.treatments)

    def nothing(self, why: str) -> Advice:
        notes = (f"No recommendation: {why}", *self.doubts([name for name, _ in self.refused]))
        return Advice(
            layer=self.members[0].layer if self.members else "",
            by=self.figures.by,
            by_cpu=self.figures.by_cpu,
            best=self.figures.best,
            speed=self.figures.speed,
            needs=self.needs,
            accept_loss=self.accept_loss,
            choice=None,
            why="",
            reasons=(),
            runner_up=None,
            runner_up_words="",
            options=(),
            refused=self.refused,
            notes=notes,
            same_within=self.within,
            export=None,
        )

    def settled(self, treatments: dict[str, Treatment], first: Scale, second: Scale | None) -> Advice:
        """`first`: the scale that ranks them; `second`: the other one of speed and host CPU."""
        features = {name: self.has(treatment) for name, treatment in treatments.items()}
        scales = [s for s in (first, second) if s is not None]
        chosen_from = frozenset(pareto_set(scales, features, first.order, self.within))
        options = tuple(
            Option(
                name,
                tuple(feature for feature in self.kind.features if feature in features[name]),
                unusual(self.kind, treatments[name]),
                self.against(name, first.order[0], first, second),
                name in chosen_from,
                self.ties(name, first),
            )
            for name in first.order
        )
        alike = [option for option in options if option.tie or self.seems_alike(option.treatment, first)]
        # They are equally good by the first scale, so the other one of speed and host CPU decides between them.
        wasteful = {option.treatment for option in alike if second and self.is_wasteful(option, alike, second)}
        worth = [option for option in alike if option.treatment not in wasteful]
        kept = [option for option in worth if option.in_pareto_set] or worth or alike
        default = self.default_unless_beaten(options, scales)
        choice = default or _chosen(kept)
        why = tuple(self.deciding(choice, alike, worth, options, is_default=default is not None))
        best = options[0].treatment
        unclear = [o for o in options if o not in (*alike, choice) and (best, o.treatment) not in first.beaten]
        doubt = f"{len(unclear)} of the others {'is' if len(unclear) == 1 else 'are'} not shown to be"
        rest = [option for option in options if option is not choice]
        other = next((option for option in rest if option.in_pareto_set), rest[0] if rest else None)
        return Advice(
            layer=treatments[choice.treatment].layer,
            by=self.figures.by,
            by_cpu=self.figures.by_cpu,
            best=self.figures.best,
            speed=self.figures.speed,
            needs=self.needs,
            accept_loss=self.accept_loss,
            choice=choice,
            why=" ".join((*why, *([f"{doubt} {self.figures.worse}."] if unclear else []))),
            reasons=tuple(self.reasons(choice, why, unclear)),
            runner_up=other,
            runner_up_words=self.runner_up(other, choice, first, second) if other else "",
            options=options,
            refused=self.refused,
            notes=tuple(self.doubts(treatments, first, second)),
            same_within=self.within,
            export=self.kind.export(treatments[choice.treatment].levels),
        )

    def has(self, treatment: Treatment) -> frozenset[str]:
        """Names of the features that it is shown, or documented, to have."""
        answers = self.kind.answers(self.features.get(treatment.name, ()), treatment)
        return frozenset(name for name, feature in answers.items() if feature.state == "yes")

    def default_unless_beaten(self, options: Sequence[Option], scales: Sequence[Scale]) -> Option | None:
        """The choice with default settings, if none is shown to be faster or cheaper: a change needs a reason."""
        default = next((option for option in options if not option.unusual), None)
        if default is None:
            return None
        name = default.treatment
        beaten = any(self.beats(option.treatment, name, scale) for option in options for scale in scales)
        return None if beaten else default

    def beats(self, one: str, other: str, scale: Scale) -> bool:
        """Whether it is shown to be better, by more than counts as the same."""
        better = (one, other) in scale.beaten
        return better and scale.place[other] - scale.place[one] > math.log1p(self.within)

    def ties(self, name: str, first: Scale) -> bool:
        """Whether its interval against the best lies within what counts as the same."""
        best = first.order[0]
        distance = first.distance(name, best)
        ends = (distance.low, distance.high)
        return name == best or all(end is not None and abs(_lost(end)) <= self.within for end in ends)

    def seems_alike(self, name: str, first: Scale) -> bool:
        """Whether only its estimate lies within what counts as the same, and it is not shown to be worse."""
        best = first.order[0]
        return abs(_lost(first.distance(name, best).middle)) <= self.within and (best, name) not in first.beaten

    def is_wasteful(self, one: Option, alike: Sequence[Option], second: Scale) -> bool:
        """Whether another choice has all of its features and is shown to be better by `second`, by more than counts as
        the same.
        """
        return any(
            self.beats(other.treatment, one.treatment, second) and set(other.features) >= set(one.features)
            for other in alike
        )

    def reasons(self, choice: Option, why: Sequence[str], unclear: Sequence[Option]) -> Iterator[str]:
        """`why`: what decided; `unclear`: choices that only estimates put behind the best."""
        levels = list(self.own_levels(choice.treatment))
        if any(level not in choice.treatment.split(" ") for level in levels):
            yield f"It is {', '.join(levels)}."
        if self.needs:
            yield f"It meets what is needed: {', '.join(self.needs)}."
        yield from why
        if unclear:
            worse = f"Not shown to be {self.figures.worse}, for so few rounds"
            yield f"{worse}: {named([o.treatment for o in unclear])}."
        if choice.features:
            yield "It " + "; ".join(self.kind.features[name] for name in choice.features) + "."
        yield from self.kind.grounds(self.analysis, next(m for m in self.members if m.name == choice.treatment))
        states = {feature.name: feature.state for feature in self.features.get(choice.treatment, ())}
        for state, words in LACKING.items() if states else ():
            names = [name for name in self.kind.features if states.get(name, "not tried") == state]
            if names:
                yield f"{words}: {', '.join(names)}."

    def deciding(
        self,
        choice: Option,
        alike: Sequence[Option],
        worth: Sequence[Option],
        options: Sequence[Option],
        *,
        is_default: bool,
    ) -> Iterator[str]:
        """Why it comes before the others that meet the needs.

        alike: the best and the choices that tie with it or are not distinguishable from it
        worth: those of them that no other one beats by the second scale
        options: all choices, the best first
        is_default: it is the choice with default settings, and no other one beats it
        """
        others = [option for option in alike if option is not choice]
        best = options[0]
        if len(options) == 1:
            yield "It is the only choice that is left."
        elif is_default and choice is not best:
            more = f"more than {format_percent(self.within)} better"
            yield f"It is the default: by {self.figures.by}, none of {len(options)} choices is shown to be {more}."
        elif not others:
            yield f"It is the {self.figures.best} of {len(options)} choices, by {self.figures.by}."
        else:
            yield from self.beside(choice, others, best)
            wasteful = [option.treatment for option in others if option not in worth]
            if wasteful:
                yield f"Of these, some {self.figures.waste}, for nothing: {named(wasteful)}."
            yield from self.set_apart(choice, [option for option in worth if option is not choice])

    def own_levels(self, name: str) -> Iterator[str]:
        """The levels that distinguish it from the others, such as "disk.cache=none": its name may be just "vm"."""
        members = self.members
        levels = next(member.levels for member in members if member.name == name)
        nothing = idle(levels)
        for factor in (name for name in self.kind.factors if name in levels and name not in nothing):
            if len({member.levels.get(factor) for member in members}) > 1:
                yield f"{factor}={levels[factor]}"

    def beside(self, choice: Option, others: Sequence[Option], best: Option) -> Iterator[str]:
        """The choices that are as good as the best: a tie requires an interval within what counts as the same, not just
        an estimate.
        """
        within, by, first = format_percent(self.within), self.figures.by, self.figures.best
        if choice is best:
            yield f"It is the {first}, by {by}."
        elif choice.tie:
            yield f"By {by} it ties with the {first}, {best.treatment}: within {within}."
        else:
            why = "its interval does not" if self.has_interval(choice) else "for so few rounds there is no interval"
            apart = f"By {by} it is not distinguishable from the {first}, {best.treatment}"
            yield f"{apart}: its estimate lies within {within}, {why}."
        it = "it" if choice is best else f"the {first}"
        rest = [option for option in others if option is not best]
        ties = [option.treatment for option in rest if option.tie]
        if ties:
            yield f"Within {within} {it} ties with {named(ties)}."
        unsure = [option.treatment for option in rest if not option.tie]
        if unsure:
            yield f"By estimates alone within {within}, {it} is not distinguishable from {named(unsure)}."

    def doubts(self, names: Collection[str], *scales: Scale | None) -> Iterator[str]:
        if self.held.note:
            yield self.held.note
        emulated = self.analysis.emulated
        if names and emulated >= set(names):
            yield EMULATED
        elif emulated & set(names):
            yield MORE_EMULATED.format(named([name for name in names if name in emulated]))
        lacks_second = len(scales) == 2 and scales[1] is None
        yield from self.kind.doubts(self.analysis, names, self.figures if lacks_second else None)
        if scales and scales[0] is not None and len(names) > 1 and not scales[0].beaten:
            worse = self.figures.worse
            yield f"After {count(scales[0].rounds)} no choice is shown to be {worse} than another: add rounds."

    def has_interval(self, option: Option) -> bool:
        """Whether its figure on the first scale has an interval against the best."""
        low = option.best.dearer_low if self.figures.by_cpu else option.best.slower_low
        return low is not None

    def set_apart(self, choice: Option, others: Sequence[Option]) -> Iterator[str]:
        """Why it was chosen among those that are equally good, or not distinguishable from it."""
        equal = [option for option in others if len(option.features) == len(choice.features)]
        if not others:
            return
        if not equal:
            yield f"Of these it has the most features: {', '.join(choice.features)}."
        elif all(len(choice.unusual) < len(option.unusual) for option in equal):
            settings = ", ".join(choice.unusual) or "none"
            yield (
                f"None of these has more features ({len(choice.features)}), and of those with as many it is the"
                f" simplest. Its settings apart from the defaults: {settings}."
            )
        else:
            best = self.figures.best
            yield f"None of these has more features ({len(choice.features)}) or is simpler; it is the {best} of those."

    def against(self, one: str, other: str, first: Scale, second: Scale | None) -> Against:
        """`speed` as the share that is lost, host CPU time as the additional share."""
        distances = [_distance(each, one, other) for each in (first, second)]
        speed, cpu = reversed(distances) if self.figures.by_cpu else distances
        return Against(
            *(_or_none(value, _lost) for value in (speed.middle, speed.low, speed.high)),
            *(_or_none(value, _more) for value in (cpu.middle, cpu.low, cpu.high)),
        )

    def runner_up(self, other: Option, choice: Option, first: Scale, second: Scale | None) -> str:
        """Such as "+4.1 % (2.0–6.2) time, but with savevm"."""
        against = self.against(other.treatment, choice.treatment, first, second)
        words = []
        if against.slower is not None or not self.figures.by_cpu:
            words.append(amount(against.slower, against.slower_low, against.slower_high, self.figures.speed, "higher"))
        if against.dearer is not None:
            words.append(amount(against.dearer, against.dearer_low, against.dearer_high, "host CPU", "lower"))
        pros = [name for name in other.features if name not in choice.features]
        cons = [name for name in choice.features if name not in other.features]
        if pros:
            words.append(f"but with {', '.join(pros)}")
        if cons:
            words.append(f"without {', '.join(cons)}")
        return ", ".join(words)


def unusual(kind: ChoiceKind, treatment: Treatment) -> tuple[str, ...]:
    """Its settings that are not the usual ones, which somebody must make and remember."""
    settings = []
    for name, level in treatment.levels.items():
        if name in kind.factors and name in USUAL_LEVELS and level != USUAL_LEVELS[name]:
            settings.append(f"{name}={level}")
    return tuple(settings)


def _chosen(alike: Sequence[Option]) -> Option:
    """The one with most features, then the simplest, then the fastest, by which they are sorted."""
    return min(alike, key=lambda option: (-len(option.features), len(option.unusual), alike.index(option)))


def _lost(distance: float) -> float:
    """The share of the rate that is lost, from a cost's logarithm."""
    return 1 - math.exp(-distance)


def _more(distance: float) -> float:
    return math.exp(distance) - 1


def _distance(scale: Scale | None, one: str, other: str) -> Distance:
    """NaN if either was not measured."""
    if scale is None:
        return Distance(math.nan, None, None)
    return Distance(0.0, None, None) if one == other else scale.distance(one, other)


def _or_none(value: float | None, as_fraction: Callable[[float], float]) -> float | None:
    return None if value is None or math.isnan(value) else as_fraction(value)
