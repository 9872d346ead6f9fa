"""What a stored plan says of how its results are judged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.core.records import Json
from vmtax.design.stopping import Stopping

SAME_WITHIN = 0.02  # of plans that are older than their `same_within`


@dataclass(frozen=True, slots=True)
class Criteria:
    """How results are judged."""

    primary: Sequence[str]  # names of the metrics that the plan is about, in its order
    same_within: float  # fraction: a difference within it does not matter
    alpha: float  # of every interval

    @staticmethod
    def of(plan: Json) -> Criteria:
        """From a validated plan as it is stored."""
        return Criteria(
            tuple(plan.get("primary", ())),
            float(plan.get("same_within", SAME_WITHIN)),
            Stopping.of(plan).alpha,
        )
