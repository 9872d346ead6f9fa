"""Carries out an experiment: rounds of shuffled treatments, one boot each; every result is committed as it lands."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vmtax.analysis import comparisons
from vmtax.core.events import (
    Event,
    GuestBooted,
    Notice,
    RoundFinished,
    RunFinished,
    RunStarted,
    TreatmentStarted,
    TrialFinished,
    WorkloadStarted,
)
from vmtax.core.records import Boot, Comparison, Experiment, Json, Treatment, Trial
from vmtax.core.units import format_duration
from vmtax.design import iterations as schedule
from vmtax.design.interleaved import both
from vmtax.design.stopping import count
from vmtax.design.treatments import moved_defaults, shuffled_rounds
from vmtax.experiment.eta import Pace
from vmtax.experiment.resume import Before, refuse_impossible, refuse_other_host, resumable, resumed_note, same_boot
from vmtax.experiment.trial import BOOT, Place, Signatures, boot_trial, failed_boot, run_trial
from vmtax.hypervisor import BootFailed
from vmtax.image.cache import Image
from vmtax.machine import MachineError, MachineLost
from vmtax.meter.facts import qemu_facts, read_facts
from vmtax.plan.estimate import fit_rounds
from vmtax.plan.schema import Plan
from vmtax.store import Store, StoreError
from vmtax.testbed import interleave
from vmtax.testbed.environment import Environment, EnvironmentOptions, Hosts
from vmtax.testbed.layers import Opened, opened
from vmtax.workload import Workload

# Treatments of a layer that do not come up, one after the other, before any does: none will. Where half of 24 cannot,
# chance puts so many first in one of 1,500 runs.
HOPELESS = 8
Emit = Callable[[Event], None]
Todo = Mapping[schedule.Case, Sequence[int]]  # (workload, case) -> iterations


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line adds to the plan."""

    command: str  # the command line that repeats this run
    environment: EnvironmentOptions = field(default_factory=EnvironmentOptions)


@dataclass
class Run:
    """One experiment under way."""

    id: str
    plan: Plan
    environments: interleave.Environments
    treatments: tuple[Treatment, ...]
    store: Store
    emit: Emit
    seed: int  # of the order within rounds
    before: Before = field(default_factory=Before)
    signatures: Signatures = field(default_factory=Signatures)
    trials: list[Trial] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)  # by machine path
    notes: list[str] = field(default_factory=list)
    schedules: dict[schedule.Case, schedule.Schedule] = field(default_factory=dict)  # once the pilot is over
    ended: str | None = None  # why there are no more rounds
    up: set[str] = field(default_factory=set)  # treatments that have come up
    down: set[str] = field(default_factory=set)  # and that have not, one time or another

    @property
    def pilot(self) -> int:
        """Rounds that are run to plan the iterations of the others."""
        return min(schedule.PILOT_ROUNDS, self.plan.rounds.max) if self.plan.iterations == "auto" else 0

    @property
    def environment(self) -> Environment:
        """The plan's own side; what is to be measured is the same on the other."""
        return self.environments[""]

    def side_of(self, treatment: str) -> Environment:
        """Where the treatment of that name is measured."""
        return self.environments[next(t.side for t in self.treatments if t.name == treatment)]

    def note(self, text: str) -> None:
        """Keep with the experiment, once, what its reader must know."""
        if text not in self.notes:
            self.notes.append(text)
            self.store.add_note(self.id, text)

    def add(self, trial: Trial) -> Trial:
        """Keep it; returns what was recorded, a failed one where its result could not be."""
        trial = self.store.add_trial(self.id, trial)
        self.trials.append(trial)
        self.emit(TrialFinished(trial))
        return trial


def run(hosts: Hosts, plan: Plan, image: Image, store: Store, options: Options, emit: Emit) -> str:
    """Carry out `plan`; returns the experiment's id. Raises what stops it, with everything measured kept."""
    clock = time.monotonic()
    _, left_out = plan.treatments()
    environments = interleave.set_up(hosts, plan, image, emit, options.environment)
    plan = environments[""].plan  # as it can be measured here
    facts = interleave.host_facts(environments)
    impossible = impossible_in(environments)
    treatments = both(plan.entries(impossible), options.environment.interleave_with)
    experiment = _experiment(store, plan, treatments, options)
    store.begin(experiment)
    active = Run(experiment.id, plan, environments, experiment.treatments, store, emit, _seed(plan, experiment))
    with _finished(active):
        not_here = (f"{name}: {why}" for name, why in impossible.items())
        for text in (*left_out, *not_here, *moved_defaults(plan.space)):
            active.note(text)
        _keep_host_facts(active, facts)
        _rounds(active, Pace(setup_seconds=time.monotonic() - clock), clock)
    return experiment.id


def resume(hosts: Hosts, id: str, image: Image, store: Store, emit: Emit, erase: frozenset[str] = frozenset()) -> str:
    """Finish the experiment that was stopped; no trial that it has is repeated. Raises CannotResume, and as `run`.

    `erase`: devices whose contents may be lost
    """
    clock = time.monotonic()
    experiment = store.load(id)
    plan, options = resumable(experiment)
    options = replace(options, target=replace(options.target, erase=erase))

    def check(examined: interleave.Environments) -> None:
        refuse_other_host(experiment, interleave.host_facts(examined))

    environments = interleave.set_up(hosts, plan, image, emit, options, check)
    refuse_impossible(experiment, impossible_in(environments))
    facts = interleave.host_facts(environments)
    store.resume(experiment.id)
    active = Run(
        *(experiment.id, plan, environments, experiment.treatments, store, emit, _seed(plan, experiment)),
        before=Before.of(experiment.trials, same_boot=same_boot(experiment, facts)),
        signatures=Signatures.of(environments[""].workloads, _with_raw(store, experiment)),
        trials=list(experiment.trials),
        boots=list(experiment.boots),
        facts=dict(experiment.facts),
        notes=list(experiment.notes),
        up={boot.treatment for boot in experiment.boots},
    )
    with _finished(active):
        active.note(resumed_note(experiment, facts))
        _keep_host_facts(active, facts)
        _rounds(active, Pace(setup_seconds=time.monotonic() - clock), clock)
    return experiment.id


def _with_raw(store: Store, experiment: Experiment) -> Iterator[Trial]:
    """Its trials with their raw outputs, but those that cannot be read: one of them is no reason to lose the others."""
    for trial, raw in zip(experiment.trials, store.raws(experiment.id), strict=True):
        yield trial if isinstance(raw, StoreError) else replace(trial, raw=raw)


def impossible_in(environments: interleave.Environments) -> dict[str, str]:
    """Treatments that cannot be on some side -> why."""
    return {name: why for side in environments.values() for name, why in side.impossible.items()}


@contextlib.contextmanager
def _finished(active: Run) -> Iterator[None]:
    """However it ends, the store says so."""
    store, id = active.store, active.id
    try:
        yield
    except BaseException as error:
        # The store itself may be what failed: its error must not hide the first one.
        with contextlib.suppress(StoreError):
            store.finish(id, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", time.time())
        raise
    store.finish(id, "complete", time.time(), active.ended)


def _experiment(store: Store, plan: Plan, treatments: tuple[Treatment, ...], options: Options) -> Experiment:
    now = time.time()
    return Experiment(
        id=store.new_id(plan.name, now),
        name=plan.name,
        host=plan.host,
        command=options.command,
        created=now,
        finished=None,
        state="running",
        plan=plan.model_dump(mode="json"),
        facts={},
        treatments=treatments,
        boots=(),
        trials=(),
        options=options.environment.to_json(),
    )


def _seed(plan: Plan, experiment: Experiment) -> int:
    return plan.seed if plan.seed is not None else int(experiment.created)


def _rounds(active: Run, pace: Pace, clock: float) -> None:
    """Rounds until they are enough."""
    plan = active.plan
    earlier = len(active.trials)
    first = active.before.round
    if first > active.pilot:
        _plan_iterations(active)
    emulated = any(environment.host_emulated for environment in active.environments.values())
    active.emit(RunStarted(active.id, active.treatments, plan.rounds.min, plan.rounds.max, emulated))
    for number, order in enumerate(shuffled_rounds(active.treatments, active.seed), start=1):
        if number < first:
            continue
        for position, treatment in enumerate(order, start=1):
            _treatment(active, Place(number, position, treatment.name), treatment)
        pace.lap()
        if number == active.pilot:
            _plan_iterations(active)
            pace.shorten(schedule.pilot_excess(active.trials, active.schedules))
            active.emit(Notice(schedule.told(active.schedules)))
        planned, warnings = fit_rounds(plan, pace.seconds_per_round, pace.setup_seconds)
        if number == first:
            for text in interleave.layer_differences(active.facts, active.environments):
                active.note(text)
                active.emit(Notice(text))
        if number == max(first, active.pilot):  # before, rounds are longer than they will be
            for text in warnings:
                active.emit(Notice(text))
        primary = _primary(active)
        active.ended = _why_over(active, primary, number)
        if active.ended is None and number >= planned:
            assert plan.budget is not None
            active.ended = _budget_over(plan.budget, number, overdrawn=time.monotonic() - clock > 1.1 * plan.budget)
            for text in warnings:
                active.note(text)
        if active.ended is not None:
            active.emit(RoundFinished(number, number, 0.0, primary))
            _tell_end(active, number, active.trials[earlier:], time.monotonic() - clock)
            return
        active.emit(RoundFinished(number, planned, pace.seconds_per_round * (planned - number), primary))


def _budget_over(budget: float, rounds: int, *, overdrawn: bool) -> str:
    """Why there are no more rounds, where it is the budget."""
    if overdrawn:
        return f"after {count(rounds)}, the fewest, which took more than the budget of {format_duration(budget)}"
    return f"after {count(rounds)}, which the budget of {format_duration(budget)} allowed"


def _plan_iterations(active: Run) -> None:
    """The pilot is over, if there was one: how often each case is run in the boots to come."""
    if active.pilot:
        active.schedules = schedule.schedules(active.trials, active.boots, active.plan.primary)


def _tell_end(active: Run, rounds: int, trials: Sequence[Trial], seconds: float) -> None:
    inside = sum(trial.wall_seconds for trial in trials if trial.workload != "boot")
    active.emit(RunFinished(active.id, rounds, seconds, inside / seconds))


def _treatment(active: Run, place: Place, treatment: Treatment) -> None:
    """One boot of one treatment with all its workloads. A guest that fails costs this round's trial, not the run."""
    todo = _todo(active, place, treatment)
    if not todo:
        return
    for environment in active.environments.values():
        environment.check_guards()
    active.emit(TreatmentStarted(place.round, place.position, treatment))
    started = time.time()
    try:
        with opened(active.side_of(treatment.name), treatment) as layer:
            active.up.add(treatment.name)
            _record_boots(active, place, layer)
            _keep_first_writes(active, treatment)
            lost = _workloads(active, place, layer, todo)
            if layer.guests and not lost:
                _shut_down(active, place, layer)
    except (BootFailed, MachineError) as failure:
        _check_host(active.side_of(treatment.name), failure)
        if _nothing_works(active, treatment):
            raise  # say so now, not after hours
        active.add(failed_boot(place, started, str(failure)))


def _todo(active: Run, place: Place, treatment: Treatment) -> Todo:
    """What is still to be run in this boot; the boot itself counts as one."""
    wanted = [
        (workload.name, case)
        for workload in active.environment.workloads
        if treatment.layer in workload.layers
        for case in (active.plan.cases(workload, treatment) if workload.cases() else BOOT[1:])
    ]
    left = {what: _iterations_left(active, place, what) for what in wanted}
    return {what: iterations for what, iterations in left.items() if iterations}


def _iterations_left(active: Run, place: Place, what: schedule.Case) -> list[int]:
    once = what == BOOT or any(w.name == what[0] and w.once(what[1]) for w in active.environment.workloads)
    runs = 1 if once else schedule.runs(active.plan.iterations, active.schedules, what, place.round)
    return [iteration for iteration in range(1, runs + 1) if not active.before.has(place, *what, iteration)]


def _nothing_works(active: Run, treatment: Treatment) -> bool:
    """Of its layer no treatment has ever come up, and so many, this one with them, have not in this session."""
    active.down.add(treatment.repeats or treatment.name)
    layer = {each.repeats or each.name for each in active.treatments if each.layer == treatment.layer}
    came_up = any(each.name in active.up for each in active.treatments if each.layer == treatment.layer)
    return not came_up and len(active.down & layer) >= min(HOPELESS, len(layer))


def _check_host(environment: Environment, failure: Exception) -> None:
    """Raises MachineLost where the host itself or a guard is gone: then nothing will work, and that is the reason."""
    try:
        environment.host.try_run("true", timeout=20)
        environment.check_guards()
    except MachineLost as lost:
        raise lost from failure


def _record_boots(active: Run, place: Place, layer: Opened) -> None:
    environment = active.side_of(place.treatment)
    for guest in layer.guests:
        boot = Boot(
            round=place.round,
            treatment=place.treatment,
            path=guest.path,
            accelerator=guest.spec.accelerator,
            emulated=environment.emulated,
            argv=guest.argv,
            ready_seconds=guest.ready_seconds,
            kernel_seconds=guest.kernel_seconds,
            warnings=tuple(guest.warnings),
        )
        active.store.add_boot(active.id, boot)
        active.boots.append(boot)
        active.emit(GuestBooted(boot))
        path = environment.facts_path(guest.path)
        if path not in active.facts:
            facts = read_facts(guest.machine)
            if len(layer.guests) > 1 and guest is not layer.guests[-1]:
                facts["qemu"] = qemu_facts(guest.machine)
            facts["command_line"] = list(guest.argv)
            _keep_facts(active, path, facts)


def _keep_first_writes(active: Run, treatment: Treatment) -> None:
    """How each disk under test was made; the nested one is, in the first boot of its carrier."""
    environment = active.side_of(treatment.name)
    facts = active.facts[environment.host.path]
    known = {layer: written.to_json() for layer, written in environment.first_writes.items()}
    if known and known != facts["disk"].get("first_write"):
        _keep_facts(active, environment.host.path, {**facts, "disk": {**facts["disk"], "first_write": known}})


def _workloads(active: Run, place: Place, layer: Opened, todo: Todo) -> bool:
    """Run every workload that this layer can and that is to be done; True when the machine was lost on the way."""
    for workload in active.environment.workloads:
        if layer.site.layer not in workload.layers or (workload.name == "net" and layer.site.link is None):
            continue
        for case in (case for case in workload.cases() if (workload.name, case) in todo):
            if workload.once(case) and layer.site.fresh_disk is None:
                continue  # a bare device, of which nobody knows what was written
            last = _iterations(active, place, layer, workload, case, todo[workload.name, case])
            if last.status == "refused":
                break  # the other cases did other work too
            if last.status == "failed" and not _answers(layer):
                return True
    return False


def _iterations(
    active: Run, place: Place, layer: Opened, workload: Workload[Any], case: str, iterations: Sequence[int]
) -> Trial:
    """Run one case so often, or until it fails, for the next would fail too; the last trial."""
    environment = active.side_of(place.treatment)
    for iteration in iterations:
        environment.check_guards(ask=False)
        active.emit(WorkloadStarted(place.treatment, workload.name, case, iteration, iterations[-1]))
        trial = run_trial(
            *(place, layer, workload, case, active.signatures),
            iteration=iteration,
            host=environment.host,
            emulated=environment.emulated,
        )
        trial = active.add(trial)
        if trial.status != "ok":
            break
    return trial


def _answers(layer: Opened) -> bool:
    try:
        return layer.site.machine.succeeds("true")
    except MachineLost:
        if not layer.guests:
            raise  # the host under test itself: nothing more can be measured
        return False


def _shut_down(active: Run, place: Place, layer: Opened) -> None:
    seconds = layer.guests[-1].shut_down()
    if active.environment.wants("boot"):
        active.add(boot_trial(place, layer, seconds))
    for carrier in reversed(layer.guests[:-1]):
        carrier.shut_down()


def _keep_host_facts(active: Run, facts: Mapping[str, Json]) -> None:
    """With what the hosts' set-up had to say, and in what the sides differ."""
    for path, found in facts.items():
        _keep_facts(active, path, found)
    for environment in active.environments.values():
        for text in environment.notes:
            active.note(text)
    for text in interleave.side_differences(active.facts, active.environments):
        active.note(text)
        active.emit(Notice(text))


def _keep_facts(active: Run, path: str, facts: Json) -> None:
    active.facts[path] = facts
    active.store.add_facts(active.id, path, facts)


def _primary(active: Run) -> tuple[Comparison, ...]:
    """The comparisons that stopping is about."""
    trials = schedule.counted(active.trials, active.schedules)
    found = comparisons.comparisons(active.treatments, trials, active.boots, active.plan.stopping().alpha, active.facts)
    repeats = {treatment.name for treatment in active.treatments if treatment.repeats is not None}
    primary = active.plan.primary
    return tuple(entry for entry in found if entry.metric.name in primary and entry.treatment not in repeats)


def _comparable(active: Run) -> set[str]:
    """The primary metrics that two treatments which are set side by side both have: a host has no boot time."""
    layer = {treatment.name: treatment.layer for treatment in active.treatments}
    compared = [treatment for treatment in active.treatments if treatment.repeats is None]
    pairs = [{layer[name] for name in pair} for pair in comparisons.contrasts(compared)]
    found = {
        metric.name
        for workload in active.environment.workloads
        if any(pair <= workload.layers for pair in pairs)
        for metric in workload.metrics()
    }
    return found & set(active.plan.primary)


def _why_over(active: Run, primary: tuple[Comparison, ...], number: int) -> str | None:
    """Why the run may end now; None where it goes on."""
    wanted = _comparable(active)
    # A metric without a single result is neither precise nor decided.
    missing = not wanted or not wanted <= {entry.metric.name for entry in primary}
    return active.plan.stopping().why_over(number, () if missing else primary)
