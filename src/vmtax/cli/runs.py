"""The command `vmtax runs`: list and remove stored runs."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli.app import AsJson, agree, answer, app, complete_run, printed, say
from vmtax.cli.command import App
from vmtax.cli.many import forget

runs_app = App(help="List the stored runs, newest first, or remove some.", invoke_without_command=True)
app.add_typer(runs_app, name="runs")


@runs_app.callback()
def runs(ctx: typer.Context, json: AsJson = False) -> None:
    """List the stored runs, newest first, or remove some."""
    if ctx.invoked_subcommand is not None:
        return
    from vmtax.store import Store

    with Store(reads=True) as store:
        found = store.experiments()
    if json:
        from vmtax.report.answers.runs import Run

        answer("runs", [Run.made(entry) for entry in found])
        return
    if not found:
        say("no runs yet: vmtax run")
        return
    from vmtax.report.runs import runs_table

    printed(runs_table(found))


@runs_app.command("rm")
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
    from vmtax.report.runs import runs_table
    from vmtax.store import Store

    with Store() as store:
        ids = list(dict.fromkeys(store.resolve(run) for run in wanted))
        if not json:
            printed(runs_table(entry for entry in store.experiments() if entry.id in ids))
        agree(yes, f"Remove {', '.join(ids) if json else 'these'} for good? [y/N]")
        removed = []
        for id in ids:
            removed.append(store.remove(id))
            forget(id)
            if not json:
                say(f"removed {id}")
    if json:
        from vmtax.report.answers.others import Removed

        answer("removed", [Removed("run", id) for id in removed])
