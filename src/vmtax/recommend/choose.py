"""One choice out of a run's treatments, with its reasons and its runner-up. Pure.

What is no setting of a disk stays at the plan's baseline. Of the rest, first what is needed; then the Pareto set of
speed, host CPU and features; then the fastest of it. Of choices that tie with the fastest, within what the plan says
does not matter, or seem to and are not distinguishable from it, those go that cost the host more for nothing; features
decide between the others, then simplicity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import Numbers
from vmtax.core.records import Treatment
from vmtax.core.units import format_percent
from vmtax.design.factors import DISK, FACTORS, idle
from vmtax.design.features import FEATURES, Feature
from vmtax.design.settings import GUESTS
from vmtax.recommend.conditions import Conditions, conditions
from vmtax.recommend.constraints import durability
from vmtax.recommend.eligibility import eligible, having, incomplete, speed_of
from vmtax.recommend.export import export
from vmtax.recommend.pareto import Distance, Scale, mean_costs, pareto_set, scale
from vmtax.recommend.records import Advice, Against, Option, amount, named
from vmtax.workload.base import CPU_PER_OPERATION
from vmtax.workload.fio import Disk

EMULATED = "Everything here ran emulated: this shows how the recommendation works, not what to choose."
MORE_EMULATED = "Some of the choices ran emulated: {}. On real hardware the order may be different."


def advise(
    analysis: Analysis,
    needs: Sequence[str] | None = None,
    *,
    numbers: Numbers | None = None,
    metric: str | None = None,
    called: str = "",
) -> Advice:
    """Of the run's guests of the outermost layer. Speed is `metric`, which may be one of `numbers` that no trial
    reported (a score), or else the mean of the plan's primary disk metrics. `needs`: of NEEDS; without them
    those of the requirements. `called`: the metric as people call it.
    """
    needs = analysis.requirements.needs if needs is None else needs
    known: Numbers = {**analysis.boot_numbers, **(numbers or {})}
    members = members_of(analysis.experiment.treatments)
    held = conditions(analysis.experiment.plan, members)
    choices = [t for t in members if t.name not in held.left_out]
    speed, by = speed_of(analysis.criteria.primary, known, choices, metric)
    by = called or by
    refused, left = eligible(choices, analysis.disk_features, needs, analysis.requirements.accept_loss)
    costs = mean_costs(known, speed, [t.name for t in left])
    few = incomplete(costs)
    refused += [*few.items(), *((name, held.why) for name in held.left_out)]
    treatments = {t.name: t for t in left if t.name not in few}
    stage = _Stage(analysis, tuple(needs), by, tuple(refused), held)
    if not members:
        return stage.nothing("there is no guest in this run, so there is nothing to choose between.")
    if not speed:
        return stage.nothing(f"{by} was not measured in this run; name a plan that measures the disk.")
    fast = scale({name: costs[name] for name in treatments}, analysis.criteria.alpha)
    if fast is None:
        return stage.nothing("no choice of this run is left; ask for less with --needs, or measure other choices.")
    cpu_metrics = [
        m for m in having(known, list(treatments)) if (m.workload, m.measure) == (Disk.name, CPU_PER_OPERATION)
    ]
    cheap = scale(mean_costs(known, cpu_metrics, list(treatments)), fast.alpha) if cpu_metrics else None
    return stage.settled(treatments, fast, cheap)


@dataclass(frozen=True, slots=True)
class _Stage:
    """What is known before the choices are set against each other."""

    analysis: Analysis
    needs: tuple[str, ...]
    by: str
    refused: tuple[tuple[str, str], ...]
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
            by=self.by,
            needs=self.needs,
            accept_loss=self.accept_loss,
            choice=None,
            reasons=(),
            runner_up=None,
            runner_up_words="",
            options=(),
            refused=self.refused,
            notes=notes,
            same_within=self.within,
            export=None,
        )

    def settled(self, treatments: dict[str, Treatment], fast: Scale, cheap: Scale | None) -> Advice:
        features = {
            name: frozenset(_has(self.analysis.disk_features.get(name, ()), treatments[name])) for name in treatments
        }
        scales = [s for s in (fast, cheap) if s is not None]
        chosen_from = frozenset(pareto_set(scales, features, fast.order, self.within))
        options = tuple(
            Option(
                name,
                tuple(feature for feature in FEATURES if feature in features[name]),
                unusual(treatments[name]),
                _against(name, fast.order[0], fast, cheap),
                name in chosen_from,
                self.ties(name, fast),
            )
            for name in fast.order
        )
        alike = [option for option in options if option.tie or self.seems_alike(option.treatment, fast)]
        # How fast they are does not matter between these; what they cost the host does.
        wasteful = {option.treatment for option in alike if cheap and self.is_wasteful(option, alike, cheap)}
        worth = [option for option in alike if option.treatment not in wasteful]
        kept = [option for option in worth if option.in_pareto_set] or worth or alike
        choice = _chosen(kept)
        rest = [option for option in options if option is not choice]
        second = next((option for option in rest if option.in_pareto_set), rest[0] if rest else None)
        return Advice(
            layer=treatments[choice.treatment].layer,
            by=self.by,
            needs=self.needs,
            accept_loss=self.accept_loss,
            choice=choice,
            reasons=tuple(self.reasons(choice, alike, worth, options, fast)),
            runner_up=second,
            runner_up_words=_runner_up(second, choice, fast, cheap) if second else "",
            options=options,
            refused=self.refused,
            notes=tuple(self.doubts(treatments, fast, cheap)),
            same_within=self.within,
            export=export(treatments[choice.treatment].levels),
        )

    def ties(self, name: str, fast: Scale) -> bool:
        """Its interval against the fastest lies within what does not matter."""
        best = fast.order[0]
        distance = fast.distance(name, best)
        ends = (distance.low, distance.high)
        return name == best or all(end is not None and abs(_lost(end)) <= self.within for end in ends)

    def seems_alike(self, name: str, fast: Scale) -> bool:
        """Only its estimate lies within what does not matter, and it is not shown to be slower."""
        best = fast.order[0]
        return abs(_lost(fast.distance(name, best).middle)) <= self.within and (best, name) not in fast.beaten

    def is_wasteful(self, one: Option, alike: Sequence[Option], cheap: Scale) -> bool:
        """Another has all of its features and is shown to cost the host less, by more than does not matter."""
        return any(
            (other.treatment, one.treatment) in cheap.beaten
            and cheap.place[one.treatment] - cheap.place[other.treatment] > math.log1p(self.within)
            and set(other.features) >= set(one.features)
            for other in alike
        )

    def reasons(
        self,
        choice: Option,
        alike: Sequence[Option],
        worth: Sequence[Option],
        options: Sequence[Option],
        fast: Scale,
    ) -> Iterator[str]:
        """`alike`: the fastest, what ties with it or is not distinguishable from it; `worth`: those of them that cost
        the host no more than needed; `options`: all, fastest first.
        """
        if levels := ", ".join(self.own_levels(choice.treatment)):
            yield f"It is {levels}."
        if self.needs:
            yield f"It meets what is needed: {', '.join(self.needs)}."
        others = [option for option in alike if option is not choice]
        best = options[0]
        if len(options) == 1:
            yield "It is the only choice that is left."
        elif not others:
            yield f"It is the fastest of {len(options)} choices, by {self.by}."
        else:
            yield from self.beside(choice, others, best)
            wasteful = [option.treatment for option in others if option not in worth]
            if wasteful:
                yield f"Of these, some cost the host more CPU than another, for nothing: {named(wasteful)}."
            yield from _told_apart(choice, [option for option in worth if option is not choice])
        unclear = [o for o in options if o not in alike and (best.treatment, o.treatment) not in fast.beaten]
        if unclear:
            yield f"Not shown to be slower, for so few rounds: {named([o.treatment for o in unclear])}."
        if choice.features:
            yield "It " + "; ".join(FEATURES[name] for name in choice.features) + "."
        states = {feature.name: feature.state for feature in self.analysis.disk_features.get(choice.treatment, ())}
        lacking = [name for name in FEATURES if states.get(name) == "no"]
        if lacking:
            yield f"It gives up: {', '.join(lacking)}."
        untried = [name for name in FEATURES if states.get(name, "not tried") == "not tried"]
        if states and untried:
            yield f"Not tried: {', '.join(untried)}."

    def own_levels(self, name: str) -> Iterator[str]:
        """The levels in which it differs from others, such as "disk.cache=none": its name may be just "vm"."""
        members = self.members
        levels = next(member.levels for member in members if member.name == name)
        nothing = idle(levels)
        for factor in (factor for factor in FACTORS if factor in DISK and factor in levels and factor not in nothing):
            if len({member.levels.get(factor) for member in members}) > 1:
                yield f"{factor}={levels[factor]}"

    def beside(self, choice: Option, others: Sequence[Option], best: Option) -> Iterator[str]:
        """What is as fast as the fastest: a tie is an interval within what does not matter, an estimate is none."""
        within = format_percent(self.within)
        if choice is best:
            yield f"It is the fastest, by {self.by}."
        elif choice.tie:
            yield f"By {self.by} it ties with the fastest, {best.treatment}: within {within}."
        else:
            why = (
                "for so few rounds there is no interval" if choice.best.slower_low is None else "its interval does not"
            )
            apart = f"By {self.by} it is not distinguishable from the fastest, {best.treatment}"
            yield f"{apart}: its estimate lies within {within}, {why}."
        it = "it" if choice is best else "the fastest"
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
        unknown = [name for name in names if name not in self.analysis.disk_features]
        if unknown and len(unknown) == len(names):
            yield "This run did not try what the choices can do: only durability is known, from documentation."
        elif unknown:
            yield f"The features of these were not tried: {named(unknown)}."
        if len(scales) == 2 and scales[1] is None:
            yield "Host CPU per operation was not measured for all choices: speed and features decide."
        if scales and scales[0] is not None and len(names) > 1 and not scales[0].beaten:
            yield f"After {scales[0].rounds} rounds no choice is shown to be slower than another: add rounds."
        if self.accept_loss:
            yield "Choices that lose flushed data with the host's power were considered, as --accept-loss asks."


def unusual(treatment: Treatment) -> tuple[str, ...]:
    """Its settings that are not the factor's default, so that somebody must make and remember them."""
    settings = []
    for name, level in treatment.levels.items():
        factor = FACTORS.get(name)
        if name in DISK and factor is not None and level != factor.default:
            settings.append(f"{name}={level}")
    return tuple(settings)


def members_of(treatments: Sequence[Treatment]) -> list[Treatment]:
    """The guests of the outermost layer that the run has, on the plan's own side."""
    own = [t for t in treatments if t.repeats is None and not t.side]
    return next((guests for layer in GUESTS if (guests := [t for t in own if t.layer == layer])), [])


def _has(features: Sequence[Feature], treatment: Treatment) -> Iterator[str]:
    """Names of the features that it is shown, or documented, to have."""
    known = (durability(features, treatment), *(feature for feature in features if feature.name != "durable"))
    yield from (feature.name for feature in known if feature.state == "yes")


def _chosen(alike: Sequence[Option]) -> Option:
    """By features, then simplicity, then speed, in which they are sorted."""
    return min(alike, key=lambda option: (-len(option.features), len(option.unusual), alike.index(option)))


def _told_apart(choice: Option, others: Sequence[Option]) -> Iterator[str]:
    """What decided for it among those that are as fast, or not distinguishable from it."""
    equal = [option for option in others if len(option.features) == len(choice.features)]
    if not others:
        return
    if not equal:
        yield f"Of these it has the most features: {', '.join(choice.features)}."
    elif all(len(choice.unusual) < len(option.unusual) for option in equal):
        settings = ", ".join(choice.unusual) or "none"
        yield (
            f"None of these has more features ({len(choice.features)}), and of those with as many it is the simplest."
            f" Its settings apart from the defaults: {settings}."
        )
    else:
        yield f"None of these has more features ({len(choice.features)}) or is simpler; it is the fastest of those."


def _lost(distance: float) -> float:
    """A cost's logarithm as the share of the rate that is lost."""
    return 1 - math.exp(-distance)


def _more(distance: float) -> float:
    return math.exp(distance) - 1


def _against(one: str, other: str, fast: Scale, cheap: Scale | None) -> Against:
    nothing = Distance(math.nan, None, None)
    speed = fast.distance(one, other)
    cpu = cheap.distance(one, other) if cheap else nothing
    if one == other:
        speed, cpu = Distance(0.0, None, None), Distance(0.0, None, None) if cheap else nothing
    return Against(
        *(_or_none(value, _lost) for value in (speed.middle, speed.low, speed.high)),
        *(_or_none(value, _more) for value in (cpu.middle, cpu.low, cpu.high)),
    )


def _or_none(value: float | None, as_fraction: Callable[[float], float]) -> float | None:
    return None if value is None or math.isnan(value) else as_fraction(value)


def _runner_up(second: Option, choice: Option, fast: Scale, cheap: Scale | None) -> str:
    """ "+4.1 % (2.0–6.2) time, but with savevm"."""
    against = _against(second.treatment, choice.treatment, fast, cheap)
    words = [amount(against.slower, against.slower_low, against.slower_high, "time", "higher")]
    pros = [name for name in second.features if name not in choice.features]
    cons = [name for name in choice.features if name not in second.features]
    if against.dearer is not None:
        cpu = amount(against.dearer, against.dearer_low, against.dearer_high, "host CPU", "lower")
        words.append(cpu)
    if pros:
        words.append(f"but with {', '.join(pros)}")
    if cons:
        words.append(f"without {', '.join(cons)}")
    return ", ".join(words)
