"""The option `--vary FACTOR=LEVEL,...`: a plan with other levels of some factors. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vmtax.design.asked import OPTION
from vmtax.plan import rules
from vmtax.plan.asked import Typed, refuse_unmeasured
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data


def typed_levels(plan: Plan, asked: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The levels of each factor, as plans spell them: "disk.aio=native,io_uring". Raises PlanError."""
    levels: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    for words in asked:
        name, _, listed = words.partition("=")
        if name in levels:
            problems.append(f"{name} is given twice: name all of its levels at once")
        levels[name] = rules.spelled(name, [level.strip() for level in listed.split(",") if level.strip()])
    problems += _problems(plan, levels)
    if problems:
        raise PlanError([f"{OPTION}: {problem}" for problem in problems])
    return levels


def varied(plan: Plan, asked: Sequence[str]) -> Plan:
    """`plan` with these levels instead of its own levels of these factors.

    The first level is the baseline. Raises PlanError, also if a level would be in no configuration.
    """
    levels = typed_levels(plan, asked)
    if not levels:
        return plan
    space = rules.space({**plan.factors, **levels}, plan.design, plan.combinations, plan.guest)
    if not rules.too_many(plan.layers, space):  # otherwise the plan's own check says so
        refuse_unmeasured(plan, space, levels, levels.keys())
    data: dict[str, Any] = plan.model_dump(mode="json")
    data["factors"] |= levels
    return from_data(data, source=plan.name, options={"factors": OPTION})


def _problems(plan: Plan, levels: Typed) -> Iterator[str]:
    for place, message in rules.factor_problems(levels, plan.layers):
        name, text = place[1], str(message)
        yield text if str(name) in text else f"{name}: {text}"
    for number, entry in enumerate(plan.combinations):
        for name in entry.levels.keys() & levels:
            at = f"combinations[{number}] of plan {plan.name}"
            yield f"{name} is in {at}, a list made by hand: change its levels in a file of your own"
