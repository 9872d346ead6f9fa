"""`--vary FACTOR=LEVEL,...`: a plan with other levels of some factors. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vmtax.design.factors import FACTORS
from vmtax.plan import rules
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data

OPTION = "--vary"


def varied(plan: Plan, asked: Sequence[str]) -> Plan:
    """`plan` with these levels, "disk.aio=native,io_uring", in place of its own of the same factor.

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


def completions(incomplete: str) -> list[str]:
    """What a shell offers for the beginning of FACTOR=LEVEL,...: factors, or levels that are not named yet."""
    name, equals, listed = incomplete.partition("=")
    names = [name] if equals else [factor for factor in FACTORS if factor.startswith(name)]
    if len(names) != 1 or names[0] not in FACTORS:
        return [f"{factor}=" for factor in names if not equals]
    before, comma, last = listed.rpartition(",")
    free = (level for level in FACTORS[names[0]].levels if level not in before.split(","))
    return [f"{names[0]}={before}{comma}{level}" for level in free if level.startswith(last)]


def _problems(plan: Plan, levels: dict[str, list[str]]) -> Iterator[str]:
    for place, message in rules.factor_problems(levels, plan.layers):
        name, text = place[1], str(message)
        yield text if str(name) in text else f"{name}: {text}"
    for number, entry in enumerate(plan.combinations):
        for name in entry.levels.keys() & levels:
            at = f"combinations[{number}] of plan {plan.name}"
            yield f"{name} stands in {at}, a list made by hand: change its levels in a file of your own"
