"""What a plan needs and can show, before it runs: rounds, time, budget, and the cost of too few rounds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vmtax import stats
from vmtax.core.layers import EXISTING, GUESTS, LAYERS
from vmtax.core.records import Treatment
from vmtax.core.units import at_most, count_of, format_duration, format_percent
from vmtax.design.factors import idle
from vmtax.design.host import boots_asked, in_words, reboots_itself
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.design.topology import none_alike, topology, unlike
from vmtax.design.treatments import repeat
from vmtax.plan.cuts import not_ended
from vmtax.plan.guests import guests_at_once
from vmtax.plan.names import builtin_plans
from vmtax.plan.schema import Choice, Plan, from_data, load
from vmtax.workload import WORKLOADS, Command, Workload
from vmtax.workload.repeated import USUAL

BUDGET_ROUNDS = 7  # a budget does not reduce the rounds below this
PLANNED_ITERATIONS = 5  # iterations that a pilot may plan
MOST_NAMES, MOST_LINES = 200, 20  # of treatments, and of one kind of advice; the rest is counted
BETWEEN_SECONDS = 1.0  # meter readings and round trips for each command
# This, and the time to start and settle a guest, by the depth of emulation, from timed runs of `quick` on two CPUs; a
# depth of three occurs in a lab.
EMULATED_BOOT_SECONDS = (0.0, 9.0, 50.0, 100.0)
EMULATED_BETWEEN_SECONDS = (0.3, 0.7, 3.7, 8.0)
DEMONSTRATION_ROUNDS = 3
SHORTEST = {"seconds": 1, "emulated_depth": 1, "stream_cache": "4m"}  # parameters of workloads in a demonstration
_ONE = {name: "configuration of the host" if name == "host" else layer.title for name, layer in LAYERS.items()}
GUESS = (0.7, 1.5)  # the actual time is within these factors of a first guess
NOTHING = "nothing to compare: add a layer, or a second level of a factor"


def check(plan: Plan) -> list[str]:
    """Advice before a run, in lines: what it compares, leaves out and can show, and about how long it takes."""
    found = plan.expansion()
    kept, idle = found.kept, found.idle_excludes
    lines = [f"{count_of(len(kept), 'configuration')}: {', '.join(at_most(MOST_NAMES, [t.name for t in kept]))}"]
    lines += [*in_common(plan), *not_measured(plan)]
    ended = [f"{name}: {why}" for name, why in not_ended(plan, kept).items()]
    lines += [f"left out: {reason}" for reason in at_most(MOST_LINES, [*found.left_out, *ended])]
    lines += at_most(
        MOST_LINES, [f"exclude[{number}] leaves nothing out: no configuration matches it" for number in idle]
    )
    again = repeat(kept) if plan.primary else None
    if again is not None:
        lines.append(f"{again.repeats} is measured twice in each round, to show the noise")
    refused = unlike(kept)
    if refused is not None:
        lines.append(refused)
    if compares_nothing(plan, kept):
        lines.append(NOTHING)
    if booting := reboots(plan):
        lines.append(booting)
    seconds = seconds_per_round(plan)
    lines += [_rounds_advice(plan), *_stopping_advice(plan), _duration_advice(plan, seconds)]
    rounds, warnings = fit_rounds(plan, seconds, pilot_seconds(plan))
    return lines + (warnings or _losses(plan, rounds))


def compares_nothing(plan: Plan, treatments: Sequence[Treatment]) -> bool:
    """Whether a plan that is to compare has no two configurations for that. Work with roles compares numbers of guests,
    one tile against several, so it needs no such pair; a VM of the user's alone is one that is watched, whose figure
    stands by itself.
    """
    if plan.layers == (EXISTING,):
        return False
    work = plan.build_workloads()
    return bool(plan.primary) and none_alike(treatments) and all(each.roles == 1 for each in work)


def in_common(plan: Plan) -> list[str]:
    """What several configurations have in common, so that no comparison shows it; also a baseline that is not the
    plan's.
    """
    kept, lines = plan.expansion().kept, plan.moved_defaults
    for name, levels in plan.space.factors.items():
        with_it = [treatment for treatment in kept if name in treatment.levels]
        needs = {treatment.name: idle(treatment.levels).get(name) for treatment in with_it}
        having = {treatment.layer for treatment in with_it if needs[treatment.name] is None}
        if len(levels) == 1 and having:
            limits = dict.fromkeys(filter(None, needs.values()))  # what it has no meaning without
            which = f" with {' and '.join(limits)}" if limits else ""
            lines.append(f"{name}={levels[0]} in every {_every(having, set(plan.layers))}{which}")
    first = {**plan.space.factors, **plan.space.parts[0].levels}
    for layer in plan.layers:
        members = [treatment for treatment in kept if treatment.layer == layer]
        here = members[0].levels if len(members) > 1 else {}
        if any(here.get(name, levels[0]) != levels[0] for name, levels in first.items()):
            lines.append(f"baseline: {members[0].name}; the one with the first level of every factor is left out")
    return lines


def not_measured(plan: Plan) -> list[str]:
    """Which workloads are not measured on which of the plan's layers, in lines; those about guests alone need no line
    for layers without guests.
    """
    lines = []
    for layer in plan.layers:
        names = [
            workload.name
            for workload in plan.build_workloads()
            if layer not in workload.layers and (LAYERS[layer].boots or not workload.layers <= set(GUESTS))
        ]
        if names:
            lines.append(f"not measured on {layer}: {', '.join(names)}")
    return lines


def _every(having: set[str], layers: set[str]) -> str:
    """The layers that have a factor in words, for a plan with these layers."""
    if having >= layers:
        return "configuration"
    return _ONE[next(iter(having))] if len(having) == 1 else "guest"


def reboots(plan: Plan) -> str:
    """How often the host is rebooted for this plan, in a sentence; empty if it is not."""
    levels = boots_asked(plan.treatments()[0])
    if not levels:
        return ""
    low, high = (len(levels) * rounds for rounds in (plan.rounds.min, plan.rounds.max))
    how = "the lab reboots itself" if reboots_itself(plan.host) else "the run stops before each and says how to go on"
    ways = ", ".join(in_words(level, levels) for level in levels)
    each = f"{count_of(len(levels), 'boot')} of the host in each round ({ways})"
    return f"{each}, {low if low == high else f'{low} to {high}'} in all: {how}"


@dataclass(frozen=True, slots=True)
class Emulation:
    """Which of a run's machines run on an emulated CPU, and so how long its parts take."""

    guests: bool = False
    host: bool = False  # the host itself is emulated, and so are its guests

    def boot_seconds(self, layer: str) -> float:
        """Seconds to start and settle a guest of that layer."""
        depth, known = self._depth(layer), LAYERS[layer]
        return EMULATED_BOOT_SECONDS[depth] if depth and layer in GUESTS else known.start_seconds

    def case_seconds(self, layer: str, *, several: bool = False) -> Callable[[Workload[Any], str], float]:
        """Seconds of one case of a workload on that layer, including the time between cases.

        several: the plan has machines that work at once, which repeat some commands
        """
        depth = self._depth(layer)
        between = EMULATED_BETWEEN_SECONDS[depth] if self.guests or self.host else BETWEEN_SECONDS

        def seconds(workload: Workload[Any], case: str) -> float:
            repeats = several and isinstance(workload, Command) and workload.repeats_at_once
            once = workload.seconds(case) + depth * workload.emulated_start_seconds
            return between + once * (USUAL if repeats else 1)

        return seconds

    def _depth(self, layer: str) -> int:
        return self.host + (self.guests or self.host) * LAYERS[layer].kernels


@dataclass(frozen=True, slots=True)
class Foreseen:
    """How long a run will take from now on, as far as it can be known before."""

    rounds: int  # that remain
    seconds: tuple[float, float]  # a range; a single value if the plan has run here before
    losses: Sequence[str] = ()  # what cannot be achieved with so few rounds
    done: int = 0  # rounds that a resumed run has already
    piloting: bool = False  # the first rounds take longer
    measured: bool = False  # known from a run of the same plan on the same host


def foresee(
    plan: Plan,
    treatments: Sequence[Treatment],
    emulation: Emulation = Emulation(),
    *,
    more: float = 0.0,
    measured: float | None = None,
    done: int = 0,
) -> Foreseen:
    """`more`: additional seconds of a round that depend on the host; `measured`: seconds per round of an earlier run of
    the same plan on the same host; `done`: complete rounds
    """
    per_round = measured or seconds_per_round(plan, treatments, emulation) + more
    piloting = plan.iterations == "auto" and done < PILOT_ROUNDS
    # Measured seconds include the pilot already.
    pilot = pilot_seconds(plan, treatments, emulation) if piloting and measured is None else 0.0
    fitting, losses = fit_rounds(plan, per_round, pilot)
    rounds = max(0, fitting - done)
    seconds = per_round * rounds + pilot
    low, high = (1.0, 1.0) if measured else GUESS
    return Foreseen(rounds, (seconds * low, seconds * high), losses, done, piloting, measured is not None)


def fit_rounds(plan: Plan, seconds_per_round: float, setup_seconds: float = 0.0) -> tuple[int, list[str]]:
    """How many rounds the budget allows; if those are fewer than rounds.max, also a line for each thing that is lost.

    `setup_seconds`: time before the first round. The result is never below seven, or below rounds.min if that is
    smaller: then the budget is exceeded, and a line says so.
    """
    if plan.budget is None or plan.budget >= plan.rounds.max * seconds_per_round + setup_seconds:
        return plan.rounds.max, []
    budget = "" if _is_own_budget(plan) else f"the plan's budget of {format_duration(plan.budget)}"
    floor = min(BUDGET_ROUNDS, plan.rounds.min)
    rounds = int(max(0.0, plan.budget - setup_seconds) // seconds_per_round)
    if rounds < floor:
        needed = format_duration(floor * seconds_per_round + setup_seconds)
        warning = f"{budget} is too small and will be exceeded: {count_of(floor, 'round')} need about {needed}"
        return floor, [*([warning] if budget else []), *_losses(plan, floor)]
    less = f", fewer than rounds.min ({plan.rounds.min})" if rounds < plan.rounds.min else ""
    allows = [f"{budget} allows {rounds} of up to {plan.rounds.max} rounds{less}"] if budget else []
    return rounds, [*allows, *_losses(plan, rounds)]


def _is_own_budget(plan: Plan) -> bool:
    """Whether it is the budget of a built-in plan, whose limits are intended: no warning is given."""
    return plan.name in builtin_plans() and load(plan.name).budget == plan.budget


def seconds_per_round(
    plan: Plan, treatments: Sequence[Treatment] | None = None, emulation: Emulation = Emulation()
) -> float:
    """About how long a round takes, from the workloads' own estimates; for use before anything has run.

    treatments: those of a round, if they are not just the plan's own
    """
    entries = plan.entries() if treatments is None else treatments
    times = PLANNED_ITERATIONS if plan.iterations == "auto" else plan.iterations
    # Guests of one treatment start at the same time, but share the CPUs.
    boots = sum(emulation.boot_seconds(each.layer) * len(topology(each).subjects) for each in entries)
    return boots + times * _workload_seconds(plan, entries, emulation)


def pilot_seconds(
    plan: Plan, treatments: Sequence[Treatment] | None = None, emulation: Emulation = Emulation()
) -> float:
    """About how much longer the rounds of the pilot take in total than other rounds; 0 if the plan has no pilot."""
    if plan.iterations != "auto":
        return 0.0
    entries = plan.entries() if treatments is None else treatments
    more = PILOT_ITERATIONS - PLANNED_ITERATIONS
    return min(PILOT_ROUNDS, plan.rounds.max) * more * _workload_seconds(plan, entries, emulation)


def sum_per_round(
    plan: Plan, entries: Sequence[Treatment], amount: Callable[[Workload[Any], str], float], *, emulated: bool = False
) -> float:
    """The sum of `amount` over every case that runs once in a round of these treatments."""
    workloads = plan.build_workloads(emulated=emulated)
    # What a treatment runs depends on its layer and on whether it is the A/A, so thousands of treatments have few
    # kinds.
    kinds = Counter((treatment.layer, treatment.repeats is not None) for treatment in entries)
    of_kind = {(treatment.layer, treatment.repeats is not None): treatment for treatment in entries}
    return sum(
        count * amount(workload, case)
        for kind, count in kinds.items()
        for workload in workloads
        for case in plan.cases(workload, of_kind[kind])
    )


def _workload_seconds(plan: Plan, entries: Sequence[Treatment], emulation: Emulation) -> float:
    """Every case of a round once, or as often as machines that work at once repeat it."""
    several = guests_at_once(plan) > 1
    by_layer = {layer: [one for one in entries if one.layer == layer] for layer in plan.layers}
    emulated = emulation.guests or emulation.host
    return sum(
        sum_per_round(plan, found, emulation.case_seconds(layer, several=several), emulated=emulated)
        for layer, found in by_layer.items()
    )


def _losses(plan: Plan, rounds: int) -> list[str]:
    """What cannot be achieved with so few rounds, each with the remedy."""
    short = [text for workload in plan.build_workloads() if (text := workload.shortfall(rounds))]
    if not plan.primary:
        return short  # nothing is compared
    stopping, count = plan.stopping(), ranked(plan)
    needed = stats.minimum_rounds(stopping.alpha)
    lines = short
    if rounds < needed:
        lines.append(f"no interval can be given after {count_of(rounds, 'round')}: 95 % needs {needed}")
    elif plan.rounds.min < needed:
        lines.append(f"rounds.min is {plan.rounds.min}: a run cut short before round {needed} has no interval")
    if count > 2 and rounds < (wanted := stats.minimum_rounds(stats.ALPHA)):
        lines.append(f"{count_of(rounds, 'round')} cannot rank {count} configurations: that takes {wanted}")
    if stopping.first_look is not None and rounds < stopping.first_look:
        lines.append(f"nothing ends this run early: that is first checked after round {stopping.first_look}")
    return lines


def ranked(plan: Plan) -> int:
    """How many treatments the largest ranking contains: those of one layer."""
    return max(Counter(treatment.layer for treatment in plan.treatments()[0]).values())


def _rounds_advice(plan: Plan) -> str:
    """The number of rounds that the plan's contrasts and ranking need."""
    interval, count = stats.minimum_rounds(plan.stopping().alpha), ranked(plan)
    ranking = stats.minimum_rounds(stats.ALPHA) if count > 2 else interval
    few, most = plan.rounds.min, plan.rounds.max
    planned = count_of(few, "round") if few == most else f"{few} to {most} rounds"
    if not plan.primary:
        return f"{planned} planned; what is counted in them is added up"
    if ranking == interval:
        enough = f"{interval} are enough for intervals{' and ranking' if count > 2 else ''}"
    else:
        enough = f"{interval} are enough for intervals, {ranking} for ranking {count} configurations"
    return f"{planned} ({enough})"


def _stopping_advice(plan: Plan) -> list[str]:
    """What may end the run before rounds.max, and when that is checked."""
    stopping = plan.stopping()
    if stopping.first_look is None or not plan.primary or none_alike(plan.treatments()[0]):
        return []
    ends = []
    if stopping.worse_than is not None:
        ends.append(
            f"it is settled for every primary contrast whether it is worse by {format_percent(stopping.worse_than)}"
        )
    if stopping.precision is not None:
        ends.append(f"every primary interval is within ±{format_percent(stopping.precision)}")
    first = stopping.first_look
    when = f"rounds {first}, {first + 2}, {first + 4} …"
    if stopping.worse_than is not None:
        when = f"rounds {', '.join(map(str, stopping.looks))}"
    return [f"stops when {' or '.join(ends)}, checked after {when}"]


def _duration_advice(plan: Plan, seconds: float) -> str:
    pilot = pilot_seconds(plan)
    low, high = (format_duration(rounds * seconds + pilot) for rounds in (plan.rounds.min, plan.rounds.max))
    total = f"{low} to {high}" if low != high else low
    longer = f" after a pilot of {PILOT_ROUNDS} longer ones" if pilot else ""
    apart = ", without the reboots" if boots_asked(plan.treatments()[0]) else ""
    return f"on hardware with KVM: about {format_duration(seconds)} per round{longer}, {total} in total{apart}"


def settled(plan: Plan, *, emulated: bool) -> Plan:
    """The plan with values for the parameters that it leaves open, which metrics are named after. `emulated`: some
    layer is.
    """
    names: dict[str, str] = {}
    choices = []
    pairs = zip(plan.build_workloads(), plan.build_workloads(emulated=emulated), strict=True)
    for choice, (planned, one) in zip(plan.workloads, pairs, strict=True):
        choices.append(choice.model_copy(update={"parameters": {**choice.parameters, **one.settled()}}))
        if one.settled():
            names |= {old.name: new.name for old, new in zip(planned.metrics(), one.metrics(), strict=True)}
    primary = tuple(names.get(name, name) for name in plan.primary)
    return plan.model_copy(update={"workloads": tuple(choices), "primary": primary}) if names else plan


def demonstration(plan: Plan) -> Plan:
    """The plan's primary metrics in the fewest and shortest rounds that fill every part of a report, without
    intervals.
    """
    rounds = {"min": DEMONSTRATION_ROUNDS, "max": DEMONSTRATION_ROUNDS}
    workloads = [
        {"name": choice.name, "parameters": {**choice.parameters, **_shorter(choice)}} for choice in plan.workloads
    ]
    changes = {
        "workloads": workloads,
        "rounds": rounds,
        "iterations": 1,
        "only_primary": True,
        "decide": None,
        "budget": None,
    }
    return from_data(plan.model_dump(mode="json") | changes, source=f"demonstration of {plan.name}")


def _shorter(choice: Choice) -> dict[str, Any]:
    """Parameters with which a workload ends quickly on an emulated CPU."""
    known = WORKLOADS[choice.name].parameters_type.model_fields
    return {name: value for name, value in SHORTEST.items() if name in known}
