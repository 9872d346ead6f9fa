"""The commands that measure, and look on: `vmtax run`, `watch` and `calibrate`."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.asked import CalibrateOptions, RunOptions
from vmtax.cli.command import App
from vmtax.cli.options import PLAN_HELP, complete_plan, run_ids

app = App()


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
        later.fleet_task.carry_out_task(plan, options)
    else:
        later.running.carry_out(plan, options)


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
    later.watch.watch(run)


@app.command()
def calibrate(
    plan: Annotated[
        str,
        typer.Argument(metavar="[PLAN]", help=PLAN_HELP, autocompletion=complete_plan),
    ] = "quick",
    *,
    options: CalibrateOptions,
) -> None:
    """Compare a guest with itself, to see what precision this machine reaches, in what time, and how much it varies."""
    later.calibrate.calibrate(plan, options)
