"""What `run` and `plan check` do with levels that a user types: each is measured, or a line says why not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vmtax.cli.asked import Measured, PlanChanges
from vmtax.cli.running import new_work
from vmtax.core.errors import BadInput
from vmtax.design.factors import FACTORS, idle
from vmtax.plan.schema import Plan, load

ADDED = re.compile(r"(?:add|,) ((?:--vary [^\s;]+ ?)+)")


def accepted(plan: str, vary: Sequence[str], layers: str | None = None) -> tuple[Plan | None, str]:
    """The plan that would be measured; or None, and the line of the refusal."""
    try:
        return new_work(plan, Measured(PlanChanges(layers=layers, vary=[*vary]))).plan, ""
    except BadInput as error:
        return None, str(error)


def measured(plan: Plan) -> set[tuple[str, str]]:
    """(factor, level) of all that is measured and has a meaning where it is."""
    found: set[tuple[str, str]] = set()
    for treatment in plan.treatments()[0]:
        found |= treatment.levels.items() - {(name, treatment.levels[name]) for name in idle(treatment.levels)}
    return found


def names(vary: Sequence[str]) -> set[tuple[str, str]]:
    """(factor, level) of each that is typed."""
    pairs = (each.split("=", 1) for each in vary)
    return {(name, level) for name, levels in pairs for level in levels.split(",")}


def cured(vary: Sequence[str], line: str) -> list[str] | None:
    """The options as the line says that they should be; None if it names none."""
    found = [word for part in ADDED.findall(line) for word in part.split() if word != "--vary"]
    if not found:
        return None
    further = {each.partition("=")[0]: each for each in [*vary, *found]}
    return [*further.values()]


def wrong(plan: str, vary: Sequence[str]) -> str:
    """What is wrong with the answer to these options; "" if nothing is."""
    wanted, line = accepted(plan, vary)
    if wanted is not None:
        silent = names(vary) - measured(wanted)
        return f"dropped in silence: {silent}" if silent else ""
    if "\n" in line:
        return f"more than one line: {line}"
    if not any(name in line for name, _ in names(vary)):
        return f"names no option that was typed: {line}"
    cure = cured(vary, line)
    if cure is not None and cure != [*vary]:
        again, other = accepted(plan, cure)
        return f"its cure {cure} is refused: {other}" if again is None else ""
    explained = (
        "needs a workload",
        "is about",
        "a list made by hand",
        "nothing to compare",
        "cannot be measured",
        "write a plan of your own",
        "right are",
        "leave out one of them",
    )
    return "" if any(words in line for words in explained) else f"says no way out: {line}"


def listed(plan: str) -> list[str]:
    """The factors that can be varied in a plan."""
    own = load(plan)
    by_hand = {name for entry in own.combinations for name in entry.levels}
    return [name for name in FACTORS if name not in by_hand]
