"""What `vmtax claim run` does."""

from __future__ import annotations

from vmtax.claims.files import articles
from vmtax.claims.schema import load
from vmtax.cli.app import BadUse, say
from vmtax.cli.asked import RunOptions
from vmtax.cli.option_groups import given
from vmtax.cli.output import printed_document
from vmtax.cli.results import analysis_of
from vmtax.cli.running import carry_out
from vmtax.report.sections.claim import beside


def run(claim: str, options: RunOptions) -> None:
    """Measure, or go on, and show both side by side."""
    wanted = load(claim)
    if wanted.plan is None:
        raise BadUse(f"{claim}: no plan repeats it; claims that have one: {', '.join(articles())}")
    id = carry_out("" if given(options.continued) else wanted.plan, options)
    if options.results.json:
        return  # one answer is one JSON text
    say("")
    printed_document(beside(claim, wanted, analysis_of(id)))
