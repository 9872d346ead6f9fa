"""Carries out an experiment: rounds of shuffled treatments, one boot each; every result is committed as it lands."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from vmtax import compare, stats
from vmtax.environment import Environment
from vmtax.environment import opened as open_environment
from vmtax.event import (
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
from vmtax.hypervisor import BootFailed
from vmtax.image.cache import Image
from vmtax.layer import Opened, opened
from vmtax.machine import MachineError, MachineLost
from vmtax.meter.disk import disk_facts
from vmtax.meter.facts import differences, qemu_facts, read_facts
from vmtax.plan import Plan, fit_rounds
from vmtax.result import Boot, Comparison, Experiment, Json, Treatment, Trial
from vmtax.store import Store
from vmtax.treatment import moved_defaults, shuffled_rounds
from vmtax.trial import Place, Signatures, boot_trial, failed_boot, run_trial

Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line adds to the plan."""

    command: str  # the command line that repeats this run
    qemu: str | None = None  # another QEMU than the host's own
    disk_directory: PurePosixPath | None = None  # for the disk under test


@dataclass
class Run:
    """One experiment under way."""

    id: str
    plan: Plan
    environment: Environment
    treatments: tuple[Treatment, ...]
    store: Store
    emit: Emit
    signatures: Signatures = field(default_factory=Signatures)
    trials: list[Trial] = field(default_factory=list)
    boots: list[Boot] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)  # by machine path
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep with the experiment, once, what its reader must know."""
        if text not in self.notes:
            self.notes.append(text)
            self.store.add_note(self.id, text)

    def add(self, trial: Trial) -> None:
        self.store.add_trial(self.id, trial)
        self.trials.append(trial)
        self.emit(TrialFinished(trial))


def run(plan: Plan, image: Image, store: Store, options: Options, emit: Emit) -> str:
    """Carry out `plan`; returns the experiment's id. Raises what stops it, with everything measured kept."""
    started = time.time()
    treatments, left_out = plan.treatments()
    with open_environment(plan, image, emit, qemu=options.qemu, disk_directory=options.disk_directory) as environment:
        id = store.new_id(plan.name, started)
        store.begin(_experiment(id, plan, options.command, started, tuple(treatments)))
        active = Run(id, plan, environment, tuple(treatments), store, emit)
        with _finished(store, id):
            emit(RunStarted(id, active.treatments, plan.rounds.min, plan.rounds.max))
            for text in (*left_out, *moved_defaults(plan.factors), *environment.notes):
                active.note(text)
            _host_facts(active)
            rounds = _rounds(active, started)
    inside = sum(trial.wall_seconds for trial in active.trials if trial.workload != "boot")
    seconds = time.time() - started
    emit(RunFinished(id, rounds, seconds, inside / seconds))
    return id


@contextlib.contextmanager
def _finished(store: Store, id: str) -> Iterator[None]:
    """However it ends, the store says so."""
    try:
        yield
    except KeyboardInterrupt:
        store.finish(id, "interrupted", time.time())
        raise
    except BaseException:
        store.finish(id, "failed", time.time())
        raise
    store.finish(id, "complete", time.time())


def _experiment(id: str, plan: Plan, command: str, started: float, treatments: tuple[Treatment, ...]) -> Experiment:
    return Experiment(
        id=id,
        name=plan.name,
        host=plan.host,
        command=command,
        created=started,
        finished=None,
        state="running",
        plan=plan.model_dump(mode="json"),
        facts={},
        treatments=treatments,
        boots=(),
        trials=(),
    )


def _rounds(active: Run, started: float) -> int:
    """Rounds until they are enough; how many."""
    plan = active.plan
    seed = plan.seed if plan.seed is not None else int(started)
    planned = plan.rounds.max
    first = time.monotonic()
    for number, order in enumerate(shuffled_rounds(active.treatments, seed), start=1):
        for position, treatment in enumerate(order, start=1):
            active.emit(TreatmentStarted(number, position, treatment.name))
            _treatment(active, Place(number, position, treatment.name), treatment)
        per_round = (time.monotonic() - first) / number
        planned, warnings = fit_rounds(plan, per_round)
        for text in (*warnings, *differences(active.facts)) if number == 1 else ():
            active.note(text)
            active.emit(Notice(text))
        primary = _primary(active)
        enough = number >= planned or (number >= plan.rounds.min and _precise(active, primary, number))
        if enough:
            planned = number
        active.emit(RoundFinished(number, planned, per_round * (planned - number), primary))
        if enough:
            return number
    raise AssertionError("rounds have no end")


def _treatment(active: Run, place: Place, treatment: Treatment) -> None:
    """One boot of one treatment with all its workloads. A guest that fails costs this round's trial, not the run."""
    started = time.time()
    try:
        with opened(active.environment, treatment) as layer:
            _record_boots(active, place, layer)
            lost = _workloads(active, place, layer)
            if layer.guests and not lost:
                _shut_down(active, place, layer)
    except (BootFailed, MachineError) as failure:
        if place.round == 1:
            raise  # nothing is known to work yet: say so now, not after hours
        active.add(failed_boot(place, started, str(failure)))


def _record_boots(active: Run, place: Place, layer: Opened) -> None:
    for guest in layer.guests:
        boot = Boot(
            round=place.round,
            treatment=place.treatment,
            path=guest.path,
            accelerator=guest.spec.accelerator,
            emulated=active.environment.emulated,
            argv=guest.argv,
            ready_seconds=guest.ready_seconds,
            kernel_seconds=guest.kernel_seconds,
            warnings=tuple(guest.warnings),
        )
        active.store.add_boot(active.id, boot)
        active.boots.append(boot)
        active.emit(GuestBooted(boot))
        if guest.path not in active.facts:
            facts = read_facts(guest.machine)
            if len(layer.guests) > 1 and guest is not layer.guests[-1]:
                facts["qemu"] = qemu_facts(guest.machine)
            facts["command_line"] = list(guest.argv)
            _keep_facts(active, guest.path, facts)


def _workloads(active: Run, place: Place, layer: Opened) -> bool:
    """Run every workload that this layer can; True when the machine was lost on the way."""
    for workload in active.environment.workloads:
        if layer.site.layer not in workload.layers or (workload.name == "net" and layer.site.link is None):
            continue
        for case in workload.cases():
            active.emit(WorkloadStarted(place.treatment, workload.name, case))
            environment = active.environment
            trial = run_trial(
                *(place, layer, workload, case, active.signatures),
                host=environment.host,
                emulated=environment.emulated,
            )
            active.add(trial)
            if trial.status == "refused":
                break  # the other cases did other work too
            if trial.status == "failed" and not _answers(layer):
                return True
    return False


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


def _host_facts(active: Run) -> None:
    environment = active.environment
    facts = read_facts(environment.host)
    facts["image"] = {
        "identity": environment.image.identity,
        "kernel": environment.image.kernel,
        "manifest": environment.image.manifest(),
    }
    facts["cpus_measured"] = environment.cpus
    if environment.qemu is not None:
        qemu = environment.qemu
        facts["qemu"] = {"command": list(qemu.command), "version": qemu.version, "text": qemu.described}
    if environment.accelerator is not None:
        facts["accelerator"] = {"name": environment.accelerator.name, "reason": environment.accelerator.reason}
    if environment.disk_directory is not None:
        facts["disk"] = disk_facts(environment.host, environment.disk_directory)
    _keep_facts(active, "host", facts)


def _keep_facts(active: Run, path: str, facts: Json) -> None:
    active.facts[path] = facts
    active.store.add_facts(active.id, path, facts)


def _primary(active: Run) -> tuple[Comparison, ...]:
    """The comparisons that stopping is about."""
    alpha = compare.alpha_of(active.plan.rounds.min, active.plan.rounds.max)
    found = compare.comparisons(active.treatments, active.trials, active.boots, alpha)
    return tuple(entry for entry in found if entry.metric.name in active.plan.primary)


def _precise(active: Run, primary: tuple[Comparison, ...], number: int) -> bool:
    """Precision mode of METHOD: only the width of the intervals decides, at looks two rounds apart."""
    half_width = math.log1p(active.plan.precision)
    return bool(primary) and all(stats.precise_enough(entry.low, entry.high, number, half_width) for entry in primary)
