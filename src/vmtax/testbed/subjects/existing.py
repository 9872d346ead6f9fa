"""A VM of the user's that is measured as it runs: examined like a host, with the layer of a host as its only one."""

from __future__ import annotations

from dataclasses import replace

from vmtax.core.errors import BadInput
from vmtax.core.layers import EXISTING
from vmtax.design.factors import FACTORS, HELD
from vmtax.design.guest import COUNT
from vmtax.design.settings import BACKED, PLUGGED
from vmtax.design.size import SIZES
from vmtax.hypervisor.confine import enter_tree
from vmtax.image.place import Placed
from vmtax.machine import Machine, tools
from vmtax.meter.below import read_below
from vmtax.plan.schema import Plan, from_data
from vmtax.storage import Target
from vmtax.testbed.host import needs
from vmtax.testbed.host.cpus import allowed_cpus
from vmtax.testbed.session import examine
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.session import CannotMeasure, ExistingVm, TestbedOptions
from vmtax.testbed.session.watching import Watching
from vmtax.testbed.session.ways import PLUGGED_BY, OwnVm, Way
from vmtax.testbed.session.windows_way import WindowsInside, WindowsLogin
from vmtax.testbed.subjects import senders
from vmtax.testbed.subjects.windows import examined_windows, refuse_little_room
from vmtax.workload import WORKLOADS
from vmtax.workload.transfer import Transfer

HANDS_OFF = "measured as it runs, with the page cache that it has."


def plan_inside(plan: Plan) -> Plan:
    """What is measured in the VM: the plan's workloads, as on a host."""
    return plan.model_copy(update={"layers": ("host",)})


def plan_beside(plan: Plan, vm: OwnVm | None) -> Plan:
    """What is measured on its host: the plan's other layers, and what is only watched from there."""
    if isinstance(vm, Watching):
        return plan
    return plan.model_copy(update={"layers": tuple(layer for layer in plan.layers if layer != EXISTING)})


def fitted(plan: Plan, vm: OwnVm) -> Plan:
    """The plan with the size of that VM, and without workloads for which it has no programs. Raises MachineError, and
    BadInput if none is left.
    """
    return plan if isinstance(vm, Watching) else without_programs(sized(plan, vm), vm)


def sized(plan: Plan, vm: OwnVm) -> Plan:
    """The plan with the size of that VM, so that the layers below it get as many CPUs. Raises MachineError."""
    return plan.model_copy(update={"guest": vm.size()})


def without_programs(plan: Plan, vm: OwnVm) -> Plan:
    """The plan without workloads for which that VM has no programs. Raises BadInput if none is left."""
    if not (left_out := not_measured(plan, vm)):
        return plan
    data = plan.model_dump(mode="json")
    data["workloads"] = [entry for entry in data["workloads"] if entry["name"] not in left_out]
    if not data["workloads"]:
        only = f"only {', '.join(vm.measures)}" if vm.measures else f"{Transfer.name} is for Windows"
        raise BadInput(f"plan {plan.name}: {vm.name} can measure nothing of it: {only}")
    data["primary"] = [metric for metric in data["primary"] if metric.partition(".")[0] not in left_out]
    return from_data(data, source="command line")


def not_measured(plan: Plan, vm: OwnVm) -> list[str]:
    """Names of the plan's workloads for which that VM has no programs."""
    measures = vm.measures if vm.measures is not None else {*WORKLOADS} - {Transfer.name}
    return [one.name for one in plan.workloads if one.name not in measures]


def look(plan: Plan, host: Machine, vm: OwnVm) -> None:
    """Raises CannotMeasure if the plan cannot be measured there, as far as can be checked without an image there."""
    if vm.takes_root and not examine.is_root(host):
        raise CannotMeasure(f"{vm.name}: only root of {host.path} reaches the socket of a port by which it is entered")
    for treatment in plan.treatments()[0]:  # a clone that cannot have its levels is left out
        if treatment.layer == EXISTING and (why := vm.why_not(treatment.levels)):
            raise CannotMeasure(f"{vm.name}, {treatment.name}: {why}")
    if isinstance(vm, Watching):
        return
    if (cpus := len(allowed_cpus(host))) < plan.guest.vcpus:
        raise CannotMeasure(
            f"{host.path}: vmtax may use {cpus} of its CPUs, and {vm.name} has {plan.guest.vcpus}: the host cannot be"
            " measured on as many"
        )
    if isinstance(vm, WindowsLogin):
        refuse_little_room(vm.name, vm.there, vm.home, needs.disk_size(plan.build_workloads()))
        if any(one.name == Transfer.name for one in plan.workloads):
            senders.refuse(vm.name, host, vm.there)
    if vm.machine is None:
        return
    if read_below(vm.machine)["virtualized"] is False:
        raise CannotMeasure(f"{vm.name} is no VM: nothing there says that a hypervisor runs it")
    examine.check_system(vm.machine)
    if why := tools.why_not(vm.machine, tools.of_vm()):
        raise CannotMeasure(f"{vm.name}: {why}")


def examined(on: Examined, vm: Way, options: TestbedOptions) -> Examined:
    """The VM, entered, with the image in it until the run ends. Raises CannotMeasure, and what its parts raise."""
    asked, session = options.existing, on.session
    assert asked is not None, "who named the VM said how"
    inside = vm.enter(session.local, on.placed, session.image, session.emit)
    if isinstance(inside, WindowsInside):
        return examined_windows(on, vm, inside)
    placed, machine = inside.placed, inside.machine
    refuse_unentered(vm.name, machine, placed)
    there = TestbedOptions(target=Target(asked.directory))
    here = examine.examine(session, machine, plan_inside(on.plan), there, placed=placed)
    inside = inside.on(on.host)
    return replace(here, why_warm="", notes=(HANDS_OFF, *inside.notes), entered=inside)


def refuse_unentered(name: str, machine: Machine, placed: Placed) -> None:
    """Raises CannotMeasure if the image's programs cannot be started in that VM."""
    assert placed.tree is not None, "it has been placed"
    command = (*enter_tree(placed.tree, root=examine.is_root(machine), bubblewrap=placed.bubblewrap), "--", "true")
    if not (tried := machine.try_run(*command)).ok:
        raise CannotMeasure(f"{name}: the image's programs cannot be started there: {tried.stderr.strip()}")


def refuse_factors(plan: Plan, vm: ExistingVm) -> None:
    """Raises BadInput for factors with which the VM would be compared with unlike things, or that it cannot have."""
    named = dict.fromkeys([*plan.space.factors, *(each for part in plan.space.parts for each in part.levels)])
    sizes = [each for each in named if each in (*SIZES, COUNT.name)]
    held = [each for each in named if each in (*sizes, *HELD)]  # of a host, while its own layers work
    if fixed := held if vm.clone else [each for each in named if each in held or FACTORS[each].layers == BACKED]:
        elsewhere = "" if plan.name == "quick" else ", or name a plan without them, such as quick"
        raise BadInput(
            f"plan {plan.name} compares {', '.join(fixed)}, in which {vm.name} stays as it is: its host would have"
            f" other levels: leave them out{elsewhere}"
        )
    plugged = [each for each in named if FACTORS[each].layers == PLUGGED]
    if plugged and not vm.name.startswith(PLUGGED_BY):
        raise BadInput(
            f"{', '.join(plugged)}: {vm.name} keeps its disk as it is: name it as libvirt:NAME or proxmox:VMID,"
            " which plugs one in, or leave it out"
        )
