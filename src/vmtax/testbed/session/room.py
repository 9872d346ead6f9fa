"""Whether the guests of a plan find CPUs and memory on a host. Only reads the host."""

from __future__ import annotations

from vmtax.core.units import format_room
from vmtax.machine import Machine
from vmtax.meter.memory import available_memory
from vmtax.plan.guests import guests_at_once, names_size, overcommits
from vmtax.plan.schema import Plan
from vmtax.testbed.host import needs
from vmtax.testbed.host.cpus import CpuTopology, Sets, allowed_cpus
from vmtax.testbed.session.session import CannotMeasure


def refuse_little_memory(host: Machine, plan: Plan, *, leaves: bool = False) -> None:
    """Raises CannotMeasure if memory is short: the kernel would kill a guest, or worse, somebody else's process."""
    layer = max(plan.layers, key=lambda layer: needs.memory_bytes(plan, layer, leaves=leaves))
    most, available = needs.memory_bytes(plan, layer, leaves=leaves), available_memory(host)
    if available is None or available >= most or names_size(plan):
        return
    if guests_at_once(plan) > 1 or (layer == "vm" and needs.migrates(plan) and not leaves):
        raise CannotMeasure(
            f"{host.path}: {format_room(available)} of memory are available, and {needs.memory_sum(plan, layer)} are "
            "needed; lower guest.memory or guest.count in the plan, or end something there"
        )
    raise CannotMeasure(
        f"{host.path}: {available / 2**30:.1f} GiB of memory are available, the largest guest takes "
        f"{most / 2**30:.1f} GiB; lower guest.memory in the plan, or end something there"
    )


def refuse_few_cpus(host: Machine, plan: Plan) -> None:
    """Raises CannotMeasure if guests at once have more CPUs than the host: they would wait for each other, and no level
    of guest.count would show what another guest costs.
    """
    by_treatment = names_size(plan) or overcommits(plan)
    why = None if by_treatment else why_few_cpus(host, Sets(guests_at_once(plan)), plan.guest.vcpus)
    if why:
        raise CannotMeasure(f"{host.path} {why}")


def why_few_cpus(host: Machine, sets: Sets, each: int) -> str | None:
    """Why that many guests, with `each` CPUs, do not fit at once; None if they do."""
    has, wanted = len(allowed_cpus(host)), sets.cpus(each)
    if not wanted > has > 0:
        return None
    share = f", {sets.share} to a CPU" if sets.share > 1 else ""
    return (
        f"has {has} CPUs; {sets.count} guests at once x {each} vCPU{'' if each == 1 else 's'}{share} ="
        f" {wanted}; lower guest.vcpus or guest.count in the plan"
    )


def refuse_small(host: Machine, topology: CpuTopology, plan: Plan) -> None:
    """Raises CannotMeasure if we may use fewer CPUs there than a guest gets. `parts.equal` decides for each size of
    guests if there are several.
    """
    count = plan.guest.vcpus
    if (has := len(topology.cpus)) < count and not names_size(plan):
        raise CannotMeasure(f"{host.path} has {has} CPUs, the plan gives a guest {count}; lower guest.vcpus")
