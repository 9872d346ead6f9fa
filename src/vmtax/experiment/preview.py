"""What a run is going to do, said before it does it: what, how long, what it writes to which device, what it needs.

`look` reads the hosts and refuses what cannot be; `outlook` says the rest. Nothing is changed on the hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmtax.core.errors import BadInput
from vmtax.core.records import Json, Treatment
from vmtax.core.units import count_of, format_duration, format_room, format_span
from vmtax.design.disk import DiskSettings
from vmtax.design.interleaved import both, is_host
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.design.topology import topology
from vmtax.hypervisor import Accelerator, Qemu, QemuError, known
from vmtax.image import kernel, postgresql
from vmtax.machine import Machine, Reader
from vmtax.meter.below import read_below
from vmtax.meter.disk import disk_facts
from vmtax.meter.memory import available_memory
from vmtax.plan.estimate import NOTHING, Emulation, Foreseen, foresee, in_common, lasting, reboots, sum_per_round
from vmtax.plan.schema import Plan
from vmtax.stats import MOST_ITERATIONS
from vmtax.storage import NoSuchPlace, Target, backing, refuse_unsafe
from vmtax.storage.empty import SECONDS as LOOK_SECONDS
from vmtax.storage.file import check_free
from vmtax.storage.ground import refuse_devices
from vmtax.testbed import (
    cpus,
    destination,
    disks,
    examine,
    host_disk,
    migration,
    needs,
    net_paths,
    pages,
    pinning,
    polling,
)
from vmtax.testbed.examine import Examined
from vmtax.testbed.hosts import lab_of
from vmtax.testbed.provision import not_opened, refuse_none_left
from vmtax.testbed.session import CannotMeasure, Hosts, TestbedOptions, Wire
from vmtax.workload.build import Build
from vmtax.workload.durability import Durability

MANY = 1000  # rounds.max that means none
BRIDGE, DROPS = "a bridge in a network namespace of its own", "drops the page cache before each configuration"
USER_NETWORK, WARM = "user networking in place of a bridge", "caches stay warm"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to know beforehand."""

    what: str  # "writes"
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """A host under test, with what is to be measured on it."""

    machine: Machine
    name: str  # as the plan or --interleave-with names it: "local"
    plan: Plan  # as it can be measured there
    treatments: Sequence[Treatment]  # that enter a round there
    below: Json  # what it runs on itself: meter/below.py
    impossible: Mapping[str, str] = field(default_factory=dict)  # treatments that cannot be there -> why
    # What its guests run on, of each QEMU, as far as that is known without a boot.
    accelerators: Sequence[Accelerator] = ()

    @property
    def disks(self) -> list[DiskSettings]:
        """That are made there."""
        possible = [one for one in self.treatments if (one.repeats or one.name) not in self.impossible]
        return [settings for settings, _ in disks.wanted(possible)] if needs.disk_bytes(self.plan) else []


def look(
    plan: Plan, hosts: Hosts, options: TestbedOptions, emit: Callable[[str], None] = lambda what: None
) -> list[Place]:
    """The hosts under test, the plan's own first. Raises what would keep a run from beginning there, as far as that is
    known without an image there: BadInput, CannotMeasure, StorageError, QemuError, ImageError.

    emit: called with what is about to take seconds
    """
    if _lacks_kernel_pack(plan):
        kernel.KIND.refuse()
    if _lacks_postgresql_pack(plan):
        postgresql.KIND.refuse()
        postgresql.KIND.refuse_offline()
    treatments = both(plan.entries(), options.interleave_with)
    named = [(hosts.host, plan.host, [t for t in treatments if hosts.other is None or not t.side])]
    if hosts.other is not None:
        named.append((hosts.other, hosts.other.path, [t for t in treatments if t.side]))
    places = []
    for machine, name, theirs in named:
        below = read_below(machine)
        lasts = lasting(plan, emulated=below["emulated_cpu"] is True)
        examine.check(machine, lasts, leaves=options.destination is not None)
        qemus = _qemus(machine, lasts, options)
        accelerators = [accelerator for _, accelerator in qemus if accelerator]
        real = [accelerator is not None and accelerator.name == "kvm" for _, accelerator in qemus]  # as far as is known
        if below["emulated_cpu"] is not True and all(real):
            examine.refuse_few_cpus(machine, lasts)
        if options.wire is not None and hosts.peer is not None:
            examine.check_peer(machine, hosts.peer, lasts, options.wire)
        impossible = _guests_not_here(machine, lasts, qemus, options.wire)
        if options.destination is not None and hosts.destination is not None:
            impossible |= destination.look(machine, hosts.destination, lasts, options.destination)
            refuse_none_left(machine, lasts.treatments()[0], impossible)
        place = Place(machine, name, lasts, theirs, below, impossible, accelerators)
        places.append(_with_disks(place, options.target, emit))
    return places


def _lacks_kernel_pack(plan: Plan) -> bool:
    return any(choice.name == Build.name for choice in plan.workloads) and not kernel.PACK.is_there()


def _lacks_postgresql_pack(plan: Plan) -> bool:
    return needs.databases(plan) > 0 and not postgresql.PACK.is_there()


def _guests_not_here(
    machine: Machine, plan: Plan, qemus: Sequence[tuple[Qemu, Accelerator | None]], wire: Wire | None
) -> dict[str, str]:
    """Treatments whose guest's memory or CPU cannot be had there -> why. Raises CannotMeasure and QemuError.

    qemus: those that guests are to run on; their CPUs are not known before it was tried whether KVM works
    """
    treatments = plan.treatments()[0]
    impossible = {**pages.not_here(machine, plan, treatments), **pinning.not_here(machine, plan, treatments)}
    card = wire.card if wire else None
    impossible |= net_paths.not_here(machine, plan, treatments, card)
    impossible |= migration.not_here(machine, plan, treatments, card)
    for qemu, accelerator in qemus:
        if accelerator is None:
            continue
        has_kvm = accelerator.name == "kvm"
        impossible |= polling.not_here(machine, treatments) if has_kvm else cpus.without_kvm(treatments)
        refused = cpus.not_here(machine, qemu, accelerator.name, plan, treatments)
        # Guests that are emulated may be the image's QEMU's, a newer one, where none is named.
        if qemu.emulates_steadily or has_kvm or not qemu.is_default:
            impossible = {**refused, **impossible}
    refuse_none_left(machine, treatments, impossible)
    return impossible


def _qemus(machine: Machine, plan: Plan, options: TestbedOptions) -> list[tuple[Qemu, Accelerator | None]]:
    """With what its guests run on, None where that was not tried yet.

    Raises BadInput where a QEMU that was named cannot be used, and QemuError where the host's own cannot.
    """
    has_guests = not set(plan.layers) <= {"host"}
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


def _with_disks(place: Place, target: Target, emit: Callable[[str], None]) -> Place:
    """With the treatments whose disk cannot be there. Raises StorageError and CannotMeasure."""
    machine, plan = place.machine, place.plan
    if not needs.disk_bytes(plan):
        backing.refuse_unused(machine.path, (), target)
        return place
    if disk_facts(machine, target.directory)["mount_point"] is None:
        raise NoSuchPlace(f"{machine.path}: no directory {target.directory}; name another with --disk-dir")
    refuse_unsafe(machine, target.directory)
    if not machine.succeeds("test", "-w", str(target.directory)):
        raise CannotMeasure(
            f"{machine.path}: {target.directory} cannot be written to; name another directory with --disk-dir"
        )
    _ = machine.scratch  # made now: its guard starts, and undoes what an earlier run left on the devices
    compared = [treatment for treatment in place.treatments if treatment.repeats is None]
    impossible = {**place.impossible, **disks.not_here(machine, target, compared)}
    refuse_none_left(machine, compared, impossible)
    found = replace(place, impossible=impossible)
    if any(choice.name == Durability.name for choice in plan.workloads):
        possible = [treatment for treatment in compared if treatment.name not in impossible]
        host_disk.refuse(lab_of(place.name), machine, possible, target)
    size, spare, beside = needs.disk_sizes(plan)
    backing.refuse(machine, found.disks, target, size, spare)
    check_free(machine, target.directory, backing.directory_bytes(found.disks, target, size, spare, beside))
    areas = backing.areas(found.disks, target, size, spare)
    refuse_devices(
        machine, target, areas, lambda device: emit(f"{device}, whether it is empty; {LOOK_SECONDS:.0f} s at most")
    )
    return found


def with_disks_tried(places: Sequence[Place], sides: Sequence[Examined]) -> list[Place]:
    """The hosts with the treatments whose disk QEMU does not open there, as far as that can be tried beforehand.

    sides: the same hosts, examined; a host has two where two of its QEMUs are compared
    Raises CannotMeasure where nothing of a layer is left, StorageError, CommandFailed and QemuError.
    """
    found = []
    for place in places:
        impossible = dict(place.impossible)
        for side in sides:
            if side.host is place.machine:
                named = f"{side.side}: " if side.second_qemu else ""
                impossible = {**{name: f"{named}{why}" for name, why in not_opened(side).items()}, **impossible}
        refuse_none_left(place.machine, place.plan.treatments()[0], impossible)
        found.append(replace(place, impossible=impossible))
    return found


def _rights(place: Place) -> Line:
    """What is done as root, or what is missing without."""
    networked = any(workload.networked for workload in place.plan.build_workloads())
    if examine.is_root(place.machine):
        return Line("as root", f"{BRIDGE}; {DROPS}" if networked else DROPS)
    return Line(
        "as a user",
        f"{USER_NETWORK}, and {WARM}, because a bridge and dropping caches need root"
        if networked
        else f"{WARM}, because dropping them needs root",
    )


def emulation_advice(plan: Plan, host: Reader) -> list[str]:
    """What a plan's reader must know of KVM on this host: a line where no guest boots with it, or it was not tried yet.

    Reads only; nothing is booted.
    """
    if set(plan.layers) <= {"host"}:
        return []
    try:
        accelerator = known(host, Qemu.probe(host))
    except QemuError as error:
        return [f"no guest can be booted: {error}"]
    if accelerator is None:
        return ["whether guests boot with KVM is tried when `vmtax run` begins, before it asks"]
    if accelerator.name == "kvm":
        return []
    seconds = foresee(plan, plan.entries(), Emulation(guests=True)).seconds
    return [
        f"{accelerator.reason}. Emulated, a run takes {format_span(*seconds)} and its figures "
        "say nothing about cost: `vmtax run` wants --emulate for it"
    ]


def refuse_emulation(plan: Plan, seconds: tuple[float, float], why: str) -> None:
    """Raises BadInput: --emulate was not given. `why`: no guest boots with KVM."""
    raise BadInput(
        f"{plan.host}: {why}. Emulated, this run would take {format_span(*seconds)}, and its "
        "figures would say nothing about what a VM costs; --emulate runs it all the same"
    )


def outlook(
    plan: Plan, places: Sequence[Place], options: TestbedOptions, foreseen: Foreseen, *, emulated: str = ""
) -> list[Line]:
    """Lines for a person.

    emulated: why guests are; "" where they run on KVM, or none is booted
    """
    compared = both(plan.treatments()[0], options.interleave_with)
    # A calibration compares a guest with itself, and what only counts compares nothing.
    lone = len(compared) < 2 and plan.rounds.max < MANY and bool(plan.primary)
    executions, booting = _executions(plan, foreseen), reboots(plan)
    lines = [
        Line("what", _what(plan, options, [treatment.name for treatment in compared], foreseen.done)),
        Line("how long", _how_long(foreseen, ", without the reboots" if booting else "")),
    ]
    if booting:
        lines.append(Line("reboots", booting))
    lines += [Line("note", text) for text in [*in_common(plan), *([NOTHING] if lone else [])]]
    lines += [Line("budget", text) for text in foreseen.losses]
    for place in places:
        if len(places) > 1:
            lines.append(Line("on", place.name))
        lines += [Line("left out", f"{name}: {why}") for name, why in place.impossible.items()]
        lines += [*_runs_on(place, emulated=bool(emulated)), *_writes(place, options.target, executions)]
        lines.append(Line("needs", _needs(place.plan, place.machine, leaves=options.destination is not None)))
        possible = [one for one in place.treatments if (one.repeats or one.name) not in place.impossible]
        taken = (
            *pages.announced(place.plan, possible),
            *net_paths.announced(place.machine, place.plan, possible, options.wire),
        )
        lines += [Line("takes", text) for text in taken]
        lines.append(_rights(place))
    if options.destination is not None:
        lines.append(Line("moves", destination.announced(plan, options.destination)))
    if emulated:
        lines.insert(0, Line("emulated", f"{emulated}; the figures say nothing about cost"))
    if options.demonstration:
        lines.insert(0, Line("a demo", "3 short rounds, which show what a report looks like, not what a VM costs"))
    if _lacks_kernel_pack(plan):
        lines.insert(0, Line("first", f"builds {kernel.KIND.what} of compiler and source: {kernel.TAKES}"))
    if _lacks_postgresql_pack(plan):
        lines.insert(0, Line("first", f"builds {postgresql.KIND.what} of server and client: {postgresql.TAKES}"))
    return lines


def _what(plan: Plan, options: TestbedOptions, names: Sequence[str], done: int) -> str:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    least, most = plan.rounds.min, plan.rounds.max
    rounds = count_of(most, "round") if least == most else f"{least} to {most} rounds"
    if most >= MANY and plan.budget is not None:
        rounds = f"{least} rounds or as many more as fit in {format_duration(plan.budget)}"
    gone_on = f", {done} of them done" if done else ""
    configurations = "configuration" if len(names) == 1 else "configurations"
    on = plan.host
    if options.interleave_with:
        on += f" and {options.interleave_with}, interleaved"
    again = next((entry.repeats for entry in plan.entries() if entry.repeats is not None), None)
    twice = f", {again} twice for the noise floor" if again else ""
    return f"plan {plan.name} on {on}: {rounds}{gone_on}, each of {len(names)} {configurations} ({shown}){twice}"


def _how_long(foreseen: Foreseen, apart: str) -> str:
    """`apart`: what is not in it."""
    rounds = foreseen.rounds
    basis = "as when this plan last ran here" if foreseen.measured else "a first guess"
    longer = f"; the first {PILOT_ROUNDS} are the pilot and take longer than the rest" if foreseen.piloting else ""
    number = f"{rounds} round{'' if rounds == 1 else 's'}"
    return f"about {format_span(*foreseen.seconds)} for {number}, {basis}{longer}{apart}"


def _executions(plan: Plan, foreseen: Foreseen) -> int:
    """How often each case is run in the rounds to come, at most."""
    if plan.iterations != "auto":
        return plan.iterations * foreseen.rounds
    pilot = min(foreseen.rounds, max(0, PILOT_ROUNDS - foreseen.done))
    return pilot * PILOT_ITERATIONS + (foreseen.rounds - pilot) * MOST_ITERATIONS


def _runs_on(place: Place, *, emulated: bool) -> list[Line]:
    """What makes of all figures something else; nothing on bare metal."""
    below = place.below
    if below["emulated_cpu"]:
        return [
            Line("host", "its CPU is itself emulated (TCG): every figure is marked so, none is what hardware costs")
        ]
    if not below["virtualized"]:
        return []
    hypervisor = below["hypervisor"] or "an unknown hypervisor"
    adds = "" if emulated or set(place.plan.layers) <= {"host"} else ": the figures say what nesting adds to it"
    return [Line("host", f"is itself a VM (under {hypervisor}){adds}")]


def _writes(place: Place, target: Target, executions: int) -> list[Line]:
    plan, treatments = place.plan, place.treatments
    prepared = needs.disk_bytes(plan)
    if not prepared:
        return []
    machines = [treatment for treatment in treatments for _ in topology(treatment).subjects]
    each_round = sum_per_round(plan, machines, lambda workload, case: workload.written_bytes(case))
    facts = disk_facts(place.machine, target.directory)
    most = format_room(each_round * executions)
    more = f", then over it up to {most} if the disk is fast" if each_round else ""
    named = [
        *([f"{', '.join(target.devices)} (empty afterwards)"] if target.devices else []),
        *([f"free space of volume group {target.group}"] if target.group else []),
        *([f"free space of pool {target.pool}"] if target.pool else []),
    ]
    where = "; to ".join([*named, _device(facts)])
    lost = [Line("erases", f"what {device} holds") for device in target.devices if device in target.erase]
    taken = backing.directory_bytes(place.disks, target, *needs.disk_sizes(plan))
    room = "" if taken in (0, prepared) else f", taking up to {format_room(taken)} of that directory at a time"
    return [Line("writes", f"{format_room(prepared)} to {where}{room}{more}; removed again"), *lost]


def _device(facts: Json) -> str:
    free = facts["free_bytes"]
    about = [facts["file_system"], f"{format_room(free)} free" if free is not None else None]
    return f"{facts['directory']} on {facts['device'] or 'an unknown device'} ({', '.join(filter(None, about))})"


def _needs(plan: Plan, host: Machine, *, leaves: bool) -> str:
    guests, each = needs.guests_at_once(plan), plan.guest.vcpus
    cpus = f"{guests * each} CPU{'' if guests * each == 1 else 's'}"
    if guests > 1:
        cpus += f" ({guests} guests at once x {each})"
    wanted = max(needs.memory_bytes(plan, layer, leaves=leaves) for layer in plan.layers)
    if not wanted:
        return cpus
    available = available_memory(host)
    has = f" ({format_room(available)} available)" if available is not None else ""
    return f"{cpus}, {format_room(wanted)} of memory at a time{has}"
