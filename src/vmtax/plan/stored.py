"""The plan of a stored run. Pure."""

from __future__ import annotations

from vmtax.core.records import Experiment
from vmtax.plan.errors import PlanError
from vmtax.plan.schema import Plan, from_data


def plan_of(experiment: Experiment) -> Plan:
    """Raises PlanError, in one line, if it is no plan of this version."""
    try:
        return from_data(experiment.plan, source="plan")
    except PlanError as error:
        raise PlanError(
            [f"run {experiment.id} has a plan that this version cannot read: {error.problems[0]}"]
        ) from error
