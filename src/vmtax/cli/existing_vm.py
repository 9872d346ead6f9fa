"""A VM of the user's on the command line: `run --guest`, with `--clone` or without."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath

from vmtax.attach import LIBVIRT, PROXMOX
from vmtax.cli.app import BadUse, say
from vmtax.cli.asked import Measured, PlanChanges
from vmtax.cli.option_groups import given
from vmtax.core.layers import CLONE, EXISTING, OWNERS
from vmtax.design.factors import FACTORS
from vmtax.existing.source import NAME
from vmtax.plan import rules
from vmtax.plan.names import builtin_plans
from vmtax.plan.schema import Plan, from_data
from vmtax.storage import DISK_DIRECTORY
from vmtax.testbed.session.session import ExistingVm
from vmtax.testbed.session.watching import QEMU
from vmtax.testbed.session.ways import PLUGGED_BY
from vmtax.workload import WORKLOADS
from vmtax.workload.idle import IdleWorkload
from vmtax.workload.transfer import Transfer


def existing_vm(asked: Measured) -> ExistingVm | None:
    """The VM that --guest names, or none. Raises BadUse, also for options that it excludes."""
    name, directory, clone = asked.existing.guest, asked.existing.guest_dir, asked.existing.clone
    if name is None:
        if clone:
            raise BadUse("--clone: of which VM is what --guest says: add --guest libvirt:NAME")
        if directory is not None:
            raise BadUse(f"--guest-dir {directory}: is a directory in the VM that --guest names: add --guest")
        return None
    if others := given(asked.cards, asked.versions, asked.power):
        raise BadUse(f"--guest measures a VM of yours, on one host: leave out {' '.join(others)}")
    if places := given(replace(asked.disks, disk_dir=None)) if not clone else []:
        raise BadUse(f"{' '.join(places)}: the host alone would have such a disk, and a VM a file: leave it out")
    if sizes := given(PlanChanges(vcpus=asked.changes.vcpus, memory=asked.changes.memory)):
        raise BadUse(f"{' and '.join(sizes)}: a VM of yours has its own size: leave it out, or leave out --guest")
    _check_name(name)
    if clone and name.startswith(PROXMOX):
        raise BadUse(
            f"--clone --guest {name}: vmtax clones no VM of Proxmox VE: leave out --clone to measure it as it runs, or"
            f" compare its settings in a guest of ours: vmtax plan from {name}"
        )
    if clone and not name.startswith(LIBVIRT):
        raise BadUse(
            f"--clone --guest {name}: only a domain of libvirt is cloned: --guest libvirt:NAME; or leave it out"
        )
    if name.startswith(PLUGGED_BY) and directory is not None:
        raise BadUse(
            f"--guest-dir {directory}: {name} gets a disk of ours, for which --disk-dir says where on its host; a"
            " Windows, a file where only its guest agent may write: --guest ssh://Administrator@ADDRESS takes others"
        )
    where = PurePosixPath(directory) if directory else DISK_DIRECTORY
    if not (where.is_absolute() or PureWindowsPath(where).is_absolute()):
        raise BadUse(f"--guest-dir {directory}: must be absolute, for it is in the VM")
    return ExistingVm(name, where, clone)


def _check_name(name: str) -> None:
    if name.startswith(LIBVIRT):
        if not NAME.fullmatch(name.removeprefix(LIBVIRT)):
            raise BadUse(f"--guest {name}: no domain can be called that; `virsh list` lists those that run")
        return
    if name.startswith(PROXMOX):
        if not re.fullmatch(r"[1-9][0-9]{1,9}", name.removeprefix(PROXMOX)):
            raise BadUse(f"--guest {name}: must be proxmox:VMID, such as proxmox:101; `qm list` lists them")
        return
    right = (
        "must be libvirt:NAME, proxmox:VMID, or ssh://[user@]host[:port], where one can log in to the VM; or, with plan"
        " idle, qemu:PID"
    )
    if re.fullmatch(r"qemu:[1-9][0-9]{0,8}", name):
        return  # for what is watched; `on_existing` refuses the rest
    try:
        if not name.startswith("ssh://"):
            raise ValueError(right)
        rules.host(name)
    except ValueError as error:
        raise BadUse(f"--guest {name}: {right}") from error


def on_existing(plan: Plan, layers: str | None, layer: str = EXISTING, name: str = "") -> Plan:
    """The plan for the host and that VM, or for the layers that the plan or the command line names beside it, with what
    can be measured in the VM. Raises BadUse and BadInput.

    layer: EXISTING, or CLONE for clones of it; name: of the VM
    """
    if other := [each for each in plan.layers if each in OWNERS and each != layer]:
        raise BadUse(f"layer {other[0]}: {'leave out' if layer == CLONE else 'add'} --clone, or name layer {layer}")
    if watches(plan):
        return _watched(plan, layers, layer)
    wanted = plan.layers if layers is not None or layer in plan.layers else ("host",)
    if wanted == (layer,) and layer == EXISTING:
        raise BadUse(f"--layers {layer}: a VM alone is compared with nothing: --layers host,{layer}")
    if name.startswith(QEMU):
        raise BadUse(
            f"--guest {name}: only idleness is measured of a QEMU by its number: vmtax run idle --guest {name}; name"
            f" the VM as libvirt:NAME, proxmox:VMID or ssh://[user@]host[:port]; `vmtax plan from {name}` takes its"
            " settings for a guest of ours"
        )
    data = plan.model_dump(mode="json")
    data["layers"] = [*dict.fromkeys((*wanted, layer))]
    named = dict.fromkeys([*plan.space.factors, *(each for part in plan.space.parts for each in part.levels)])
    pointless = [each for each in named if not {*FACTORS[each].layers} & {*data["layers"]}]
    if layer == CLONE and {*pointless} <= {*plan.factors}:  # such as the card of a plan that was made from this VM
        data["factors"] = {name: levels for name, levels in data["factors"].items() if name not in pointless}
        if pointless:
            say(f"left out, because clones are not given it: {', '.join(pointless)}", file=sys.stderr)
    elif pointless:
        raise BadUse(
            f"plan {plan.name} compares {', '.join(pointless)}, which only guests of ours are given: name another plan,"
            " or add their layer, such as --layers host,vm"
        )
    fits = {name for name, kind in WORKLOADS.items() if layer in kind.layers}
    if layer == EXISTING and any(each.name == IdleWorkload.name for each in plan.workloads):
        fits.remove(IdleWorkload.name)
        say(
            "left out, because what an idle VM takes is read from its host alone: idle: vmtax run idle --guest …",
            file=sys.stderr,
        )
        data["workloads"] = [entry for entry in data["workloads"] if entry["name"] in fits]
    if left_out := [entry["name"] for entry in data["workloads"] if entry["name"] not in fits]:
        say(f"left out, because a VM that is not ours cannot measure it: {', '.join(left_out)}", file=sys.stderr)
    data["workloads"] = [entry for entry in data["workloads"] if entry["name"] in fits]
    if not data["workloads"]:
        raise BadUse(f"plan {plan.name}: nothing of it can be measured in a VM that is not ours: name another plan")
    data["primary"] = [metric for metric in data["primary"] if metric.partition(".")[0] in fits]
    measured = from_data(data, source="command line")
    if any(workload.networked for workload in measured.build_workloads() if layer in workload.layers):
        raise BadUse("a VM that is not ours has no card on the network under test: leave out --serve, or --guest")
    return measured


def watches(plan: Plan) -> bool:
    """Whether nothing of it, on a VM of the user's as it runs, is done in that VM."""
    inside = {each.name for each in plan.workloads if EXISTING in WORKLOADS[each.name].layers}
    return inside == {IdleWorkload.name}


def refuse_budget(vm: ExistingVm, changes: PlanChanges) -> None:
    """Raises BadUse for a time that is to be spent on watching a VM as it runs, which takes the plan's fewest rounds:
    no comparison says whether they are enough.
    """
    if vm.watched and not vm.clone and changes.budget is not None:
        raise BadUse(
            f"--budget {changes.budget}: {vm.name} is only watched, for as many rounds as the plan has at least: say"
            " how many with --rounds"
        )


def _watched(plan: Plan, layers: str | None, layer: str) -> Plan:
    """The plan for that VM alone, or for its clones, watched from its host. Raises BadUse."""
    if layers is not None and layers.strip() != layer:
        raise BadUse(f"--layers {layers}: what an idle VM of yours takes is read by itself, on its host: leave it out")
    if plan.space.factors and layer == EXISTING:
        raise BadUse(
            f"plan {plan.name} compares {', '.join(plan.space.factors)}, and a VM of yours is watched as it is: leave"
            " them out, or add --clone"
        )
    data = plan.model_dump(mode="json")
    data["layers"], data["primary"] = [layer], []
    if layer == EXISTING:
        data["rounds"]["max"] = data["rounds"]["min"]  # no comparison says whether they are enough
    left_out = [entry["name"] for entry in data["workloads"] if entry["name"] != IdleWorkload.name]
    if left_out and plan.name not in builtin_plans():  # what a built-in plan has beside it is for guests of ours
        say(f"left out, because only idleness is read of a VM from its host: {', '.join(left_out)}", file=sys.stderr)
    data["workloads"] = [entry for entry in data["workloads"] if entry["name"] == IdleWorkload.name]
    return from_data(data, source="command line")


def without_existing(plan: Plan) -> Plan:
    """The plan, which names no VM of the user's. Raises BadUse if it has its layer."""
    if own := [layer for layer in plan.layers if layer in OWNERS]:
        also = " and --clone" if own[0] == CLONE else ""
        raise BadUse(f"layer {own[0]} is of a VM of yours: name it with --guest{also}")
    if any(one.name == Transfer.name for one in plan.workloads):
        raise BadUse(f"workload {Transfer.name} is for a Windows VM of yours: name it with --guest, or take net")
    return plan
