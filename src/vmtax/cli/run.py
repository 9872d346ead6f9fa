"""The commands `vmtax run` and `vmtax watch`."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

from vmtax.cli.app import BadUse, app, complete_plan, fail, run_ids, say
from vmtax.cli.asked import RunOptions
from vmtax.cli.options import PLAN_HELP
from vmtax.core.errors import FAILED


def complete_work(ctx: typer.Context, incomplete: str) -> list[str]:
    """Plans; after --resume and --after-reboot, stopped runs."""
    return (
        run_ids(incomplete, "interrupted", "failed", labels=True)
        if ctx.params.get("resume") or ctx.params.get("after_reboot")
        else complete_plan(incomplete)
    )


def complete_running(incomplete: str) -> list[str]:
    """Runs that can be watched."""
    return run_ids(incomplete, "running", labels=True)


@app.command()
def run(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="[PLAN]",
            help=f"{PLAN_HELP} Default: quick. With --resume or --after-reboot, the run to finish.",
            autocompletion=complete_work,
        ),
    ] = "",
    *,
    options: RunOptions,
) -> None:
    """Measure a machine, print the answer and write the report."""
    if options.fleet is not None:
        from vmtax.cli.fleet_task import carry_out_task

        carry_out_task(plan, options)
        return
    from vmtax.cli.running import carry_out

    carry_out(plan, options)


@app.command()
def watch(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="A run: its id, the beginning of the id, or its label. Default: the one that is running.",
            autocompletion=complete_running,
        ),
    ] = "",
) -> None:
    """Watch a run that is running in another terminal."""
    from vmtax.experiment import live, progress
    from vmtax.store import Store

    with Store(reads=True) as store:
        meant = [entry for entry in store.experiments() if entry.label == run or entry.id.startswith(run)]
        running = [entry for entry in meant if entry.state == "running"]
        if not running:
            if run:
                raise BadUse(f"run {run} is not running: `vmtax runs` lists all runs")
            fail("no run is running: `vmtax run` starts one, `vmtax runs` lists all runs", FAILED)
        id = running[0].id

        def going_on() -> bool:
            return next(entry.state for entry in store.experiments() if entry.id == id) == "running"

        say(f"run {id}", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            progress.follow(live.states(id, going_on, every=0.5))
        state = next(entry.state for entry in store.experiments() if entry.id == id)
    say(f"run {id} is {state}: vmtax show {id}", file=sys.stderr)
