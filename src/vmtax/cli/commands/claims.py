"""The commands `vmtax claim`: published figures, checked, repeated, and beside one's own."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.claims.files import builtin_claims
from vmtax.cli import later
from vmtax.cli.asked import RunOptions
from vmtax.cli.command import App
from vmtax.cli.options import CLAIM_FORMATS, AsJson, complete_run, format_option

app = App(help="Check published figures, repeat their experiments, and see yours beside them.", no_args_is_help=True)


def complete_claim(incomplete: str) -> list[str]:
    """Claims that come with vmtax, for the shell's completion."""
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


@app.command("list")
def claim_list(json: AsJson = False) -> None:
    """List the claims that come with vmtax, with what the rules find in each."""
    later.claims.list_claims(json=json)


@app.command("show")
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
    later.claims.show(claim, run, format, json=json)


@app.command("check")
def claim_check(claim: ClaimName, format: ClaimFormat = "", json: AsJson = False) -> None:
    """Check published figures by rules that recompute them; exit code 4 if something in it is wrong."""
    later.claims.check(claim, format, json=json)


@app.command("run")
def claim_run(claim: ClaimName, *, options: RunOptions) -> None:
    """Measure what was published here, as `run` does with the claim's plan, and show both side by side."""
    later.claim_run.run(claim, options)
