"""What the commands do: a module is imported when a command that needs it runs, as help and completion need none."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmtax.cli import calibrate as calibrate
    from vmtax.cli import checking as checking
    from vmtax.cli import claim_run as claim_run
    from vmtax.cli import claims as claims
    from vmtax.cli import clean as clean
    from vmtax.cli import compare as compare
    from vmtax.cli import exchange as exchange
    from vmtax.cli import existing as existing
    from vmtax.cli import fleet_compare as fleet_compare
    from vmtax.cli import fleet_task as fleet_task
    from vmtax.cli import fleets as fleets
    from vmtax.cli import history as history
    from vmtax.cli import host as host
    from vmtax.cli import images as images
    from vmtax.cli import lab as lab
    from vmtax.cli import many as many
    from vmtax.cli import packs as packs
    from vmtax.cli import plans as plans
    from vmtax.cli import results as results
    from vmtax.cli import running as running
    from vmtax.cli import runs as runs
    from vmtax.cli import show as show
    from vmtax.cli import store as store
    from vmtax.cli import watch as watch
    from vmtax.cli import windows as windows
else:

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(name)
        return importlib.import_module(f"vmtax.cli.{name}")
