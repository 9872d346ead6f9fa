"""The command line of the user's own that a run measured. Pure."""

from __future__ import annotations

from vmtax.core.records import Experiment
from vmtax.core.units import shortened
from vmtax.workload.command import OwnCommand

LONGEST = 200  # characters; the plan has all of it


def own_program(run: Experiment) -> str:
    """On one line; "" if it measured none. An old run's plan may name its workloads alone."""
    entries = (each for each in run.plan.get("workloads", ()) if isinstance(each, dict))
    own = next((each for each in entries if each.get("name") == OwnCommand.name), {})
    line = (own.get("parameters") or {}).get("run")
    return shortened(" ".join(str(line or "").split()), LONGEST)
