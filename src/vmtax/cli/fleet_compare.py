"""The command `vmtax fleet compare`: many hosts before a change and after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmtax.cli.app import AsJson, BadUse, Redact, format_option
from vmtax.cli.compare import SAME_WITHIN, fraction
from vmtax.cli.fleet import fleet_app
from vmtax.cli.many import ManyOptions, complete_label, costs_asked, show, without_names
from vmtax.report.render.formats import FLEET_CHANGE_FORMATS, find_fleet_change

if TYPE_CHECKING:
    from vmtax.analysis.many.costs import RunCosts

FormatName = Annotated[str, format_option(tuple(FLEET_CHANGE_FORMATS))]


@fleet_app.command("compare")
def fleet_compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE", help="The fleet before the change: the label of its runs.", autocompletion=complete_label
        ),
    ],
    after: Annotated[
        str, typer.Argument(metavar="AFTER", help="The fleet after the change.", autocompletion=complete_label)
    ],
    plan: Annotated[
        str, typer.Option("--plan", metavar="PLAN", help="The plan, by name. Default: that of the newest run after.")
    ] = "",
    same_within: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Mean changes up to this count as the same. Default: 3%."),
    ] = None,
    redact: Redact = False,
    full: Annotated[bool, typer.Option("--full", help="Show every time and cost.")] = False,
    format: FormatName = "terminal",
    json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; - prints. Default: -.")
    ] = None,
) -> None:
    """Compare each host of a fleet with itself, before and after a change: the mean change, and who changed unlike."""
    file = ManyOptions(output=output).file
    render = find_fleet_change(format := "json" if json else format)  # before anything is read
    given = fraction("--same-within", same_within)
    if before == after:
        raise BadUse(f"{before!r} is on both sides: name two labels")
    second = _side(after, plan, redact=redact)
    first = _side(before, second[0].plan, redact=redact)

    from vmtax.analysis.many.fleet_change import fleet_change
    from vmtax.report.sections import fleet_change as section

    change = fleet_change(first, second, SAME_WITHIN if given is None else given)
    show(lambda detail: section.document(change, detail), lambda: render(change, full), format, file, full=full)


def _side(label: str, plan: str, *, redact: bool) -> Sequence[RunCosts]:
    """The runs of that label. Raises BadUse if there are none."""
    asked = ManyOptions(label=label, redact=redact)
    return without_names(costs_asked(plan, asked), asked)
