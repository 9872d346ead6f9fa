"""What a run will do, how long it takes, what it writes and what it needs: the text before the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmtax.core.records import Json, Treatment
from vmtax.core.units import count_of, format_duration, format_room, format_span
from vmtax.design.interleaved import both
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.experiment.preview import Place, lacks_kernel_pack, lacks_postgresql_pack
from vmtax.experiment.writes import ForeseenWrites, foresee_writes, machines_of, refuse_too_much
from vmtax.image import kernel, postgresql
from vmtax.machine import Machine
from vmtax.meter.memory import available_memory
from vmtax.meter.network_storage import network_storage
from vmtax.plan.estimate import NOTHING, Foreseen, compares_nothing, in_common, not_measured, reboots
from vmtax.plan.guests import guest_levels, guests_at_once, largest
from vmtax.plan.schema import Plan
from vmtax.stats import MOST_ITERATIONS
from vmtax.storage import Target, backing
from vmtax.testbed import parts
from vmtax.testbed.host import needs
from vmtax.testbed.host.additions import additions
from vmtax.testbed.host.cpus import Sets
from vmtax.testbed.parts import Request, destination
from vmtax.testbed.session import examine
from vmtax.testbed.session.power import announced_cuts
from vmtax.testbed.session.session import TestbedOptions

MANY = 1000  # a value of rounds.max that means no limit
BRIDGE = "a bridge in a network namespace of its own"
DROPS = "drops the page cache of the whole host before each configuration, so other programs read from disks again"
HANDS_OFF = "it is not rebooted, and no setting of it is changed; its caches stay as they are"
WATCHED = "only counters of this host are read now, and nothing is done here or in the VM: keep it idle meanwhile"
USER_NETWORK, WARM = "user networking in place of a bridge", "caches stay warm"


@dataclass(frozen=True, slots=True)
class Line:
    """One fact for the person who is asked."""

    what: str  # label: "writes"
    text: str


def _rights(place: Place) -> Line:
    """What is done as root, or what is missing without root."""
    if place.is_existing:
        return Line("hands off", HANDS_OFF)
    if place.is_watched:
        return Line("hands off", WATCHED)
    networked = any(workload.networked for workload in place.plan.build_workloads())
    if examine.is_root(place.machine):
        warm = examine.why_warm(place.machine)
        drops = f"{WARM}: {warm}" if warm else DROPS
        return Line("as root", f"{BRIDGE}; {drops}" if networked else drops)
    return Line(
        "as a user",
        f"{USER_NETWORK}, and {WARM}, because a bridge and dropping caches need root"
        if networked
        else f"{WARM}, because dropping them needs root",
    )


def outlook(
    plan: Plan,
    places: Sequence[Place],
    options: TestbedOptions,
    foreseen: Foreseen,
    *,
    emulated: str = "",
    written: float | None = None,
) -> list[Line]:
    """The facts as lines for a person.

    emulated: why guests are emulated; "" if they run on KVM, or none is booted
    written: bytes per round that an earlier run of the same plan on the same host wrote to the disks under test
    """
    compared = both(plan.treatments()[0], options.interleave_with)
    # A calibration compares a guest with itself, and a plan that only counts compares nothing.
    lone = compares_nothing(plan, compared) and plan.rounds.max < MANY
    left_out = {name for place in places for name in place.impossible}
    booting = reboots(plan)
    lines = [
        Line(
            "what",
            what_is_done(plan, options, [one.name for one in compared if one.name not in left_out], foreseen.done),
        ),
        Line("how long", how_long(plan, foreseen, _apart(options, booting))),
    ]
    if options.power_cut:
        tried = [one for place in places for one in place.treatments if one.repeats is None]
        cuts = foreseen.rounds * sum(one.layer == "vm" and one.name not in places[0].impossible for one in tried)
        lines += [Line("cuts", text) for text in announced_cuts(plan.host, options.power_cut, cuts)]
    if booting:
        lines.append(Line("reboots", booting))
    lines += [Line("note", text) for text in [*in_common(plan), *not_measured(plan), *([NOTHING] if lone else [])]]
    lines += [Line("budget", text) for text in foreseen.losses]
    for place in places:
        if len(places) > 1:
            lines.append(Line("on", place.name))
        lines += [Line("left out", f"{name}: {why}") for name, why in place.impossible.items()]
        lines += [Line("beside", text) for text in [str(place.neighbours)] if text]
        lines += [
            *_runs_on(place, emulated=bool(emulated)),
            *_writes(place, _target(place, options), foreseen, written),
        ]
        lines.append(Line("needs", _needs(place.plan, place.machine, leaves=options.destination is not None)))
        request = Request(place.machine, place.plan, place.possible, card=options.card, wire=options.wire)
        lines += [Line("takes", text) for text in parts.announced(request)]
        lines.append(_rights(place))
    if options.destination is not None:
        lines.append(Line("moves", destination.announced(plan, options.destination)))
    if emulated:
        lines.insert(0, Line("emulated", f"{emulated}; the figures say nothing about cost"))
    if options.demonstration:
        lines.insert(0, Line("a demo", "3 short rounds, which show what a report looks like, not what a VM costs"))
    if more := additions(plan):
        lines.append(Line("image", f"one of its own, with {more}; `vmtax clean --images` removes it"))
    if lacks_kernel_pack(plan):
        lines.insert(0, Line("first", f"builds {kernel.KIND.what} of compiler and source: {kernel.TAKES}"))
    if lacks_postgresql_pack(plan):
        lines.insert(0, Line("first", f"builds {postgresql.KIND.what} of server and client: {postgresql.TAKES}"))
    return lines


def _target(place: Place, options: TestbedOptions) -> Target:
    """Where the disks under test are made there."""
    return Target(options.existing.directory) if place.is_existing and options.existing else options.target


def _apart(options: TestbedOptions, booting: str) -> str:
    """What is not included in the time that a run takes."""
    if options.power_cut:
        return ", without the time in which the host is off"
    return ", without the reboots" if booting else ""


def what_is_done(plan: Plan, options: TestbedOptions, names: Sequence[str], done: int) -> str:
    """`names`: of the configurations; `done`: complete rounds"""
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
    twice = f", {again} twice, to show the noise" if again else ""
    return f"plan {plan.name} on {on}: {rounds}{gone_on}, each of {len(names)} {configurations} ({shown}){twice}"


def how_long(plan: Plan, foreseen: Foreseen, apart: str = "") -> str:
    """`apart`: what is not included."""
    rounds, most = foreseen.rounds, plan.rounds.max
    basis = "as when this plan last ran here" if foreseen.measured else "a first guess"
    longer = f"; the first {PILOT_ROUNDS} are the pilot and take longer than the rest" if foreseen.piloting else ""
    cut = plan.budget is not None and foreseen.done + rounds < most
    budget = f", which its budget of {format_duration(plan.budget or 0)} allows of up to {most}" if cut else ""
    number = count_of(rounds, "round") + budget
    return f"about {format_span(*foreseen.seconds)} for {number}, {basis}{longer}{apart}"


def writes_of_work(
    plan: Plan, treatments: Sequence[Treatment], foreseen: Foreseen, written: float | None = None
) -> ForeseenWrites:
    """What the rounds write to the disks under test, once these are prepared. `written`: as in `outlook`

    Raises BadInput if the plan allows less.
    """
    machines = machines_of(treatments)
    refuse_too_much(plan, needs.disk_bytes(plan), machines)
    return foresee_writes(plan, machines, _executions(plan, foreseen), foreseen.rounds, written)


def _executions(plan: Plan, foreseen: Foreseen) -> int:
    """How often each case is run in each of the coming rounds, at most."""
    if plan.iterations != "auto":
        return plan.iterations * foreseen.rounds
    pilot = min(foreseen.rounds, max(0, PILOT_ROUNDS - foreseen.done))
    return pilot * PILOT_ITERATIONS + (foreseen.rounds - pilot) * MOST_ITERATIONS


def _runs_on(place: Place, *, emulated: bool) -> list[Line]:
    """Lines about a host that is itself a VM or emulated, which changes the meaning of all figures; nothing on bare
    metal.
    """
    below = place.below
    if place.is_existing:
        return [Line("host", "its CPU is emulated (TCG)")] if below["emulated_cpu"] else []
    if below["emulated_cpu"]:
        return [
            Line("host", "its CPU is itself emulated (TCG): every figure is marked so, none is what hardware costs")
        ]
    if not below["virtualized"]:
        return []
    hypervisor = below["hypervisor"] or "an unknown hypervisor"
    adds = "" if emulated or not place.plan.has_guests else ": the figures say what nesting costs"
    return [Line("host", f"is itself a VM (under {hypervisor}){adds}")]


def _writes(place: Place, target: Target, foreseen: Foreseen, written: float | None) -> list[Line]:
    """`written`: bytes per round of an earlier run of this plan here. Raises BadInput if the plan allows less."""
    plan = place.plan
    prepared = needs.disk_bytes(plan)
    if not prepared:
        return []
    work = writes_of_work(plan, place.treatments, foreseen, written)
    facts = target.facts(place.machine)
    more = f", {work}" if work.most else ""
    if plan.max_writes is not None:
        more += f"; the run ends before a round that may exceed {format_room(plan.max_writes)} in all"
    named = [
        *([f"{', '.join(target.devices)} (empty afterwards)"] if target.devices else []),
        *([f"free space of volume group {target.group}"] if target.group else []),
        *([f"free space of pool {target.pool}"] if target.pool else []),
    ]
    where = "; to ".join([*named, _device(facts)])
    lost = [Line("erases", f"what {device} holds") for device in target.devices if device in target.erase]
    taken = backing.directory_bytes(place.disks, target, *needs.disk_sizes(plan))
    room = "" if taken in (0, prepared) else f", taking up to {format_room(taken)} of that directory at a time"
    kind = network_storage(facts)
    served = [Line("storage", f"{kind}: what serves it and the way there are measured too, its caches stay warm")]
    return [
        Line("writes", f"{format_room(prepared)} to {where}{room}{more}; removed again"),
        *(served if kind else []),
        *lost,
    ]


def _device(facts: Json) -> str:
    free = facts["free_bytes"]
    about = [facts["file_system"], f"{format_room(free)} free" if free is not None else None]
    return f"{facts['directory']} on {facts['device'] or 'an unknown device'} ({', '.join(filter(None, about))})"


def _needs(plan: Plan, host: Machine, *, leaves: bool) -> str:
    guests, each = guests_at_once(plan), largest(plan).guest.vcpus
    share = min(map(int, guest_levels(plan, "overcommit"))) if guests > 1 else 1
    cpus = count_of(Sets(guests, share).cpus(each), "CPU")
    if guests > 1:
        cpus += f" ({guests} guests at once x {each}{f', {share} to a CPU' if share > 1 else ''})"
    wanted = max(needs.memory_bytes(plan, layer, leaves=leaves) for layer in plan.layers)
    if not wanted:
        return cpus
    available = available_memory(host)
    has = f" ({format_room(available)} available)" if available is not None else ""
    return f"{cpus}, {format_room(wanted)} of memory at a time{has}"
