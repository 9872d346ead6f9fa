"""The command `vmtax runs`: list and remove stored runs."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.command import App
from vmtax.cli.options import AsJson, complete_run

app = App(help="List the stored runs, newest first, or remove some.", invoke_without_command=True)


@app.callback()
def runs(ctx: typer.Context, json: AsJson = False) -> None:
    """List the stored runs, newest first, or remove some."""
    if ctx.invoked_subcommand is None:
        later.runs.list_runs(json=json)


@app.command("rm")
def runs_rm(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs: ids, beginnings of ids, labels, or last: the newest, whatever it has.",
            autocompletion=complete_run,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking, as in a script.")] = False,
    json: AsJson = False,
) -> None:
    """Remove runs and their raw output for good, damaged runs too. A run in progress is never removed."""
    later.runs.remove(wanted, yes=yes, json=json)
