"""What `vmtax report` does: the analysis of a stored run, in one of FORMATS."""

from __future__ import annotations

from pathlib import Path

from vmtax.analysis import results, weight_profiles
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.requirements import Requirements
from vmtax.analysis.weight_profiles import WeightProfile
from vmtax.cli.app import BadUse, document, say, with_result, write_file
from vmtax.cli.asked_results import Asked
from vmtax.cli.files import STDOUT, check_output
from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment
from vmtax.report.render.formats import Format, find
from vmtax.store import Store

NOTHING = Asked()


def report(run: str, output: Path | None, format: str, asked: Asked, *, redact: bool) -> None:
    """`output`: -, to print it."""
    if output == STDOUT:
        print_as(run, format, asked=asked, redact=redact)
    else:
        say(written(run, output, format, asked=asked, redact=redact))


def analysis_of(run: str, asked: Asked = NOTHING, format: Format | None = None, *, redact: bool = False) -> Analysis:
    """The analysis of a stored run; `redact`: without the names of machines. Refuses options that the format cannot
    show, or the run cannot answer.
    """
    with Store(reads=True) as store:
        experiment = store.load(with_result(store, run))
        kept = None if redact else store.results(experiment)
    if redact:
        from vmtax.analysis.redaction import redacted

        experiment = redacted(experiment)
    known = results.read(kept, experiment) if kept is not None else None
    analysis = Analysis(experiment, _profile(asked, experiment, format), _requirements(asked, format), known)
    if asked.needs_option:
        _check(analysis, asked)
    return analysis


def _profile(asked: Asked, experiment: Experiment, format: Format | None) -> WeightProfile | None:
    if not (asked.for_ or asked.weights):
        return None
    if format and not format.ranks:
        raise BadInput(f"{format.name} has measurements and no rankings: leave out --for and --weights")
    return weight_profiles.asked(experiment, asked.for_, asked.weights)


def _requirements(asked: Asked, format: Format | None) -> Requirements | None:
    if not asked.needs_option:
        return None
    if format and not format.ranks:
        raise BadInput(f"{format.name} has measurements and no recommendation: leave out {asked.needs_option}")
    from vmtax.recommend import parse_needs  # here and below, because `show` of a run that recommends nothing is quick

    return Requirements(parse_needs(asked.needs), asked.accept_loss)


def _check(analysis: Analysis, asked: Asked) -> None:
    """Refuses --needs if the run has no recommendation that could meet them."""
    from vmtax.recommend import DISK, KINDS
    from vmtax.report.sections.recommendation import why_not

    wanted = analysis.requirements
    kinds = [kind for kind in KINDS if set(wanted.needs) & {*kind.features}]
    for kind in dict.fromkeys((*kinds, *((DISK,) if wanted.accept_loss else ()))) or (DISK,):
        if why := why_not(analysis, kind):
            raise BadUse(f"{asked.needs_option}: {why}")


def print_as(run: str, format: str, *, asked: Asked = NOTHING, redact: bool = False) -> None:
    """Print it as text in one of FORMATS."""
    wanted = find(format, printed=True)
    if not wanted.text:
        raise BadInput(f"{format} is no text, write it to a file: vmtax report {run} --format {format}")
    analysis = analysis_of(run, asked, wanted, redact=redact)
    document(piece.decode() for piece in wanted.pieces(analysis))


def written(
    run: str, target: Path | None, format: str = "html", *, asked: Asked = NOTHING, redact: bool = False
) -> Path:
    """Write a report to a file; returns its path."""
    wanted = find(format)
    if target is not None:
        check_output(target)
    analysis = analysis_of(run, asked, wanted, redact=redact)
    file = target or Path(f"vmtax-{analysis.experiment.id}{wanted.suffix}")
    write_file(file, wanted.pieces(analysis))
    return file
