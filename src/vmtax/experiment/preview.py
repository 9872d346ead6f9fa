"""Examine the hosts of a run before it begins: refuse or leave out what is impossible. Changes nothing on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from vmtax.core.errors import BadInput
from vmtax.core.layers import CLONE, EXISTING
from vmtax.core.records import Json, Treatment
from vmtax.core.units import format_span
from vmtax.design.disk import DiskSettings
from vmtax.design.interleaved import both, is_host
from vmtax.hypervisor import Accelerator, Qemu, QemuError, known
from vmtax.image import build, kernel, postgresql
from vmtax.machine import Machine
from vmtax.machine.rights import why_not
from vmtax.meter.below import read_below
from vmtax.meter.disk import disk_facts
from vmtax.meter.neighbours import Neighbours, read_neighbours
from vmtax.plan.asked import Typed, refuse_left_out
from vmtax.plan.schema import Plan
from vmtax.storage import DISK_DIRECTORY, NoSuchPlace, Target, backing, refuse_unsafe
from vmtax.storage.empty import SECONDS as LOOK_SECONDS
from vmtax.storage.file import check_free
from vmtax.storage.ground import refuse_devices
from vmtax.testbed import parts
from vmtax.testbed.host import disks, needs
from vmtax.testbed.host.additions import additions
from vmtax.testbed.host.hosts import lab_of
from vmtax.testbed.machines.provision import not_opened, refuse_none_left
from vmtax.testbed.parts import Request, destination
from vmtax.testbed.session import examine
from vmtax.testbed.session.cloning import Cloning
from vmtax.testbed.session.examine import Examined
from vmtax.testbed.session.power import refuse_cuts
from vmtax.testbed.session.room import refuse_few_cpus
from vmtax.testbed.session.session import CannotMeasure, Hosts, TestbedOptions
from vmtax.testbed.session.watching import Watching
from vmtax.testbed.session.ways import RunByHost, Way, find_qemu
from vmtax.testbed.storage import cutting, host_disk
from vmtax.testbed.subjects import existing
from vmtax.workload.build import Build
from vmtax.workload.durability import Durability


@dataclass(frozen=True, slots=True)
class Place:
    """A host under test, with what will be measured on it."""

    machine: Machine
    name: str  # as the plan or --interleave-with names it: "local"
    plan: Plan  # without what cannot be measured there
    treatments: Sequence[Treatment]  # that are part of a round there
    below: Json  # what the host itself runs on: see meter/below.py
    impossible: Mapping[str, str] = field(default_factory=dict)  # treatments that cannot be measured there -> why
    neighbours: Neighbours = field(default_factory=Neighbours)  # who else uses it
    # The accelerator of each QEMU, as far as it can be known without a boot.
    accelerators: Sequence[Accelerator] = ()
    is_existing: bool = False  # it is a VM of the user's, which is measured as it runs
    is_watched: bool = False  # nothing else is measured there
    alone_seconds: float = 0.0  # of a round, in which its guests are left alone after their boots, at most

    @property
    def possible(self) -> list[Treatment]:
        """The treatments that can be measured there."""
        return [one for one in self.treatments if (one.repeats or one.name) not in self.impossible]

    @property
    def disks(self) -> list[DiskSettings]:
        """The settings of the disks that are made there."""
        return [settings for settings, _ in disks.wanted(self.possible)] if needs.disk_bytes(self.plan) else []


def look(
    plan: Plan,
    hosts: Hosts,
    options: TestbedOptions,
    emit: Callable[[str], None] = lambda what: None,
    typed: Typed = MappingProxyType({}),
    image: str | None = None,
) -> list[Place]:
    """The hosts under test, the plan's own first. Raises whatever would prevent the run, as far as can be checked
    without an image there: BadInput, CannotMeasure, StorageError, QemuError, ImageError.

    emit: called before a check that takes seconds, with a description; typed: levels that must not be left out;
    image: identity of the one that a resumed run goes on with
    """
    _refuse_unbuilt(plan, image)
    examine.refuse_nameless(hosts.local)
    treatments = both(plan.entries(), options.interleave_with)
    whole, plan = plan, existing.plan_beside(plan, hosts.existing)
    beside = [each for each in treatments if each.layer in plan.layers]
    named = [(hosts.host, plan.host, [t for t in beside if hosts.other is None or not t.side])]
    if hosts.other is not None:
        named.append((hosts.other, hosts.other.path, [t for t in treatments if t.side]))
    places = []
    for machine, name, theirs in named:
        below = read_below(machine)
        examine.check(machine, plan, leaves=options.destination is not None)
        if options.power_cut is not None:
            refuse_cuts(name, machine, options.target)
        qemus = _qemus(machine, plan, options)
        accelerators = [accelerator for _, accelerator in qemus if accelerator]
        real = [accelerator is not None and accelerator.name == "kvm" for _, accelerator in qemus]  # as far as is known
        if below["emulated_cpu"] is not True and all(real):
            refuse_few_cpus(machine, plan)
        if options.wire is not None and hosts.peer is not None:
            examine.check_peer(machine, hosts.peer, plan, options.wire)
        if options.destination is not None and hosts.destination is not None:
            destination.look(machine, hosts.destination, plan, options.destination)
        impossible = _not_here(machine, plan, qemus, options, hosts)
        _refuse(machine, plan, impossible, typed)
        place = Place(
            machine,
            name,
            plan,
            theirs,
            below,
            impossible,
            _neighbours(machine, hosts.existing),
            accelerators,
            is_watched=isinstance(hosts.existing, Watching),
            alone_seconds=_alone_seconds(hosts, [one for one in theirs if (one.repeats or one.name) not in impossible]),
        )
        places.append(_with_disks(place, options.target, hosts.local, emit, typed))
    if (vm := hosts.existing) is not None and options.existing is not None:
        existing.look(whole, hosts.host, vm)
        if vm.machine is not None:
            theirs = [each for each in treatments if each.layer == EXISTING]
            inside = existing.plan_inside(whole)
            place = Place(vm.machine, vm.name, inside, theirs, read_below(vm.machine), is_existing=True)
            places.append(_with_disks(place, Target(options.existing.directory), hosts.local, emit, typed))
    return places


def _neighbours(machine: Machine, vm: Way | Cloning | Watching | None) -> Neighbours:
    """Who uses it beside the VM that is measured as it runs; nobody counts for one that is only watched."""
    if isinstance(vm, Watching):
        return Neighbours()
    seen = read_neighbours(machine)
    if vm is None or isinstance(vm, Cloning):
        return replace(seen, is_cloned=vm is not None and not vm.is_off)
    own = vm.vm.qemu if isinstance(vm, RunByHost) else None
    own = own or find_qemu(machine, vm.uuid)[0]
    return replace(seen, may_be_own=True) if own is None else seen.without(own)


def _alone_seconds(hosts: Hosts, treatments: Sequence[Treatment]) -> float:
    if not isinstance(hosts.existing, Cloning):
        return 0.0
    return hosts.existing.alone_seconds * sum(each.layer == CLONE for each in treatments)


def _refuse_unbuilt(plan: Plan, image: str | None) -> None:
    """Raises ImageError and BadInput if what must be built for the plan cannot be, as far as is known now."""
    if lacks_kernel_pack(plan):
        kernel.KIND.refuse()
    if lacks_postgresql_pack(plan):
        postgresql.KIND.refuse()
        postgresql.KIND.refuse_offline()
    if more := additions(plan):
        build.here(image, more)  # without that image, reads all files: what cannot be taken along is an error now


def lacks_kernel_pack(plan: Plan) -> bool:
    return any(choice.name == Build.name for choice in plan.workloads) and not kernel.PACK.is_there()


def lacks_postgresql_pack(plan: Plan) -> bool:
    return needs.databases(plan) > 0 and not postgresql.PACK.is_there()


def _not_here(
    machine: Machine,
    plan: Plan,
    qemus: Sequence[tuple[Qemu, Accelerator | None]],
    options: TestbedOptions,
    hosts: Hosts,
) -> dict[str, str]:
    """Treatments that cannot be measured there, their disks apart -> why. Raises CannotMeasure and QemuError.

    qemus: those that will run the guests; which CPUs they offer is only known after KVM was tried
    """
    treatments = plan.treatments()[0]
    request = Request(
        machine,
        plan,
        treatments,
        card=options.card,
        wire=options.wire,
        cuts_power=options.power_cut is not None,
        destination=hosts.destination,
        far_card=options.destination.far_card if options.destination else "",
    )
    requests = []
    for qemu, accelerator in qemus:
        if accelerator is not None:
            # If no QEMU is named, emulated guests may use the image's QEMU, which is newer.
            is_known = qemu.emulates_steadily or accelerator.name == "kvm" or not qemu.is_default
            requests.append(replace(request, qemu=qemu if is_known else None, accelerator=accelerator.name))
    impossible: dict[str, str] = {}
    for each in requests or [request]:
        impossible |= parts.lacking(each)
    return {**impossible, **(hosts.existing.impossible(treatments) if isinstance(hosts.existing, Cloning) else {})}


def _refuse(machine: Machine, plan: Plan, impossible: Mapping[str, str], typed: Typed) -> None:
    """Raises NotMeasured if a level that was typed is impossible there, and CannotMeasure if all of a layer is."""
    refuse_left_out(plan, typed, impossible, f"{machine.path}: ")
    refuse_none_left(machine, plan.treatments()[0], impossible)


def _qemus(machine: Machine, plan: Plan, options: TestbedOptions) -> list[tuple[Qemu, Accelerator | None]]:
    """Each QEMU with its accelerator; None if that was not tried yet.

    Raises BadInput if a QEMU that was named cannot be used, and QemuError if the host's own cannot.
    """
    has_guests = plan.has_guests
    other = options.interleave_with
    programs = [options.qemu, *([other] if other is not None and not is_host(other) else [])]
    found: list[tuple[Qemu, Accelerator | None]] = []
    for program in programs:
        if program is None and not has_guests:
            continue
        try:
            qemu = Qemu.probe(machine, program)
        except QemuError as error:
            if program is None:
                raise
            raise BadInput(str(error)) from error
        if has_guests:
            found.append((qemu, known(machine, qemu)))
    return found


def _with_disks(place: Place, target: Target, local: Machine, emit: Callable[[str], None], typed: Typed) -> Place:
    """The place, with the treatments whose disk is impossible there. Raises StorageError and CannotMeasure."""
    machine, plan = place.machine, place.plan
    if not needs.disk_bytes(plan):
        backing.refuse_unused(machine.path, (), target)
        return place
    if disk_facts(machine, target.directory)["mount_point"] is None:
        raise NoSuchPlace(f"{machine.path}: no directory {target.directory}; name another with --disk-dir")
    refuse_unsafe(machine, target.directory)
    if refused := why_not(machine, f"directory={target.directory}"):
        raise CannotMeasure(f"{machine.path}: {target.directory}: {refused}")
    _ = machine.scratch  # created now: this starts its guard, which undoes what an earlier run left on the devices
    compared = [treatment for treatment in place.treatments if treatment.repeats is None]
    impossible = {**place.impossible, **disks.not_here(machine, target, compared)}
    _refuse(machine, plan, impossible, typed)
    found = replace(place, impossible=impossible)
    if any(choice.name == Durability.name for choice in plan.workloads):
        possible = [treatment for treatment in compared if treatment.name not in impossible]
        host_disk.refuse(lab_of(place.name), machine, possible, target)
        if machine is not local:  # otherwise the copies are counted with the disks' directory
            cutting.check_room(local, DISK_DIRECTORY, plan, host_disk.find_logged(lab_of(place.name), machine, target))
    size, spare, beside = needs.disk_sizes(plan)
    backing.refuse(machine, found.disks, target, size, spare)
    check_free(machine, target.directory, backing.directory_bytes(found.disks, target, size, spare, beside))
    areas = backing.areas(found.disks, target, size, spare)
    refuse_devices(
        machine, target, areas, lambda device: emit(f"{device}, whether it is empty; {LOOK_SECONDS:.0f} s at most")
    )
    return found


def with_disks_tried(
    places: Sequence[Place], sides: Sequence[Examined], typed: Typed = MappingProxyType({})
) -> list[Place]:
    """The hosts with the treatments whose disk QEMU does not open there, as far as that can be tried beforehand.

    sides: the same hosts, examined; a host has two if two of its QEMUs are compared
    Raises CannotMeasure if nothing of a layer is left, StorageError, CommandFailed and QemuError.
    """
    found = []
    for place in places:
        impossible = dict(place.impossible)
        for side in sides:
            if side.host is place.machine:
                named = f"{side.side}: " if side.second_qemu else ""
                impossible = {**{name: f"{named}{why}" for name, why in not_opened(side).items()}, **impossible}
        _refuse(place.machine, place.plan, impossible, typed)
        found.append(replace(place, impossible=impossible))
    return found


def refuse_emulation(plan: Plan, seconds: tuple[float, float], why: str) -> None:
    """Raises BadInput because --emulate was not given. `why`: why no guest boots with KVM."""
    raise BadInput(
        f"{plan.host}: {why}. Emulated, this run would take {format_span(*seconds)}, and its "
        "figures would say nothing about what a VM costs; --emulate runs it all the same"
    )
