"""The commands on stored results: `vmtax show`, `report`, `compare`, `history`, `export`, `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.asked_results import Asked, CompareOptions, ManyOptions, ShowOptions
from vmtax.cli.command import App
from vmtax.cli.options import FormatName, PlanOfRuns, Redact, RunId, complete_run, format_option
from vmtax.report.render.formats import HISTORY_FORMATS

app = App()


def complete_runs(incomplete: str) -> list[str]:
    """Ids of runs, after those that are typed already."""
    named, comma, last = incomplete.rpartition(",")
    return [f"{named}{comma}{id}" for id in complete_run(last)]


@app.command()
def show(run: RunId = "last", *, options: ShowOptions, asked: Asked) -> None:
    """Show the results of a run: one screen, or everything with --full."""
    later.show.show(run, options, asked)


@app.command()
def report(
    run: RunId = "last",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to this file; - prints. Default: vmtax-RUN and the ending of the format.",
        ),
    ] = None,
    format: FormatName = "html",
    redact: Redact = False,
    *,
    asked: Asked,
) -> None:
    """Write the report of a run: one HTML file that needs nothing else, or its figures for other programs."""
    later.results.report(run, output, format, asked, redact=redact)


@app.command()
def compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="Runs before the change: ids, beginnings of ids, labels or last (newest with a result), with commas.",
            autocompletion=complete_runs,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER", help="The runs after the change, in the same way.", autocompletion=complete_runs
        ),
    ],
    more: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MORE...",
            help="More runs: then each is one of many, and what is odd, and how they change, is shown.",
            show_default=False,
        ),
    ] = None,
    *,
    options: CompareOptions,
) -> None:
    """Compare runs before a change with runs after it, such as an upgrade of the kernel, QEMU or firmware.

    Three runs or more, each an argument of its own, are compared as `vmtax history` does if they are of one host, and
    as `vmtax fleet show` does otherwise.
    """
    later.compare.compare(before, after, more or [], options)


@app.command()
def history(
    plan: PlanOfRuns = "",
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="HOST",
            help="The host, as it was given or as it calls itself. Default: that of the newest run.",
        ),
    ] = "",
    format: Annotated[str, format_option(tuple(HISTORY_FORMATS))] = "terminal",
    *,
    asked: ManyOptions,
) -> None:
    """Show the costs of one host from run to run: whether they changed, when, and how far they can have changed."""
    later.history.history(plan, host, format, asked)


@app.command()
def export(
    run: RunId = "last",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file. Default: vmtax-RUN.run.gz."),
    ] = None,
    redact: Redact = False,
) -> None:
    """Write a run to a file that `import` reads on another machine."""
    later.exchange.export(run, output, redact=redact)


@app.command("import")
def import_(file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `vmtax export` wrote.")]) -> None:
    """Add a run that was measured elsewhere to the stored runs."""
    later.exchange.import_(file)
