"""The commands `vmtax lab`: a guest that serves as a host to try things on."""

from __future__ import annotations

from typing import Annotated

import typer

from vmtax.cli import later
from vmtax.cli.command import App
from vmtax.cli.lab_options import LabName, LabOptions
from vmtax.cli.options import AsJson

HELP = "Start and use a lab: a guest that is a whole hypervisor host, with KVM, disks and networks to try things on."
app = App(help=HELP, no_args_is_help=True)


@app.command("start")
def lab_start(
    name: LabName = "",
    *,
    options: LabOptions,
    json: AsJson = False,
) -> None:
    """Start a lab, and make it the first time. It stays up until it is stopped, also when this terminal is closed.

    The defaults are those of a new lab. One that exists keeps its disks, and its memory and CPUs unless they are given.
    """
    later.lab.start(name, options, json=json)


@app.command("ssh", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def lab_ssh(
    name: LabName = "",
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="The command to run there.")
    ] = None,
) -> None:
    """Log in to a lab, or run a command there."""
    later.lab.log_in(name, command or ())


@app.command("status")
def lab_status(name: LabName = "", json: AsJson = False) -> None:
    """Show a lab: its size, software and disks, and whether it is up."""
    later.lab.status(name, json=json)


@app.command("list")
def lab_list(json: AsJson = False) -> None:
    """List the labs on this host."""
    later.lab.list_labs(json=json)


@app.command("stop")
def lab_stop(name: LabName = "") -> None:
    """Shut a lab down. Its disks are kept."""
    later.lab.stop(name)


@app.command("cut")
def lab_cut(name: LabName = "") -> None:
    """Cut a lab's power: data that it had not flushed are lost. `lab start` starts it again."""
    later.lab.cut(name)


@app.command("save")
def lab_save(name: LabName = "") -> None:
    """Save a running lab, memory and disks. `lab start OTHER --from NAME` starts from there without booting."""
    later.lab.save(name)


@app.command("remove")
def lab_remove(
    name: LabName = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking, as in a script.")] = False,
) -> None:
    """Remove a lab that is off, with its disks and its saved state."""
    later.lab.remove(name, yes=yes)
