"""What the store has: `vmtax runs`, `show`, `report`, `export`, `import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, FormatName, ForMix, RunId, TextName, Weights, answer, app, printed
from vmtax.report.formats import Format, FormatError, find
from vmtax.units import printable

if TYPE_CHECKING:
    from vmtax.mix import Mix
    from vmtax.result import Experiment


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
    for_: ForMix = "",
    weights: Weights = "",
    json: AsJson = False,
    format: TextName = "",
) -> None:
    """Show one run's results."""
    shown(run, "json" if json else format, full=full, ranked_for=(for_, weights))


@app.command()
def report(
    run: RunId = "last",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="vmtax-RUN and the format's ending.")
    ] = None,
    format: FormatName = "html",
    for_: ForMix = "",
    weights: Weights = "",
) -> None:
    """Write one run's report: one HTML file that needs nothing else, or the measurements for other programs."""
    print(written(run, output, format, ranked_for=(for_, weights)))


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


def shown(run: str, format: str, *, full: bool = False, ranked_for: tuple[str, str] = ("", "")) -> None:
    """On the terminal, or as the text of one of FORMATS. `ranked_for`: what --for and --weights say."""
    wanted = find(format) if format else None
    if wanted and not wanted.text:
        raise FormatError(f"{format} is no text: vmtax report {run} --format {format}")
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    mix = _mix(experiment, ranked_for, wanted)
    comparisons = compare.of(experiment)
    if wanted:
        print(wanted.render(experiment, comparisons, mix).decode(), end="")
        return
    from vmtax.report.terminal import render

    printed(render(experiment, comparisons, full, mix))


def written(run: str, target: Path | None, format: str = "html", *, ranked_for: tuple[str, str] = ("", "")) -> Path:
    """The file; `ranked_for`: what --for and --weights say."""
    wanted = find(format)
    from vmtax import compare
    from vmtax.store import Store

    with Store() as store:
        experiment = store.load(run)
    mix = _mix(experiment, ranked_for, wanted)
    file = target or Path(f"vmtax-{experiment.id}{wanted.suffix}")
    try:
        file.write_bytes(wanted.render(experiment, compare.of(experiment), mix))
    except OSError as error:
        raise BadUse(f"{file}: {error.strerror}; name another file with --output") from error
    return file


def _mix(experiment: Experiment, ranked_for: tuple[str, str], wanted: Format | None) -> Mix | None:
    """What the storage is also to be ranked by."""
    if not any(ranked_for):
        return None
    if wanted and not wanted.ranks:
        raise FormatError(f"{wanted.name} has measurements and no rankings: leave out --for and --weights")
    from vmtax import mix

    return mix.asked(experiment, *ranked_for)
