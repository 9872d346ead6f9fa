"""What a user typed is measured, or refused in a line that says what is missing. Pure.

Typed are the levels of `--vary`, and those in a plan of the user's own. What a built-in plan lists may be left out with
a reason; these may not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmtax.core.errors import BadInput
from vmtax.design.asked import OPTION, sentence, unmeasured
from vmtax.design.factors import FACTORS
from vmtax.design.guest import COUNT
from vmtax.design.treatments import Space
from vmtax.plan.errors import PlanError
from vmtax.plan.names import builtin_plans
from vmtax.plan.schema import Plan
from vmtax.workload import Workload
from vmtax.workload.durability import Durability
from vmtax.workload.migration import Migration

Typed = Mapping[str, Sequence[str]]  # factor -> levels
# What a plan must measure for a factor to have an effect: its word -> (what that is, whether a workload does it)
WORK: Mapping[str, tuple[str, Callable[[Workload[Any]], bool]]] = {
    "disk": (
        "that uses the disk under test, such as disk, or build with files: disk as in plan disk-build",
        lambda one: bool(one.filled_bytes) or isinstance(one, Durability),
    ),
    "network": ("that uses the network, such as net", lambda one: one.networked),
    "migration": ("that migrates guests: migration", lambda one: isinstance(one, Migration)),
}


class NotMeasured(BadInput):
    """A level that was typed cannot be measured; the text says why, and what to add."""


def typed_in(name_or_path: str, plan: Plan) -> dict[str, tuple[str, ...]]:
    """The levels that a user wrote into a plan; none in a built-in one, or if the plan leaves them out by name."""
    if name_or_path in builtin_plans():
        return {}
    typed: dict[str, dict[str, None]] = {}
    for levels in (plan.factors, *(entry.levels for entry in plan.combinations)):
        for factor, each in levels.items():
            typed.setdefault(factor, {}).update(dict.fromkeys(each))
    excluded = {(factor, level) for entry in plan.exclude for factor, each in entry.items() for level in each}
    return {factor: tuple(e for e in each if (factor, e) not in excluded) for factor, each in typed.items()}


def refuse_unmeasured(plan: Plan, space: Space, typed: Typed, varied: Collection[str] = ()) -> None:
    """Raises PlanError if a level that was typed is in no configuration.

    space: of the plan with these levels; varied: factors that --vary names
    """
    ours, why = len(plan.exclude), f"with that many guests the work of plan {plan.name} cannot be measured"
    found = [
        replace(one, why=why) if one.why.endswith(f"exclude[{ours}]") else one
        for one in unmeasured(plan.layers, space, excluded(plan, space), typed)
    ]
    cured = [one for one in found if one.cure][:1]  # with that, every level is measured
    if found:
        prefix = f"{OPTION}: " if varied else ""
        raise PlanError([f"{prefix}{sentence(one, space, typed, varied)}" for one in cured or found[:1]])


def excluded(plan: Plan, space: Space) -> list[Mapping[str, Sequence[str]]]:
    """What the plan leaves out, and the numbers of guests with which its work cannot have all its roles, or that it
    cannot end at once: so none of them is advised. Those that are named are refused by the plan's own check, which says
    more.
    """
    roles = math.lcm(*(one.roles for one in plan.build_workloads()))
    is_alone = any(choice.name == Durability.name for choice in plan.workloads)
    named = space.levels_of(COUNT.name, COUNT.default)
    unfit = [level for level in COUNT.levels if int(level) % roles or (is_alone and int(level) > 1)]
    wrong = [level for level in unfit if level not in named]
    return [*plan.exclude, *([{COUNT.name: wrong}] if wrong else [])]


def refuse_without_work(plan: Plan, typed: Typed) -> None:
    """Raises NotMeasured if nothing in the plan uses what a typed factor is about."""
    workloads = plan.build_workloads()
    for name in typed:
        if (work := FACTORS[name].work) and not any(map(WORK[work][1], workloads)):
            raise NotMeasured(f"{name} needs a workload {WORK[work][0]}, and plan {plan.name} has none on these layers")


def refuse_idle_layers(plan: Plan) -> None:
    """Raises NotMeasured if one of its layers is set up and nothing is measured there."""
    workloads = plan.build_workloads()
    for layer in plan.layers:
        if not any(layer in workload.layers_of(case) for workload in workloads for case in workload.cases()):
            what = " and ".join(choice.name for choice in plan.workloads)
            raise NotMeasured(f"layers: plan {plan.name} measures nothing on {layer}, because {what} cannot run there")


def refuse_left_out(plan: Plan, typed: Typed, impossible: Mapping[str, str], where: str = "") -> None:
    """Raises NotMeasured if all configurations with a typed level are among the impossible ones.

    impossible: names of treatments -> why they cannot be measured; where: prefix of the line
    """
    kept = plan.treatments()[0]
    lines: list[str] = []
    # Then it is not known which of several factors is to blame
    none_left = len(typed) > 1 and all(one.name in impossible for one in kept if one.boots)
    for name, levels in typed.items():
        for level in levels:
            having = [one.name for one in kept if one.levels.get(name) == level]
            guests = [one.name for one in kept if one.levels.get(name) == level and one.boots] or having
            if guests and all(each in impossible for each in guests):
                what, why = f"{name}={level}", impossible[guests[0]]
                if none_left and not where and not any(each in why for each in typed):  # nor is a host to blame
                    what = " with ".join(f"{each}={','.join(asked)}" for each, asked in typed.items())
                    why = f"{what} cannot be measured: {why}"
                # The reason may be another level that was typed, too
                lines.insert(
                    0 if what in why else len(lines),
                    why if what in why or none_left else f"{what} cannot be measured: {why}",
                )
    if lines:
        raise NotMeasured(where + lines[0])


def refuse_lone(plan: Plan, before: Plan, typed: Typed) -> None:
    """Raises NotMeasured if only one configuration is left because of the levels of --vary. `before`: without these."""
    kept = plan.treatments()[0]
    if typed and plan.primary and len(kept) == 1 < len(before.treatments()[0]):
        more = ", ".join(f"{name}={levels[0]},…" for name, levels in typed.items())
        raise NotMeasured(
            f"{OPTION}: nothing to compare, because {kept[0].name} is the only configuration: name a second level"
            f" ({more}), or add a layer with --layers"
        )
