"""What `vmtax plan check` says: what a plan can show, and what `run` would say before it asks. Nothing is booted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vmtax.cli import on_windows
from vmtax.cli.app import answer, say_wrapped, warn
from vmtax.cli.asked import Measured
from vmtax.cli.running import new_work
from vmtax.cli.work import RunWork, fitted, is_emulated, outlook_of, written_per_round
from vmtax.core.errors import BadInput, CannotDo
from vmtax.core.units import format_room
from vmtax.experiment.outlook import Line, writes_of_work
from vmtax.experiment.preview import Place, look
from vmtax.experiment.writes import ForeseenWrites
from vmtax.machine.login_shell import WindowsThere
from vmtax.plan.asked import NotMeasured
from vmtax.plan.cuts import not_ended
from vmtax.plan.estimate import Foreseen, check, foresee, settled
from vmtax.plan.schema import Plan
from vmtax.report.answers.checked import (
    PlanCheck,
    PlannedAction,
    PlannedBytes,
    PlannedConfiguration,
    PlannedLeftOut,
    PlannedSeconds,
)
from vmtax.store import Store
from vmtax.testbed.host import needs
from vmtax.testbed.machines.on_windows import HOST
from vmtax.testbed.session.cloning import Cloning
from vmtax.testbed.session.session import connected
from vmtax.testbed.session.watching import Watching

NOT_TRIED = "whether guests boot with KVM is tried when `vmtax run` begins, before it asks"
HERE = "`vmtax run` would say this, and then ask:"
IN_ADVICE = ("note", "budget", "reboots")  # labels of lines that are advice about the plan, too


@dataclass(frozen=True, slots=True)
class _Here:
    """What is known of a run on its hosts."""

    plan: Plan
    foreseen: Foreseen
    writes: ForeseenWrites
    actions: Sequence[Line] = ()
    more: Sequence[str] = ()  # what is said beside these
    impossible: Mapping[str, str] = field(default_factory=dict)  # configurations -> why


def check_plan(plan: str, asked: Measured, *, json: bool) -> None:
    """Print it as lines, or as JSON."""
    found = checked(plan, asked)
    if json:
        answer("plan-check", found)
        return
    for line in found.lines:
        say_wrapped(line)


def checked(plan: str, asked: Measured) -> PlanCheck:
    """Raises PlanError, BadUse and NotMeasured; whatever else prevents the run on the hosts themselves is an answer."""
    work = new_work(plan, asked)
    lines, refused = check(work.plan), None
    try:
        here = _on_its_system(work)
        said = [line.text if line.what in IN_ADVICE else f"{line.what}: {line.text}" for line in here.actions]
        lines += [HERE, *(line for line in [*said, *here.more] if line not in lines)]
    except NotMeasured:
        raise  # as `run` does
    except (CannotDo, BadInput) as error:
        refused = str(error)
        here = _anywhere(work.plan)
        lines += [*_writes(here), f"cannot run: {refused}"]
    low, high = here.foreseen.seconds
    memory = max(needs.memory_bytes(here.plan, layer) for layer in here.plan.layers)
    kept = [one for one in here.plan.treatments()[0] if one.name not in here.impossible]
    return PlanCheck(
        here.plan.name,
        here.plan.host,
        [PlannedConfiguration(one.name, one.layer, dict(one.levels)) for one in kept],
        [*_left_out(here)],
        here.plan.moved_defaults,
        here.foreseen.rounds,
        PlannedSeconds(low, high, here.foreseen.measured),
        PlannedBytes(needs.disk_bytes(here.plan), here.writes.expected, here.writes.most, memory),
        [PlannedAction(line.what, line.text) for line in here.actions],
        refused,
        lines,
    )


def _anywhere(plan: Plan) -> _Here:
    """What is known without its hosts."""
    foreseen = foresee(plan, plan.entries())
    return _Here(plan, foreseen, writes_of_work(plan.model_copy(update={"max_writes": None}), plan.entries(), foreseen))


def _writes(here: _Here) -> Iterator[str]:
    if prepared := needs.disk_bytes(here.plan):
        more = f", {here.writes}" if here.writes.most else ""
        yield f"writes: {format_room(prepared)} to the disks under test{more}; removed again"


def _left_out(here: _Here) -> Iterator[PlannedLeftOut]:
    for one in here.plan.expansion().omitted:
        yield PlannedLeftOut(one.name, one.code, one.factors, one.why)
    kept = here.plan.treatments()[0]
    ended = not_ended(here.plan, kept)
    for treatment in kept:
        why = here.impossible.get(treatment.name)
        if why is not None:
            about = [name for name in treatment.levels if f"{name}=" in why]
            yield PlannedLeftOut(treatment.name, "workload" if treatment.name in ended else "host", about, why)


def _on_its_system(work: RunWork) -> _Here:
    """On the system that the host has. Raises what would prevent the run: CannotDo and BadInput."""
    try:
        return _here(work)
    except WindowsThere as there:
        if there.path != HOST:
            raise
    with Store(reads=True) as store:
        work, foreseen, lines = on_windows.looked_at(store, work)
    writes = writes_of_work(work.plan.model_copy(update={"max_writes": None}), work.plan.entries(), foreseen)
    return _Here(work.plan, foreseen, writes, lines)


def _here(work: RunWork) -> _Here:
    """What a run would say on its hosts. Raises what would prevent it: CannotDo and BadInput."""
    testbed = work.options.testbed
    with connected(work.plan.host, warn, testbed) as hosts, Store(reads=True) as store:
        work = fitted(work, hosts)
        places = look(work.plan, hosts, testbed, typed=work.typed)
        why = next((one.reason for place in places for one in place.accelerators if one.name != "kvm"), "")
        if isinstance(vm := hosts.existing, Watching | Cloning) and vm.is_emulated:
            why = why or vm.why_emulated
        work = replace(work, plan=settled(work.plan, emulated=bool(why) or is_emulated(places)))
        if why and work.or_demo:
            work = work.demonstrated()
        foreseen, lines = outlook_of(store, work, places, why)
        written = written_per_round(store, work, places, why)
        if vm is not None and vm.announced:
            lines.append(Line(f"{vm.verb}s", f"{vm.name}: {vm.announced}"))
    more = []
    if why and not work.options.testbed.emulate:
        more.append("it would end there: add --emulate to measure anyway")
    if work.plan.has_guests and not all(place.accelerators for place in places):
        more.append(NOT_TRIED)
    impossible = {name: why for place in places for name, why in place.impossible.items()}
    return _Here(work.plan, foreseen, _sum(work.plan, places, foreseen, written), lines, more, impossible)


def _sum(plan: Plan, places: Sequence[Place], foreseen: Foreseen, written: float | None) -> ForeseenWrites:
    """What is written on all hosts together."""
    each = [writes_of_work(plan, place.treatments, foreseen, written) for place in places]
    return ForeseenWrites(sum(one.expected for one in each), sum(one.most for one in each), each[0].measured)
