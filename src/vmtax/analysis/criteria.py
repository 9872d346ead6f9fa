"""How results are judged, according to a stored plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.core.records import Json
from vmtax.design.stopping import Stopping

SAME_WITHIN = 0.02  # for plans older than their `same_within`


@dataclass(frozen=True, slots=True)
class Criteria:
    """How results are judged."""

    primary: Sequence[str]  # names of the plan's primary metrics, in its order
    same_within: float  # fraction: smaller differences do not matter
    alpha: float  # of every interval

    @staticmethod
    def of(plan: Json) -> Criteria:
        """From a validated, stored plan."""
        return Criteria(
            tuple(plan.get("primary", ())),
            float(plan.get("same_within", SAME_WITHIN)),
            Stopping.of(plan).alpha,
        )
