"""The commands `vmtax claim`: published figures, checked, repeated, and beside one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, answer, app, complete_run, document, format_option, printed, say, with_result
from vmtax.cli.asked import RunOptions
from vmtax.cli.command import App
from vmtax.core.errors import CLAIM_FAILS, BadInput

if TYPE_CHECKING:
    from vmtax.analysis.analysis import Analysis
    from vmtax.report.document import Document

claim_app = App(
    help="Check published figures, repeat their experiments, and see yours beside them.", no_args_is_help=True
)
app.add_typer(claim_app, name="claim")

MARKDOWN = "markdown"
CLAIM_FORMATS = ("terminal", MARKDOWN, "json")


def complete_claim(incomplete: str) -> list[str]:
    """Claims that come with vmtax, for the shell's completion."""
    from vmtax.claims.schema import builtin_claims

    return [name for name in builtin_claims() if name.startswith(incomplete)]


ClaimName = Annotated[
    str,
    typer.Argument(
        metavar="CLAIM",
        help="The name of a claim that comes with vmtax (`vmtax claim list`), or a YAML file of yours.",
        autocompletion=complete_claim,
    ),
]
ClaimFormat = Annotated[str, format_option(CLAIM_FORMATS)]


@claim_app.command("list")
def claim_list(json: AsJson = False) -> None:
    """List the claims that come with vmtax, with what the rules find in each."""
    from vmtax.claims.checked import checked
    from vmtax.claims.schema import builtin_claims, load

    found = [(name, checked(load(name))) for name in builtin_claims()]
    if json:
        from vmtax.report.answers.claims import claim_line

        answer("claims", [claim_line(*entry) for entry in found])
        return
    from vmtax.report.sections.claim import claims

    _printed(claims(found), "")


@claim_app.command("show")
def claim_show(
    claim: ClaimName,
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="Show this run's figures beside those of the claim: its id, label, or last.",
            autocompletion=complete_run,
        ),
    ] = "",
    format: ClaimFormat = "",
    json: AsJson = False,
) -> None:
    """Show what was published; with a run, its figures beside it, and what is different."""
    from vmtax.claims.schema import load

    wanted, analysis = load(claim), _analysis(run) if run else None
    if _format(format, json) == "json":
        from vmtax.report.answers.claims import shown_claim

        answer("claim", shown_claim(claim, wanted, analysis))
        return
    from vmtax.report.sections import claim as sections

    document = sections.show(claim, wanted) if analysis is None else sections.beside(claim, wanted, analysis)
    _printed(document, format)


@claim_app.command("check")
def claim_check(claim: ClaimName, format: ClaimFormat = "", json: AsJson = False) -> None:
    """Check published figures by rules that recompute them; exit code 4 if something in it is wrong."""
    from vmtax.claims.checked import checked
    from vmtax.claims.schema import load

    found = checked(load(claim))
    if _format(format, json) == "json":
        from vmtax.report.answers import claims

        answer("claim-check", claims.claim_check(claim, found))
    else:
        from vmtax.report.sections.claim import check

        _printed(check(claim, found), format)
    if found.verdict == "wrong":
        raise typer.Exit(CLAIM_FAILS)


@claim_app.command("run")
def claim_run(claim: ClaimName, *, options: RunOptions) -> None:
    """Measure what was published here, as `run` does with the claim's plan, and show both side by side."""
    from vmtax.claims.schema import articles, load
    from vmtax.cli.option_groups import given
    from vmtax.cli.running import carry_out

    wanted = load(claim)
    if wanted.plan is None:
        raise BadUse(f"{claim}: no plan repeats it; claims that have one: {', '.join(articles())}")
    id = carry_out("" if given(options.continued) else wanted.plan, options)
    if options.results.json:
        return  # one answer is one JSON text
    from vmtax.report.sections.claim import beside

    say("")
    _printed(beside(claim, wanted, _analysis(id)), "")


def _analysis(run: str) -> Analysis:
    from vmtax.analysis import results
    from vmtax.analysis.analysis import Analysis
    from vmtax.store import Store

    with Store(reads=True) as store:
        experiment = store.load(with_result(store, run))
        kept = store.results(experiment)
    return Analysis(experiment, results=results.read(kept, experiment) if kept is not None else None)


def _format(format: str, json: bool) -> str:
    if json and format not in ("", "json"):
        raise BadUse(f"--json and --format {format} are two formats: leave out one of them")
    if format and format not in CLAIM_FORMATS:
        raise BadInput(f"unknown format {format!r}; there are: {', '.join(CLAIM_FORMATS)}")
    return "json" if json else format


def _printed(found: Document, format: str) -> None:
    if format == MARKDOWN:
        from vmtax.report.render.markdown import whole as markdown

        document(markdown(found, comment=True))
        return
    from vmtax.report.document import Detail
    from vmtax.report.render.terminal import whole

    printed(whole(found, Detail.BRIEF))
