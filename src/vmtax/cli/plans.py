"""The commands `vmtax plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, Vary, answer, app, complete_plan, say, say_wrapped
from vmtax.cli.asked import Measured
from vmtax.cli.command import App
from vmtax.cli.options import PLAN_HELP

plan_app = App(help="List, show and check plans, which say what is measured.", no_args_is_help=True)
app.add_typer(plan_app, name="plan")

PlanName = Annotated[
    str,
    typer.Argument(metavar="PLAN", help=PLAN_HELP, autocompletion=complete_plan),
]


@plan_app.command("list")
def plan_list(json: AsJson = False) -> None:
    """List the built-in plans."""
    from vmtax.plan.schema import builtin_plans, describe

    plans = {name: describe(name) for name in builtin_plans()}
    if json:
        from vmtax.report.answers.others import PlanLine

        answer("plans", [PlanLine(*pair) for pair in plans.items()])
        return
    for name, text in plans.items():
        say_wrapped(text, first=f"{name:<12} ", indent=13)


@plan_app.command("show")
def plan_show(plan: PlanName, vary: Vary = None, json: AsJson = False) -> None:
    """Print a plan as YAML, with every default filled in."""
    import yaml

    from vmtax.cli.own_program import with_program_values
    from vmtax.plan.schema import as_written, load
    from vmtax.plan.vary import varied

    begun, others = with_program_values(load(plan), vary or ())
    loaded = varied(begun, others)
    if json:
        answer("plan", loaded.model_dump(mode="json"))
        return
    for line in yaml.safe_dump(as_written(loaded), sort_keys=False, allow_unicode=True).splitlines():
        say(line)


@plan_app.command("check")
def plan_check(
    plan: Annotated[
        str,
        typer.Argument(metavar="[PLAN]", help=f"{PLAN_HELP} None with --command.", autocompletion=complete_plan),
    ] = "",
    *,
    asked: Measured,
    json: AsJson = False,
) -> None:
    """Print what a plan compares and cannot show, and what `run` with these options would do here; measure nothing."""
    from vmtax.cli.checking import checked

    if not plan and asked.program.command is None:
        raise BadUse("name a plan, as in `vmtax plan check quick`: `vmtax plan list` lists those that are built in")
    found = checked(plan, asked)
    if json:
        answer("plan-check", found)
        return
    for line in found.lines:
        say_wrapped(line)
