"""What the commands `vmtax claim` do, except `claim run`."""

from __future__ import annotations

import typer

from vmtax.analysis.analysis import Analysis
from vmtax.claims.checked import checked
from vmtax.claims.files import builtin_claims
from vmtax.claims.schema import load
from vmtax.cli.app import BadUse, answer, document
from vmtax.cli.options import CLAIM_FORMATS
from vmtax.cli.output import printed_document
from vmtax.core.errors import CLAIM_FAILS, BadInput
from vmtax.report.answers import claims as answers
from vmtax.report.document import Document
from vmtax.report.render.markdown import whole as markdown
from vmtax.report.sections import claim as sections

MARKDOWN = "markdown"


def list_claims(*, json: bool) -> None:
    """Each with what the rules find in it."""
    found = [(name, checked(load(name))) for name in builtin_claims()]
    if json:
        answer("claims", [answers.claim_line(*entry) for entry in found])
    else:
        printed_document(sections.claims(found))


def show(claim: str, run: str, format: str, *, json: bool) -> None:
    """`run`: "" for the claim alone."""
    wanted, analysis = load(claim), _analysis(run) if run else None
    if _format(format, json) == "json":
        answer("claim", answers.shown_claim(claim, wanted, analysis))
        return
    document = sections.show(claim, wanted) if analysis is None else sections.beside(claim, wanted, analysis)
    _printed(document, format)


def check(claim: str, format: str, *, json: bool) -> None:
    """Raises typer.Exit if something in it is wrong."""
    found = checked(load(claim))
    if _format(format, json) == "json":
        answer("claim-check", answers.claim_check(claim, found))
    else:
        _printed(sections.check(claim, found), format)
    if found.verdict == "wrong":
        raise typer.Exit(CLAIM_FAILS)


def _analysis(run: str) -> Analysis:
    from vmtax.cli.results import analysis_of  # here, because a claim alone takes no store

    return analysis_of(run)


def _format(format: str, json: bool) -> str:
    if json and format not in ("", "json"):
        raise BadUse(f"--json and --format {format} are two formats: leave out one of them")
    if format and format not in CLAIM_FORMATS:
        raise BadInput(f"unknown format {format!r}; there are: {', '.join(CLAIM_FORMATS)}")
    return "json" if json else format


def _printed(found: Document, format: str) -> None:
    if format == MARKDOWN:
        document(markdown(found, comment=True))
    else:
        printed_document(found)
