"""How many guests a plan runs at once."""

from __future__ import annotations

from vmtax.design.guest import GuestSettings
from vmtax.plan.schema import Plan


def guest_levels(plan: Plan, place: str) -> list[str]:
    """The levels of a guest factor that the plan may run; `place`: the field of `GuestSettings`."""
    space, factor = plan.space, GuestSettings.factors()[place]
    usual = space.factors.get(factor.name, (factor.default,))
    return [level for part in space.parts for level in part.levels.get(factor.name, usual)]


def guests_at_once(plan: Plan) -> int:
    """The most guests of one layer that the plan runs at the same time."""
    return max(map(int, guest_levels(plan, "count")))
