"""The commands `vmtax plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.asked import Measured
from vmtax.cli.command import App
from vmtax.cli.options import GUEST_HELP, PLAN_HELP, AsJson, Host, PlanName, Vary, complete_plan

app = App(help="List, show and check plans, which say what is measured.", no_args_is_help=True)


@app.command("list")
def plan_list(json: AsJson = False) -> None:
    """List the built-in plans."""
    later.plans.list_plans(json=json)


@app.command("show")
def plan_show(plan: PlanName, vary: Vary = None, json: AsJson = False) -> None:
    """Print a plan as YAML, with every default filled in."""
    later.plans.show(plan, vary or (), json=json)


@app.command("check")
def plan_check(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="[PLAN]", help=f"{PLAN_HELP} Default: quick; with --command: none.", autocompletion=complete_plan
        ),
    ] = "",
    *,
    asked: Measured,
    json: AsJson = False,
) -> None:
    """Print what a plan compares and cannot show, and what `run` with these options would do here; measure nothing."""
    later.checking.check_plan(plan, asked, json=json)


@app.command("from")
def plan_from(
    guest: Annotated[str, typer.Argument(metavar="GUEST", help=GUEST_HELP)],
    disk: Annotated[
        str,
        typer.Option("--disk", metavar="NAME", help="The disk whose settings are measured. Default: the boot disk."),
    ] = "",
    host: Host = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan there, not to stdout.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Make a plan of a guest of yours: its settings, and beside each the choices that are as safe.

    Only its configuration is read. What cannot be measured as it is configured is listed, line by line.
    """
    later.existing.plan_from(guest, disk, host, output, json=json)
