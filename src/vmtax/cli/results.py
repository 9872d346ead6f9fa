"""The commands on stored results: `vmtax show`, `report`, `export`, `import`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import (
    PART,
    AcceptLoss,
    BadUse,
    FormatName,
    ForProfile,
    Needs,
    Part,
    Redact,
    RunId,
    TextName,
    Weights,
    answer,
    app,
    complete_feature,
    document,
    printed,
    say,
    warn,
    with_result,
    write_file,
)
from vmtax.cli.files import STDOUT, check_input, check_output
from vmtax.cli.many import keep_costs
from vmtax.core.errors import BadInput
from vmtax.report.render.formats import Format, find

if TYPE_CHECKING:
    from vmtax.analysis.analysis import Analysis
    from vmtax.analysis.requirements import Requirements
    from vmtax.analysis.weight_profiles import WeightProfile
    from vmtax.core.records import Experiment
    from vmtax.store import Store


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for besides the run."""

    for_: ForProfile = ""
    weights: Weights = ""
    needs: Needs = ""
    accept_loss: AcceptLoss = False

    def analysis(self, run: str, format: Format | None = None, *, redact: bool = False) -> Analysis:
        """The analysis of a stored run; `redact`: without the names of machines. Refuses options that the format cannot
        show, or the run cannot answer.
        """
        from vmtax.analysis import results
        from vmtax.analysis.analysis import Analysis
        from vmtax.store import Store

        with Store(reads=True) as store:
            experiment = store.load(with_result(store, run))
            kept = None if redact else store.results(experiment)
        if redact:
            from vmtax.analysis.redaction import redacted

            experiment = redacted(experiment)
        known = results.read(kept, experiment) if kept is not None else None
        analysis = Analysis(experiment, self._profile(experiment, format), self._requirements(format), known)
        if self._needs_option:
            self._check(analysis)
        return analysis

    def _check(self, analysis: Analysis) -> None:
        """Refuses --needs if the run has no recommendation that could meet them."""
        from vmtax.recommend import DISK, KINDS
        from vmtax.report.sections.recommendation import why_not

        asked = analysis.requirements
        kinds = [kind for kind in KINDS if set(asked.needs) & {*kind.features}]
        for kind in dict.fromkeys((*kinds, *((DISK,) if asked.accept_loss else ()))) or (DISK,):
            if why := why_not(analysis, kind):
                raise BadUse(f"{self._needs_option}: {why}")

    @property
    def _needs_option(self) -> str:
        """The option that asks something of a choice; "" if there is none."""
        return "--needs" if self.needs else "--accept-loss" if self.accept_loss else ""

    def _profile(self, experiment: Experiment, format: Format | None) -> WeightProfile | None:
        if not (self.for_ or self.weights):
            return None
        if format and not format.ranks:
            raise BadInput(f"{format.name} has measurements and no rankings: leave out --for and --weights")
        from vmtax.analysis import weight_profiles

        return weight_profiles.asked(experiment, self.for_, self.weights)

    def _requirements(self, format: Format | None) -> Requirements | None:
        if not self._needs_option:
            return None
        if format and not format.ranks:
            raise BadInput(f"{format.name} has measurements and no recommendation: leave out {self._needs_option}")
        from vmtax.analysis.requirements import Requirements
        from vmtax.recommend import parse_needs

        return Requirements(parse_needs(self.needs), self.accept_loss)


@app.command()
def show(
    run: RunId = "last",
    full: Annotated[bool, typer.Option("--full", help="Show every metric, setting and warning.")] = False,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Print what is recommended as commands and settings for QEMU, libvirt and Proxmox."
        ),
    ] = False,
    why: Annotated[
        str,
        typer.Option(
            "--why",
            metavar="FEATURE",
            help="List what shows that each choice has this feature of --needs, or not: durable, say.",
            autocompletion=complete_feature,
        ),
    ] = "",
    json: Annotated[
        bool, typer.Option("--json", help=f"Print JSON (schema vmtax/1); --json={PART} prints only the first screen.")
    ] = False,
    part: Part = "",
    format: TextName = "",
    no_pager: Annotated[
        bool, typer.Option("--no-pager", help="Print without a pager, even if the answer is longer than the screen.")
    ] = False,
    *,
    asked: Asked,
) -> None:
    """Show the results of a run: one screen, or everything with --full."""
    if why:
        if apply or json or part or format or full:
            raise BadUse("--why prints the evidence as text: leave out --apply, --json, --format and --full")
        explained(run, why, asked=asked, paged=not no_pager)
        return
    if part and part != PART:
        raise BadUse(f"--json={part}: an answer has no such part; --json={PART} prints the figures of the first screen")
    if part and (apply or format or full):
        raise BadUse(f"--json={PART} prints one part of the answer: leave out --apply, --format and --full")
    if part:
        from vmtax.report.answers.summary import summary

        answer(PART, summary(asked.analysis(run)))
        return
    if not apply:
        if json and format not in ("", "json"):
            raise BadUse(f"--json and --format {format} are two formats: leave out one of them")
        if full and (json or format):
            raise BadUse("--full is about the text on the terminal; other formats hold everything: leave out --full")
        shown(run, "json" if json else format, full=full, asked=asked, paged=not no_pager)
        return
    if json or format or full:
        raise BadUse("--apply prints one recommendation as text: leave out --json, --format and --full")
    applied(run, asked)


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
    if output == STDOUT:
        shown(run, format, asked=asked, redact=redact)
    else:
        say(written(run, output, format, asked=asked, redact=redact))


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
    from vmtax.experiment import archive
    from vmtax.store import Store

    if output is not None:
        check_output(output, regular=True)
    from vmtax.analysis.redaction import redacted

    with Store(reads=True) as store:
        exported = archive.export(store, with_result(store, run), output, redacted if redact else None)
    say(exported.file)
    if exported.missing:
        warn(f"raw outputs left out: {len(exported.missing)}; {exported.missing[0]}")


@app.command("import")
def import_(file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `vmtax export` wrote.")]) -> None:
    """Add a run that was measured elsewhere to the stored runs."""
    from vmtax.experiment import archive
    from vmtax.store import Store

    check_input(file, "`vmtax export` wrote")
    with Store() as store:
        added = archive.import_(store, file)
        keep_results(store, added.id)
    if added.dropped:
        warn(added.dropped)
    say(f"{added.id}  imported {added.trials} measurements of {added.name}")


def keep_results(store: Store, id: str) -> None:
    """Compute what every report of this run needs, and store it with the run, together with its headline for lists.

    This is done here because only cli knows both sides: the run does not know the reports, and the store computes
    nothing.
    """
    from vmtax.analysis import results
    from vmtax.analysis.analysis import Analysis
    from vmtax.report.wording.headline import in_few_words
    from vmtax.store import StoreError

    experiment = store.load(id)
    with contextlib.suppress(StoreError):  # for example, the disk is full: it is computed again when it is shown
        analysis = Analysis(experiment)
        store.keep_headline(id, in_few_words(analysis))
        store.keep_results(experiment, results.written(analysis.results))
    keep_costs(store, experiment)


def shown(
    run: str, format: str, *, full: bool = False, asked: Asked = Asked(), paged: bool = False, redact: bool = False
) -> None:
    """Print it on the terminal, or as text in one of FORMATS."""
    wanted = find(format, printed=True) if format else None
    if wanted and not wanted.text:
        raise BadInput(f"{format} is no text, write it to a file: vmtax report {run} --format {format}")
    analysis = asked.analysis(run, wanted, redact=redact)
    if wanted:
        document(piece.decode() for piece in wanted.pieces(analysis))
        return
    from vmtax.report.show import render

    printed(render(analysis, full), paged=paged)


def explained(run: str, feature: str, *, asked: Asked = Asked(), paged: bool = False) -> None:
    """Print the evidence, for each choice, of whether it has a feature."""
    from vmtax.report.show import evidence

    printed(evidence(asked.analysis(run), feature), paged=paged)


def written(
    run: str, target: Path | None, format: str = "html", *, asked: Asked = Asked(), redact: bool = False
) -> Path:
    """Write a report to a file; returns its path."""
    wanted = find(format)
    if target is not None:
        check_output(target)
    analysis = asked.analysis(run, wanted, redact=redact)
    file = target or Path(f"vmtax-{analysis.experiment.id}{wanted.suffix}")
    write_file(file, wanted.pieces(analysis))
    return file


def applied(run: str, asked: Asked) -> None:
    """Print the recommendation in every form, ready to be copied."""
    from vmtax.report.sections.recommendation import recommendations, to_apply, why_not

    analysis = asked.analysis(run)
    found = recommendations(analysis)
    if not found:
        raise BadUse(f"--apply: {why_not(analysis)}")
    texts = [to_apply(one) for one in found]  # raises before anything is printed if nothing meets the needs
    for number, text in enumerate(texts):
        for line in (*([""] if number else ()), *text):
            say(line)
