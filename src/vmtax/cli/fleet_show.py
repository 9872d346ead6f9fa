"""The command `vmtax fleet show`: the costs of one plan on many hosts."""

from __future__ import annotations

from typing import Annotated

from vmtax.cli.app import format_option
from vmtax.cli.fleet import fleet_app
from vmtax.cli.many import ManyOptions, PlanName, costs_asked, show_fleet, without_names
from vmtax.report.render.formats import FLEET_FORMATS, find_fleet

FormatName = Annotated[str, format_option(tuple(FLEET_FORMATS))]


@fleet_app.command("show")
def fleet_show(plan: PlanName = "", format: FormatName = "terminal", *, asked: ManyOptions) -> None:
    """Show the costs of many hosts: their mean, where the next host lies, which are odd, and what goes with that."""
    file, format = asked.file, "json" if asked.json else format
    find_fleet(format)  # before anything is read
    runs = without_names(costs_asked(plan, asked), asked)
    show_fleet(runs, asked.label, format, file, full=asked.full)
