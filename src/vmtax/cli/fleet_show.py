"""The command `vmtax fleet show`: the costs of one plan on many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, Redact, document, format_option, printed, say, write_file
from vmtax.cli.files import STDOUT, check_output
from vmtax.cli.fleet import fleet_app
from vmtax.cli.many import LabelName, PlanName, costs_of, meant
from vmtax.report.render.formats import FLEET_FORMATS, find_fleet

if TYPE_CHECKING:
    from vmtax.analysis.many.fleet import Fleet

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
    render = find_fleet(format)
    found = _fleet(plan, label, redact=redact)
    if output is not None:
        write_file(output, render(found, full).encode())
        say(output)
    elif format == "terminal":
        from vmtax.report.document import Detail
        from vmtax.report.render.terminal import whole
        from vmtax.report.sections import fleet as section

        detail = Detail.FULL if full else Detail.BRIEF
        printed(whole(section.document(found, detail), detail))
    else:
        document(render(found, full))


def _fleet(plan: str, label: str, *, redact: bool) -> Fleet:
    from vmtax.analysis.many.fleet import fleet
    from vmtax.store import Store

    with Store(reads=True) as store:
        runs = costs_of(store, meant(store, plan, label))
    if not runs:
        raise BadUse("no run has a plan that this version can read: vmtax run")
    if redact:
        from vmtax.analysis.redaction import redacted_costs

        runs = [*map(redacted_costs, runs)]
    return fleet(runs, label)
