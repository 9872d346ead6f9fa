"""The commands `vmtax fleet`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from vmtax.cli.app import AsJson, Yes, answer, app, complete_plan, document, printed, say
from vmtax.cli.command import App
from vmtax.cli.options import PLAN_HELP

fleet_app = App(help="Measure many hosts, and look after that.", no_args_is_help=True)
app.add_typer(fleet_app, name="fleet")

PlanName = Annotated[str, typer.Argument(metavar="PLAN", help=PLAN_HELP, autocompletion=complete_plan)]
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


@fleet_app.command("run")
def fleet_run(
    plan: PlanName,
    options: RunWords = None,
    inventory: Inventory = None,
    hosts: HostsFile = None,
    fleet: Called = None,
    yes: Yes = False,
) -> None:
    """Measure each host of an inventory once; may be repeated, and run in several places at once."""
    from vmtax.cli.fleets import carry_out_fleet

    carry_out_fleet(plan, options or [], inventory, hosts, fleet, yes=yes)


@fleet_app.command("hosts")
def fleet_hosts(inventory: Inventory = None, hosts: HostsFile = None) -> None:
    """List the hosts and what can be reached; measure nothing."""
    from vmtax.cli.fleets import looked_at

    looked_at("", [], inventory, hosts)


@fleet_app.command("playbook")
def fleet_playbook(plan: PlanName, options: RunWords = None, fleet: Called = None) -> None:
    """Print the playbook that `fleet run` runs, for AWX, Semaphore or cron."""
    from vmtax.cli.fleets import name_of
    from vmtax.fleet.playbook import playbook

    document(playbook(plan, name_of(plan, fleet), options or []))


@fleet_app.command("status")
def fleet_status(fleet: FleetName, json: AsJson = False) -> None:
    """List the runs of a fleet, wherever they are measured, as far as the store knows."""
    from vmtax.store import Store

    with Store(reads=True) as store:
        found = store.experiments(label=fleet)
        stopped = store.stops.stopped(fleet)
    if json:
        from vmtax.report.answers.runs import Run

        answer("runs", [Run.made(entry) for entry in found])
        return
    word = shlex.quote(fleet)
    if stopped:
        say(f"stopped by {stopped}: `vmtax fleet stop {word} --undo` lets it go on")
    if not found:
        say(f"no run has the label {fleet}: `vmtax fleet run PLAN -i INVENTORY --fleet {word}` measures")
        return
    from vmtax.report.runs import runs_table

    printed(runs_table(found))


@fleet_app.command("stop")
def fleet_stop(
    fleet: FleetName,
    undo: Annotated[bool, typer.Option("--undo", help="Let it go on, where something repeats it.")] = False,
) -> None:
    """Stop the runs of a fleet on all controllers that use this store; results are kept, and none begins."""
    from vmtax.cli.fleets import stop

    stop(fleet, undo=undo)


@fleet_app.command("dashboard")
def fleet_dashboard() -> None:
    """Print a dashboard for Grafana: what the VMs of each host cost, from a shared store in PostgreSQL."""
    import json

    from vmtax.fleet.dashboard import dashboard

    document(json.dumps(dashboard(), indent=2))
