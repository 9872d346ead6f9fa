"""What the commands `vmtax plan` do with plans; `checking` and `existing` do the rest."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from vmtax.cli.app import answer, say, say_wrapped
from vmtax.cli.own_program import with_program_values
from vmtax.plan.schema import as_written, builtin_plans, describe, load
from vmtax.plan.vary import varied
from vmtax.report.answers.others import PlanLine


def list_plans(*, json: bool) -> None:
    """Each with the question that it answers."""
    plans = {name: describe(name) for name in builtin_plans()}
    if json:
        answer("plans", [PlanLine(*pair) for pair in plans.items()])
        return
    for name, text in plans.items():
        say_wrapped(text, first=f"{name:<12} ", indent=13)


def show(plan: str, vary: Sequence[str], *, json: bool) -> None:
    """As YAML, or as JSON."""
    begun, others = with_program_values(load(plan), vary)
    loaded = varied(begun, others)
    if json:
        answer("plan", loaded.model_dump(mode="json"))
        return
    for line in yaml.safe_dump(as_written(loaded), sort_keys=False, allow_unicode=True).splitlines():
        say(line)
