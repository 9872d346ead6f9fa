"""The commands `vmtax fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.asked_results import FleetCompareOptions, ManyOptions, complete_label
from vmtax.cli.command import App
from vmtax.cli.options import AsJson, PlanName, PlanOfRuns, Yes, format_option
from vmtax.report.render.formats import FLEET_FORMATS

app = App(help="Measure many hosts, and look after that.", no_args_is_help=True)

FleetName = Annotated[str, typer.Argument(metavar="NAME", help="The fleet: the label of its runs.")]
Inventory = Annotated[
    str | None,
    typer.Option("--inventory", "-i", metavar="INVENTORY", help="An inventory of Ansible's: a file or a directory."),
]
HostsFile = Annotated[
    Path | None,
    typer.Option("--hosts", metavar="FILE", help="Without Ansible: a file with one address in each line."),
]
Called = Annotated[
    str | None,
    typer.Option("--fleet", metavar="NAME", help="What the fleet is called. Default: the plan's name and the date."),
]
RunWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- OPTION...]", help="Options of `vmtax run`, for each host.", show_default=False),
]


@app.command("run")
def fleet_run(
    plan: PlanName,
    options: RunWords = None,
    inventory: Inventory = None,
    hosts: HostsFile = None,
    fleet: Called = None,
    yes: Yes = False,
) -> None:
    """Measure each host of an inventory once; may be repeated, and run in several places at once."""
    later.fleets.carry_out_fleet(plan, options or [], inventory, hosts, fleet, yes=yes)


@app.command("hosts")
def fleet_hosts(inventory: Inventory = None, hosts: HostsFile = None) -> None:
    """List the hosts and what can be reached; measure nothing."""
    later.fleets.looked_at("", [], inventory, hosts)


@app.command("playbook")
def fleet_playbook(plan: PlanName, options: RunWords = None, fleet: Called = None) -> None:
    """Print the playbook that `fleet run` runs, for AWX, Semaphore or cron."""
    later.fleets.print_playbook(plan, options or [], fleet)


@app.command("status")
def fleet_status(fleet: FleetName, json: AsJson = False) -> None:
    """List the runs of a fleet, wherever they are measured, as far as the store knows."""
    later.runs.fleet_status(fleet, json=json)


@app.command("stop")
def fleet_stop(
    fleet: FleetName,
    undo: Annotated[bool, typer.Option("--undo", help="Let it go on, where something repeats it.")] = False,
) -> None:
    """Stop the runs of a fleet on all controllers that use this store; results are kept, and none begins."""
    later.fleets.stop(fleet, undo=undo)


@app.command("dashboard")
def fleet_dashboard() -> None:
    """Print a dashboard for Grafana: what the VMs of each host cost, from a shared store in PostgreSQL."""
    later.fleets.print_dashboard()


@app.command("compare")
def fleet_compare(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="The fleet before the change: the label of its runs, or several with commas between them.",
            autocompletion=complete_label,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(metavar="AFTER", help="The fleet after the change, likewise.", autocompletion=complete_label),
    ],
    *,
    options: FleetCompareOptions,
) -> None:
    """Compare each host of a fleet with itself, before and after a change: the mean change, and who changed unlike."""
    later.fleet_compare.fleet_compare(before, after, options)


@app.command("show")
def fleet_show(
    plan: PlanOfRuns = "",
    format: Annotated[str, format_option(tuple(FLEET_FORMATS))] = "terminal",
    *,
    asked: ManyOptions,
) -> None:
    """Show the costs of many hosts: their mean, where the next host lies, which are odd, and what goes with that."""
    later.many.fleet_show(plan, format, asked)
