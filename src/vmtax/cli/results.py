"""What the store has: `vmtax runs`, `show`, `report`, `export`, `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, FormatName, RunId, TextName, answer, app, printed
from vmtax.report.formats import FormatError, find
from vmtax.units import printable


@app.command()
def runs(json: AsJson = False) -> None:
    """List the runs in the store, newest first."""
    from dataclasses import asdict

    from vmtax.store import Store

    with Store() as store:
        found = store.experiments()
    if json:
        answer("runs", [asdict(entry) for entry in found])
        return
    if not found:
        print("no runs yet: vmtax run")
        return
    from vmtax.report.terminal import runs_table

    printed(runs_table(found))


@app.command()
def show(
    run: RunId = "last",
    full: Annotated[bool, typer.Option("--full", help="Every metric, every setting.")] = False,
    json: AsJson = False,
    format: TextName = "",
) -> None:
    """Show one run's results."""
    shown(run, "json" if json else format, full=full)


@app.command()
def report(
    run: RunId = "last",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="vmtax-RUN and the format's ending.")
    ] = None,
    format: FormatName = "html",
) -> None:
    """Write one run's report: one HTML file that needs nothing else, or the measurements for other programs."""
    print(written(run, output, format))


@app.command()
def export(
    run: RunId = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="vmtax-RUN.run.gz.")] = None,
) -> None:
    """Write one run to a file, for another machine to show and compare."""
    from vmtax import share
    from vmtax.store import Store

    with Store() as store:
        print(share.export(store, run, output))


@app.command("import")
def import_(file: Annotated[Path, typer.Argument(metavar="FILE", help="What `vmtax export` wrote.")]) -> None:
    """Add a run that was measured elsewhere to the store."""
    from vmtax import share
    from vmtax.store import Store

    with Store() as store:
        experiment = share.import_(store, file)
    print(printable(f"{experiment.id}  {len(experiment.trials)} trials of {experiment.name} on {experiment.host}"))


def shown(run: str, format: str, *, full: bool = False) -> None:
    """On the terminal, or as the text of one of FORMATS."""
    wanted = find(format) if format else None
    if wanted and not wanted.text:
        raise FormatError(f"{format} is no text: vmtax report {run} --format {format}")
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    comparisons = compare.of(experiment)
    if wanted:
        print(wanted.render(experiment, comparisons).decode(), end="")
        return
    from vmtax.report.terminal import render

    printed(render(experiment, comparisons, full))


def written(run: str, target: Path | None, format: str = "html") -> Path:
    wanted = find(format)
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    file = target or Path(f"vmtax-{experiment.id}{wanted.suffix}")
    try:
        file.write_bytes(wanted.render(experiment, compare.of(experiment)))
    except OSError as error:
        raise BadUse(f"{file}: {error.strerror}; name another file with --output") from error
    return file
