"""What the image of a run must hold besides, because a program of the user's own needs it. Pure."""

from __future__ import annotations

from pathlib import Path

from vmtax.image.additions import Additions
from vmtax.plan.schema import Plan
from vmtax.workload.command import OwnCommand


def additions(plan: Plan) -> Additions:
    """Its packages and files; none for all other workloads."""
    own = [workload.parameters for workload in plan.build_workloads() if isinstance(workload, OwnCommand)]
    packages = sorted({name for each in own for name in each.packages})
    return Additions(tuple(packages), tuple(Path(name) for each in own for name in each.files))
