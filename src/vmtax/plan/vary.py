"""The option `--vary FACTOR=LEVEL,...`: a plan with other levels of some factors. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vmtax.plan import rules
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data

OPTION = "--vary"


def varied(plan: Plan, asked: Sequence[str]) -> Plan:
    """`plan` with these levels, "disk.aio=native,io_uring", instead of its own levels of that factor.

    The first level is the baseline. Raises PlanError.
    """
    if not asked:
        return plan
    levels: dict[str, list[str]] = {}
    problems: list[str] = []
    for words in asked:
        name, _, listed = words.partition("=")
        if name in levels:
            problems.append(f"{name} is given twice: name all of its levels at once")
        levels[name] = [level.strip() for level in listed.split(",") if level.strip()]
    problems += _problems(plan, levels)
    if problems:
        raise PlanError([f"{OPTION}: {problem}" for problem in problems])
    data: dict[str, Any] = plan.model_dump(mode="json")
    data["factors"] |= levels
    return from_data(data, source=plan.name, options={"factors": OPTION})


def _problems(plan: Plan, levels: dict[str, list[str]]) -> Iterator[str]:
    for place, message in rules.factor_problems(levels, plan.layers):
        name, text = place[1], str(message)
        yield text if str(name) in text else f"{name}: {text}"
    for number, entry in enumerate(plan.combinations):
        for name in entry.levels.keys() & levels:
            at = f"combinations[{number}] of plan {plan.name}"
            yield f"{name} stands in {at}, a list made by hand: change its levels in a file of your own"
