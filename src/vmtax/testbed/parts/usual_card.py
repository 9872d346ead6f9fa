"""The card that a guest has if its plan names none: that of the VMs that libvirt and Proxmox VE make."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.core.layers import GUESTS
from vmtax.design.net import PATH, USUAL_PATH
from vmtax.machine import Machine
from vmtax.plan.guests import overcommits
from vmtax.plan.schema import Plan
from vmtax.testbed.parts.network import HAS_VHOST
from vmtax.testbed.session.examine import is_root


def with_usual_card(plan: Plan, hosts: Sequence[Machine]) -> Plan:
    """The plan, with the usual path of its guests' packets, vhost, if it measures the network, names no path, and all
    of these hosts have vhost. Raises MachineError.

    Otherwise the plan as it is: QEMU itself carries the packets. So it is where guests share CPUs, because before Linux
    6.4 the threads of vhost would run beside those CPUs.
    """
    carries = set(plan.layers) & {*GUESTS} and any(workload.networked for workload in plan.build_workloads())
    if not carries or plan.space.first(PATH) is not None or overcommits(plan):
        return plan
    if not all(is_root(host) and host.succeeds(*HAS_VHOST) for host in hosts):
        return plan
    return plan.model_copy(update={"factors": {**plan.factors, PATH: (USUAL_PATH.value,)}})
