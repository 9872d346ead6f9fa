"""What a run is going to do, said before it does it: what, how long, what it writes to which device, what it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vmtax.core.errors import BadInput
from vmtax.core.records import Json, Treatment
from vmtax.core.units import format_duration, format_room
from vmtax.design.disk import DiskSettings
from vmtax.design.interleaved import both, is_host
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.hypervisor import Qemu, QemuError
from vmtax.image import kernel
from vmtax.machine import Machine
from vmtax.meter.below import read_below
from vmtax.meter.disk import disk_facts
from vmtax.meter.memory import available_memory
from vmtax.plan.estimate import fit_rounds, lasting, pilot_seconds, seconds_per_round, sum_per_round
from vmtax.plan.schema import Plan
from vmtax.stats import MOST_ITERATIONS
from vmtax.storage import Target, refuse_unsafe
from vmtax.storage.backing import directory_bytes, refuse_unused
from vmtax.storage.empty import SECONDS as LOOK_SECONDS
from vmtax.storage.ground import refuse_used
from vmtax.testbed import disks
from vmtax.testbed.examine import is_root
from vmtax.testbed.needs import carrier_disk_bytes, disk_bytes, disk_size, memory_bytes, refuse_small
from vmtax.testbed.session import CannotMeasure, TestbedOptions
from vmtax.workload.build import Build
from vmtax.workload.fio import Disk

MANY = 1000  # rounds.max that means none


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to know beforehand."""

    what: str  # "writes"
    text: str


def outlook(
    plan: Plan,
    host: Machine,
    options: TestbedOptions,
    *,
    emit: Callable[[str], None] = lambda what: None,
    other: Machine | None = None,
    earlier_seconds_per_round: float | None,
    rounds_done: int = 0,
    builds_image: bool,
) -> list[Line]:
    """Lines for a person. Reads on `host`, changes nothing there. Raises BadInput for a QEMU that is not there.

    emit: called with what is about to take seconds
    other: the second host under test
    earlier_seconds_per_round: of the same plan on the same host, when it ran before
    rounds_done: complete ones of a run that is resumed
    """
    compared, treatments = (both(found, options.interleave_with) for found in (plan.treatments()[0], plan.entries()))
    per_round = earlier_seconds_per_round or seconds_per_round(plan, treatments)
    piloting = plan.iterations == "auto" and rounds_done < PILOT_ROUNDS
    earlier = earlier_seconds_per_round is not None  # seconds that were measured hold the pilot already
    more = pilot_seconds(plan, treatments) if piloting and not earlier else 0.0
    fitting, losses = fit_rounds(plan, per_round, more)
    rounds = max(0, fitting - rounds_done)
    executions = _executions(plan, rounds, rounds_done)
    places = [(host, [t for t in treatments if other is None or not t.side])]
    if other is not None:
        places.append((other, [t for t in treatments if t.side]))
    _refuse_qemus([machine for machine, _ in places], options)
    lines = [
        Line("what", _what(plan, options, [treatment.name for treatment in compared], rounds_done)),
        Line("how long", _how_long(per_round * rounds + more, rounds, earlier=earlier, piloting=piloting)),
    ]
    lines += [Line("budget", text) for text in losses]
    for machine, theirs in places:
        if other is not None:
            lines.append(Line("on", other.path if machine is other else plan.host))
        writes = _writes(plan, theirs, machine, options, executions, emit)
        below = read_below(machine)
        lasts = lasting(plan, emulated=below["emulated_cpu"] is True)
        lines += [*_runs_on(below), *writes, Line("needs", _needs(lasts, machine))]
        root = is_root(machine)
        lines.append(Line("as root" if root else "as a user", ROOT if root else USER))
    if builds_image:
        lines.insert(0, Line("first", "builds the root image: about a minute, 2 GiB in the cache"))
    if any(choice.name == Build.name for choice in plan.workloads):
        refuse_small(plan)
        if not kernel.is_there():
            lines.insert(0, Line("first", f"builds {kernel.KIND.what} of compiler and source: {kernel.TAKES}"))
    return lines


ROOT = "a bridge in a network namespace of its own; drops the page cache before each treatment"
USER = "user networking in place of a bridge, and caches stay warm: both need root"


def _refuse_qemus(machines: Sequence[Machine], options: TestbedOptions) -> None:
    """Raises BadInput where one that was named cannot be used, also where no guest is measured."""
    named = (options.qemu, options.interleave_with)
    for machine in machines:
        for program in named:
            if program is None or is_host(program):
                continue
            try:
                Qemu.probe(machine, program)
            except QemuError as error:
                raise BadInput(str(error)) from error


def _what(plan: Plan, options: TestbedOptions, names: Sequence[str], done: int) -> str:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    least, most = plan.rounds.min, plan.rounds.max
    rounds = f"{most} round{'' if most == 1 else 's'}" if least == most else f"{least} to {most} rounds"
    if most >= MANY and plan.budget is not None:
        rounds = f"{least} rounds or as many more as fit in {format_duration(plan.budget)}"
    gone_on = f", {done} of them done" if done else ""
    treatments = "treatment" if len(names) == 1 else "treatments"
    on = plan.host
    if options.interleave_with:
        on += f" and {options.interleave_with}, interleaved"
    again = next((entry.repeats for entry in plan.entries() if entry.repeats is not None), None)
    twice = f", {again} twice for the noise floor" if again else ""
    return f"plan {plan.name} on {on}: {rounds}{gone_on}, each of {len(names)} {treatments} ({shown}){twice}"


def _how_long(seconds: float, rounds: int, *, earlier: bool, piloting: bool) -> str:
    basis = "as when this plan last ran here" if earlier else "a first guess; emulated guests take longer"
    longer = f"; the first {PILOT_ROUNDS} are the pilot and take longer than the rest" if piloting else ""
    return f"about {format_duration(seconds)} for {rounds} round{'' if rounds == 1 else 's'}, {basis}{longer}"


def _executions(plan: Plan, rounds: int, done: int) -> int:
    """How often each case is run in the rounds to come, at most."""
    if plan.iterations != "auto":
        return plan.iterations * rounds
    pilot = min(rounds, max(0, PILOT_ROUNDS - done))
    return pilot * PILOT_ITERATIONS + (rounds - pilot) * MOST_ITERATIONS


def _runs_on(below: Json) -> list[Line]:
    """What makes of all figures something else; nothing on bare metal."""
    if below["emulated_cpu"]:
        return [Line("runs on", "an emulated CPU (TCG): every figure will be marked so, none is what hardware costs")]
    if not below["virtualized"]:
        return []
    hypervisor = below["hypervisor"] or "an unknown hypervisor"
    return [Line("runs on", f"{hypervisor}, being itself a VM: the figures will tell what nesting adds to it")]


def _writes(
    plan: Plan,
    treatments: Sequence[Treatment],
    host: Machine,
    options: TestbedOptions,
    executions: int,
    emit: Callable[[str], None],
) -> list[Line]:
    prepared = disk_bytes(plan)
    wanted = [settings for settings, _ in disks.wanted(treatments)] if prepared else []
    refuse_unused(host.path, wanted, options.target)
    if not prepared:
        return []
    _refuse_used(host, options.target, emit)
    each_round = sum_per_round(plan, treatments, lambda workload, case: workload.written_bytes(case))
    facts = disk_facts(host, options.target.directory)
    if facts["mount_point"] is None:
        raise CannotMeasure(f"{host.path}: no directory {options.target.directory}; name another with --disk-dir")
    refuse_unsafe(host, options.target.directory)
    most = format_room(each_round * executions)
    more = f", then over it up to {most} if the disk is fast" if each_round else ""
    target = options.target
    named = [
        *([f"{', '.join(target.devices)} (empty afterwards)"] if target.devices else []),
        *([f"free space of volume group {target.group}"] if target.group else []),
        *([f"free space of pool {target.pool}"] if target.pool else []),
    ]
    where = "; to ".join([*named, _device(facts)])
    lost = [Line("erases", f"what {device} holds") for device in target.devices if device in target.erase]
    taken = _taken(plan, wanted, target)
    room = "" if taken in (0, prepared) else f", taking up to {format_room(taken)} of that directory at a time"
    return [Line("writes", f"{format_room(prepared)} to {where}{room}{more}; removed again"), *lost]


def _refuse_used(host: Machine, target: Target, emit: Callable[[str], None]) -> None:
    """Before anybody is asked whether it may be erased."""
    if target.devices and is_root(host):
        host.scratch  # noqa: B018 (its guard begins, and with what an earlier run left on them)
        for device in target.devices:
            if device not in target.erase:
                emit(f"{device}, whether it is empty; {LOOK_SECONDS:.0f} s at most")
            refuse_used(host, device, erase=device in target.erase)


def _taken(plan: Plan, wanted: Sequence[DiskSettings], target: Target) -> int:
    """Bytes of the directory: what stands on files there is reserved in full, and more than what is written."""
    workloads = plan.build_workloads()
    size = disk_size(workloads)
    fresh = max((w.parameters.fresh_bytes for w in workloads if isinstance(w, Disk)), default=0)
    carrier = carrier_disk_bytes(size) if "nested" in plan.layers else 0
    return directory_bytes(wanted, target, size, fresh, carrier)


def _device(facts: Json) -> str:
    free = facts["free_bytes"]
    known = [facts["file_system"], f"{format_room(free)} free" if free is not None else None]
    return f"{facts['directory']} on {facts['device'] or 'an unknown device'} ({', '.join(filter(None, known))})"


def _needs(plan: Plan, host: Machine) -> str:
    cpus = f"{plan.guest.vcpus} CPU{'' if plan.guest.vcpus == 1 else 's'}"
    wanted = max(memory_bytes(plan, layer) for layer in plan.layers)
    if not wanted:
        return cpus
    available = available_memory(host)
    has = f" ({format_room(available)} available)" if available is not None else ""
    return f"{cpus}, {format_room(wanted)} of memory at a time{has}"
