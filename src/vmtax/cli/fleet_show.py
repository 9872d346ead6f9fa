"""The command `vmtax fleet show`: the costs of one plan on many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, Redact, format_option
from vmtax.cli.files import STDOUT, check_output
from vmtax.cli.fleet import fleet_app
from vmtax.cli.many import LabelName, PlanName, costs_of, meant, show_fleet
from vmtax.report.render.formats import FLEET_FORMATS, find_fleet

if TYPE_CHECKING:
    from vmtax.analysis.many.costs import RunCosts

FormatName = Annotated[str, format_option(tuple(FLEET_FORMATS))]


@fleet_app.command("show")
def fleet_show(
    plan: PlanName = "",
    label: LabelName = "",
    redact: Redact = False,
    full: Annotated[bool, typer.Option("--full", help="Show every cost.")] = False,
    format: FormatName = "terminal",
    json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; - prints. Default: -.")
    ] = None,
) -> None:
    """Show the costs of many hosts: their mean, where the next host lies, which are odd, and what goes with that."""
    if output == STDOUT:
        output = None
    if output is not None:
        check_output(output)
    format = "json" if json else format
    find_fleet(format)  # before anything is read
    runs = _runs(plan, label)
    if redact:
        from vmtax.analysis.redaction import redacted_costs

        runs = [*map(redacted_costs, runs)]
    show_fleet(runs, label, format, output, full=full)


def _runs(plan: str, label: str) -> list[RunCosts]:
    from vmtax.store import Store

    with Store(reads=True) as store:
        runs = costs_of(store, meant(store, plan, label))
    if not runs:
        raise BadUse("no run has a plan that this version can read: vmtax run")
    return runs
