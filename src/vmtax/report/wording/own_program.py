"""The command line of the user's own that a run measured. Pure."""

from __future__ import annotations

from vmtax.core.records import Experiment
from vmtax.core.units import shortened
from vmtax.workload.command import OwnCommand

LONGEST = 200  # characters; the plan has all of it


def own_program(run: Experiment) -> str:
    """On one line; "" if it measured none."""
    lines = (
        each.get("parameters", {}).get("run", "")
        for each in run.plan.get("workloads", ())
        if each.get("name") == OwnCommand.name
    )
    return shortened(" ".join(next(lines, "").split()), LONGEST)
