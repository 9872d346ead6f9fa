"""How many guests a plan runs at once, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from vmtax.core.units import parse_bytes
from vmtax.design.guest import OVERCOMMIT, GuestSettings
from vmtax.design.size import MEMORY, SIZES, VCPUS
from vmtax.plan.schema import GuestSize, Plan


def guest_levels(plan: Plan, place: str) -> list[str]:
    """The levels of a guest factor that the plan may run; `place`: the field of `GuestSettings`."""
    factor = GuestSettings.factors()[place]
    return plan.space.levels_of(factor.name, factor.default)


def guests_at_once(plan: Plan) -> int:
    """The most guests of one layer that the plan runs at the same time."""
    return max(map(int, guest_levels(plan, "count")))


def names_size(plan: Plan) -> bool:
    """Whether the plan compares guests of several sizes."""
    return any(plan.space.first(name) is not None for name in SIZES)


def overcommits(plan: Plan) -> bool:
    """Whether the CPUs of several guests may share those of the host."""
    return guest_levels(plan, "overcommit") != [OVERCOMMIT.default]


def sized(plan: Plan, levels: Mapping[str, str]) -> Plan:
    """The plan as it is for a treatment with these levels: its guests have the treatment's size."""
    vcpus, memory = levels.get(VCPUS), levels.get(MEMORY)
    return _with(plan, int(vcpus) if vcpus else plan.guest.vcpus, parse_bytes(memory) if memory else plan.guest.memory)


def smallest(plan: Plan) -> Plan:
    """The plan with the smallest of its guests only: what this takes, the whole plan takes at least."""
    return _chosen(plan, min)


def largest(plan: Plan) -> Plan:
    """The plan with the largest of its guests only."""
    return _chosen(plan, max)


def _chosen(plan: Plan, choose: Callable[[Iterable[int]], int]) -> Plan:
    vcpus = map(int, plan.space.levels_of(VCPUS, str(plan.guest.vcpus)))
    memory = map(parse_bytes, plan.space.levels_of(MEMORY, f"{plan.guest.memory}B"))
    return _with(plan, choose(vcpus), choose(memory))


def _with(plan: Plan, vcpus: int, memory: int) -> Plan:
    if not names_size(plan):
        return plan
    factors = {name: levels for name, levels in plan.factors.items() if name not in SIZES}
    entries = tuple(
        entry.model_copy(update={"levels": {n: each for n, each in entry.levels.items() if n not in SIZES}})
        for entry in plan.combinations
    )
    size = GuestSize(vcpus=vcpus, memory=memory)
    return plan.model_copy(update={"guest": size, "factors": factors, "combinations": entries})
