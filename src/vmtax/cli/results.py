"""What the store has: `vmtax show`, `report`, `export`, `import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import (
    AcceptLoss,
    AsJson,
    BadUse,
    FormatName,
    ForMix,
    Needs,
    RunId,
    TextName,
    Weights,
    app,
    document,
    printed,
    say,
    warn,
    write_file,
)
from vmtax.cli.files import STDOUT, check_input, check_output
from vmtax.core.errors import BadInput
from vmtax.report.render.formats import Format, find

if TYPE_CHECKING:
    from vmtax.analysis.requirements import Wish
    from vmtax.analysis.weight_profiles import Mix
    from vmtax.core.records import Experiment


@app.command()
def show(
    run: RunId = "last",
    full: Annotated[bool, typer.Option("--full", help="Every metric, every setting.")] = False,
    for_: ForMix = "",
    weights: Weights = "",
    needs: Needs = "",
    accept_loss: AcceptLoss = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Print the recommended disk as commands, QEMU, libvirt and Proxmox take it.")
    ] = False,
    json: AsJson = False,
    format: TextName = "",
) -> None:
    """Show one run's results."""
    asked = Asked(for_, weights, needs, accept_loss)
    if not apply:
        shown(run, "json" if json else format, full=full, asked=asked)
        return
    if json or format or full:
        raise BadUse("--apply prints one recommendation as text: leave out --json, --format and --full")
    applied(run, asked)


@app.command()
def report(
    run: RunId = "last",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="vmtax-RUN and the format's ending; - prints it."),
    ] = None,
    format: FormatName = "html",
    for_: ForMix = "",
    weights: Weights = "",
    needs: Needs = "",
    accept_loss: AcceptLoss = False,
) -> None:
    """Write one run's report: one HTML file that needs nothing else, or the measurements for other programs."""
    asked = Asked(for_, weights, needs, accept_loss)
    if output == STDOUT:
        shown(run, format, asked=asked)
    else:
        say(written(run, output, format, asked=asked))


@app.command()
def export(
    run: RunId = "last",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="vmtax-RUN.run.gz.")] = None,
) -> None:
    """Write one run to a file, for another machine to show and compare."""
    from vmtax.experiment import archive
    from vmtax.store import Store

    if output is not None:
        check_output(output, regular=True)
    with Store() as store:
        exported = archive.export(store, run, output)
    say(exported.file)
    if exported.missing:
        warn(f"raw outputs left out: {len(exported.missing)}; {exported.missing[0]}")


@app.command("import")
def import_(file: Annotated[Path, typer.Argument(metavar="FILE", help="What `vmtax export` wrote.")]) -> None:
    """Add a run that was measured elsewhere to the store."""
    from vmtax.experiment import archive
    from vmtax.store import Store

    check_input(file, "`vmtax export` wrote")
    with Store() as store:
        added = archive.import_(store, file)
    say(f"{added.id}  {added.trials} trials of {added.name} on {added.host}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says beyond the run."""

    for_: str = ""
    weights: str = ""
    needs: str = ""
    accept_loss: bool = False

    def mix(self, experiment: Experiment, wanted: Format | None) -> Mix | None:
        """What the storage is also to be ranked by."""
        if not (self.for_ or self.weights):
            return None
        if wanted and not wanted.ranks:
            raise BadInput(f"{wanted.name} has measurements and no rankings: leave out --for and --weights")
        from vmtax.analysis import weight_profiles as mix

        return mix.asked(experiment, self.for_, self.weights)

    def wish(self, experiment: Experiment, wanted: Format | None) -> Wish | None:
        """What the disk is to be that is recommended; refused where nothing can be."""
        if not (self.needs or self.accept_loss):
            return None
        option = "--needs" if self.needs else "--accept-loss"
        if wanted and not wanted.ranks:
            raise BadInput(f"{wanted.name} has measurements and no recommendation: leave out {option}")
        from vmtax.analysis.requirements import Wish
        from vmtax.recommend import parse_needs
        from vmtax.report.sections.recommendation import why_not

        needs = parse_needs(self.needs)
        if why := why_not(experiment):
            raise BadUse(f"{option}: {why}")
        return Wish(needs, self.accept_loss)


def shown(run: str, format: str, *, full: bool = False, asked: Asked = Asked()) -> None:
    """On the terminal, or as the text of one of FORMATS."""
    wanted = find(format) if format else None
    if wanted and not wanted.text:
        raise BadInput(f"{format} is no text, write it to a file: vmtax report {run} --format {format}")
    from vmtax.analysis import comparisons as compare

    experiment = _loaded(run)
    mix, wish = asked.mix(experiment, wanted), asked.wish(experiment, wanted)
    comparisons = compare.of(experiment)
    if wanted:
        document(wanted.render(experiment, comparisons, mix, wish).decode())
        return
    from vmtax.report.render.terminal import render

    printed(render(experiment, comparisons, full, mix, wish))


def written(run: str, target: Path | None, format: str = "html", *, asked: Asked = Asked()) -> Path:
    """The file."""
    wanted = find(format)
    from vmtax.analysis import comparisons as compare

    if target is not None:
        check_output(target)
    experiment = _loaded(run)
    mix, wish = asked.mix(experiment, wanted), asked.wish(experiment, wanted)
    file = target or Path(f"vmtax-{experiment.id}{wanted.suffix}")
    write_file(file, wanted.render(experiment, compare.of(experiment), mix, wish))
    return file


def applied(run: str, asked: Asked) -> None:
    """The recommended disk in every form, ready to be copied."""
    from vmtax.report.sections.recommendation import advised, to_apply, why_not

    experiment = _loaded(run)
    mix, wish = asked.mix(experiment, None), asked.wish(experiment, None)
    told = advised(experiment, mix, wish)
    if told is None:
        raise BadUse(f"--apply: {why_not(experiment)}")
    for line in to_apply(told):
        say(line)


def _loaded(run: str) -> Experiment:
    from vmtax.store import Store

    with Store() as store:
        return store.load(run)
