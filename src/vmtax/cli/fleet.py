"""The commands `vmtax fleet`."""

from __future__ import annotations

from vmtax.cli.app import app
from vmtax.cli.command import App

fleet_app = App(help="Measure many hosts, and look after that.", no_args_is_help=True)
app.add_typer(fleet_app, name="fleet")
